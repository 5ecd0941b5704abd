"""What a screen may have seen: figures made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from posthouse.cli.screen.history import History, Look
from posthouse.store import Worker
from posthouse.watch.liveness import Attendance
from posthouse.watch.status import Line, Status

NOON = 1_800_000_000.0


def line(
    consumer: str = "billing",
    *,
    committed: int = 100,
    applied: int = 100,
    in_flight: int = 0,
    held: Mapping[str, int] | None = None,
    foreign: bool = False,
    overlap: int = 0,
) -> Line:
    return Line(
        consumer=consumer,
        topic="shop.orders.order",
        committed=committed,
        applied=applied,
        in_flight=in_flight,
        held=held or {},
        skipped=0,
        foreign=foreign,
        late=False,
        overlap=overlap,
    )


def look(
    at: float,
    *lines: Line,
    committed: int = 100,
    unsent: int = 0,
    stuck: int = 0,
    away: str = "",
    attended: Sequence[Attendance] = (),
) -> Look:
    """A look that took a tenth of a second."""
    figures = Status(
        lines=lines,
        unsent={"orders": unsent},
        stuck={"orders": stuck},
        timers={"orders": 0},
        notes=[],
        committed={"orders": committed},
        away=away,
    )
    return Look(
        began=at, ended=at + 0.1, at=NOON + at, figures=figures, attended=attended, wake={"orders": "notifications"}
    )


def history(*looks: Look) -> History:
    made = History()
    for one in looks:
        made.add(one)
    return made


def worker(name: str = "desk-7", *, age: float = 1.0) -> Worker:
    return Worker(
        id=name,
        services=["orders"],
        name=name,
        host="desk",
        pid=7,
        version="1.0",
        parts=["relay", "consumers"],
        since=3600.0,
        age=age,
    )


def attended(*workers: Worker, **more: int) -> Attendance:
    """Who runs `orders`, and how much waits for each part."""
    waiting = {part: number for part, number in more.items() if number}
    return Attendance(
        services="orders",
        workers=workers,
        missing=list(waiting),  # type: ignore[arg-type]
        idle=["billing"] if "consumers" in waiting else [],
        waiting=waiting,  # type: ignore[arg-type]
    )
