"""A capability sheet in words: what each line means for whoever runs on this broker."""

from __future__ import annotations

from posthouse.broker import Capabilities
from posthouse.cli.output import span

FLAGS: dict[str, tuple[str, str]] = {
    "durable_ack": (
        "an accepted frame survives a crash of the broker's machine",
        "an accepted frame may be lost with the broker's machine",
    ),
    "ordered_publish": (
        "frames of one key are stored as they were published",
        "frames of one key may be stored in another order: what is too early is held",
    ),
    "ordered_redelivery": (
        "what comes again comes in order per key",
        "what comes again may be out of order: what is too early is held",
    ),
    "fence": (
        "the broker refuses a relay that lost its lease",
        "a relay that lost its lease may repeat frames: the inbox knows them",
    ),
    "history": ("a new consumer reads what was stored before it", "a new consumer begins with what comes after it"),
    "seek": ("`posthouse seek` moves a consumer back and ahead", "there is no way back: replay from the archive"),
    "native_dlq": ("the broker has dead letters too; ours are used", "dead letters are ours"),
    "delay": ("the broker can hold frames back; timers are ours", "timers are ours"),
    "binary_body": ("a body may be any bytes", "a body is text: other bytes go as base64"),
    "announces": (
        "readers see type, tenant and idempotency key in attributes, whatever the envelope",
        "readers see what the envelope says in headers",
    ),
    "retains_unacked": (
        "frames are kept until every consumer has read them",
        "frames go when their time is up, read or not: watch the lag",
    ),
}
"""What yes and no mean."""


def sheet_rows(sheet: Capabilities) -> list[tuple[str, str, str]]:
    """Name, value and meaning of every line, flags first."""
    rows = []
    for name, (yes, no) in FLAGS.items():
        held = bool(getattr(sheet, name))
        rows.append((name, "yes" if held else "no", yes if held else no))
    return [*rows, *_limits(sheet)]


def _limits(sheet: Capabilities) -> list[tuple[str, str, str]]:
    headers = sheet.header_limit
    return [
        ("native_dedup_s", span(sheet.native_dedup_s), "a repeated id is dropped for so long; then by the inbox"),
        (
            "redelivery_s",
            span(sheet.redelivery_s),
            "a frame may come again for so long; the inbox must remember longer",
        ),
        ("max_bytes", _size(sheet.max_bytes), "the largest frame, headers and body together"),
        ("header_limit", "none" if headers is None else str(headers), "the largest number of headers"),
        ("region", sheet.region or "unknown", "where it keeps frames; a fact that must not be there is refused"),
    ]


def _size(count: int) -> str:
    for size, unit in ((1024 * 1024, "MiB"), (1024, "KiB")):
        if count >= size:
            return f"{count / size:,.4g} {unit}"
    return f"{count} B"
