"""Which frames of one publish call may be stored: the part of the port's contract that needs no broker."""

from __future__ import annotations

from collections.abc import Container, Sequence

from posthouse.broker import ACCEPTED, Frame, Verdict


def admit(frames: Sequence[Frame], topics: Container[str], limit: int) -> list[Verdict]:
    """One verdict per frame, for an adapter that stores every accepted one or none.

    A frame that can never be stored is refused for good; the later ones of its key in this call are refused for now,
    so that nothing overtakes it unnoticed.
    """
    verdicts: list[Verdict] = []
    blocked: set[tuple[str, str]] = set()
    for frame in frames:
        verdict = _verdict(frame, topics, limit)
        if frame.key is not None:
            place = (frame.topic, frame.key)
            if not verdict.accepted:
                blocked.add(place)
            elif place in blocked:
                verdict = Verdict(False, "an earlier frame of this key was refused in the same call")
        verdicts.append(verdict)
    return verdicts


def frame_size(frame: Frame) -> int:
    """The bytes of headers and body, which is what `Capabilities.max_bytes` limits."""
    size = len(frame.body)
    for name, value in frame.headers.items():
        size += len(name.encode()) + len(value.encode())
    return size


def _verdict(frame: Frame, topics: Container[str], limit: int) -> Verdict:
    if frame.topic not in topics:
        return Verdict(False, f"topic {frame.topic!r} does not exist: make it with ensure()")
    try:
        size = frame_size(frame)
        f"{frame.id}{frame.key}".encode()
    except UnicodeEncodeError:
        return Verdict(False, "the id, the key or a header is not valid Unicode text", final=True)
    if size > limit:
        return Verdict(False, f"the frame is {size:,} bytes, the broker takes {limit:,}", final=True)
    return ACCEPTED
