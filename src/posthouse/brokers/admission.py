"""Which frames of one publish call may be stored: the part of the port's contract that needs no broker."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence

from posthouse.broker import ACCEPTED, Frame, Verdict

BEHIND = Verdict(False, "an earlier frame of this key was refused in the same call")


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
                verdict = BEHIND
        verdicts.append(verdict)
    return verdicts


class Admission:
    """The verdicts of one call while its frames are stored piece by piece: whatever is refused, by us or by the broker, holds
    back what comes after it of its key. Frames are known by their place in the call."""

    __slots__ = ("_blocked", "frames", "verdicts")

    def __init__(self, frames: Sequence[Frame], topics: Container[str], limit: int) -> None:
        self.frames = frames
        self.verdicts = admit(frames, topics, limit)
        self._blocked: set[tuple[str, str | None]] = set()

    def by_topic(self, misfit: Callable[[int], str]) -> dict[str, list[int]]:
        """What is to be sent, in order. `misfit` says in words why a frame never can be; empty when it can."""
        topics: dict[str, list[int]] = {}
        for index, frame in enumerate(self.frames):
            if not self.verdicts[index].accepted:
                self.refuse(index, self.verdicts[index])
            elif not self.is_behind(index):
                reason = misfit(index)
                if reason:
                    self.refuse(index, Verdict(False, reason, final=True))
                else:
                    topics.setdefault(frame.topic, []).append(index)
        return topics

    def chunks(self, indices: Sequence[int], *, most: int, most_bytes: int) -> Iterator[list[int]]:
        """Pieces of a few frames and a few bytes, without what was held back meanwhile."""
        chunk: list[int] = []
        size = 0
        for index in indices:
            length = len(self.frames[index].body)
            if chunk and (len(chunk) == most or size + length > most_bytes):
                if sent := self.ahead(chunk):
                    yield sent
                chunk, size = [], 0
            chunk.append(index)
            size += length
        if sent := self.ahead(chunk):
            yield sent

    def turn(self, indices: Sequence[int]) -> list[int]:
        """The first of each key, and all that have none: what may be on its way at the same time."""
        first: dict[object, int] = {}
        for index in indices:
            key = self.frames[index].key
            first.setdefault(index if key is None else key, index)
        return list(first.values())

    def ahead(self, indices: Sequence[int]) -> list[int]:
        """Those that nothing holds back; the others are refused for now."""
        return [index for index in indices if not self.is_behind(index)] if self._blocked else list(indices)

    def is_behind(self, index: int) -> bool:
        frame = self.frames[index]
        behind = bool(self._blocked) and (frame.topic, frame.key) in self._blocked
        if behind:
            self.verdicts[index] = BEHIND
        return behind

    def refuse(self, index: int, verdict: Verdict) -> None:
        frame = self.frames[index]
        self.verdicts[index] = verdict
        if frame.key is not None:
            self._blocked.add((frame.topic, frame.key))


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
