"""What a comparison of two schemas says, whatever their format: findings, and the verdict they add up to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import TypeVar

import msgspec

S = TypeVar("S")


class Reader(StrEnum):
    """Who reads whose data. The writer is always the other one."""

    NEW = "new readers of old data"
    OLD = "old readers of new data"


class Mode(StrEnum):
    """What a change must keep.

    BACKWARD        new readers read old data: consumers may upgrade first, and replays work.
    FORWARD         old readers read new data: producers may upgrade first.
    FULL            both.
    *_TRANSITIVE    the same, against every past version instead of the last one.
    ADDITIVE        the house rules for one version of an event: fields may be added when nobody must know them, and ranges may
                    be tightened when no past value is outside; nothing is removed, renamed, made required or given another type.
    NONE            anything goes.
    """

    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"
    ADDITIVE = "ADDITIVE"
    NONE = "NONE"

    @property
    def readers(self) -> tuple[Reader, ...]:
        """Whom the mode protects. ADDITIVE protects both, by its own rules."""
        word = self.value.removesuffix("_TRANSITIVE")
        if word == "NONE":
            return ()
        return {"BACKWARD": (Reader.NEW,), "FORWARD": (Reader.OLD,)}.get(word, (Reader.NEW, Reader.OLD))

    @property
    def transitive(self) -> bool:
        """Whether every past version counts, not the last one alone."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def step(self) -> Mode:
        """The mode by which one pair of versions is judged."""
        return Mode(self.value.removesuffix("_TRANSITIVE"))


class Weight(StrEnum):
    """How much a finding counts."""

    BREAKS = "breaks"
    UNJUDGED = "unjudged"
    """It could not be proven harmless, so it is not let through."""
    NOTE = "note"
    """It is allowed; `way_out` says what has to be done beside."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a change does to a reader."""

    path: str
    """A JSON Pointer to the value that is meant, seen from the whole message: "" is the message, `/items/*` any item."""
    rule: str
    """A short word for the kind of change, stable between releases: `required-added`, `type-narrowed`, …"""
    breaks: Reader
    sentence: str
    """What changed, in words."""
    way_out: str
    weight: Weight = Weight.BREAKS
    example: object = msgspec.UNSET
    """A whole message that the writer may send and the reader refuses. Left out where none was found; None is JSON's null."""
    against: str = ""
    """Which past version, where there are several."""

    @property
    def has_example(self) -> bool:
        """Whether there is an example; it may be null."""
        return self.example is not msgspec.UNSET


class Outcome(StrEnum):
    """What becomes of a change. Only COMPATIBLE may pass."""

    COMPATIBLE = "compatible"
    INCOMPATIBLE = "incompatible"
    UNJUDGED = "unjudged"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome and all that led to it. Make it with `Verdict.of`; notes may stand in a compatible one."""

    outcome: Outcome
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Verdict:
        """One finding that breaks makes it incompatible; otherwise one that is unjudged makes it unjudged."""
        found = tuple(findings)
        weights = {finding.weight for finding in found}
        if Weight.BREAKS in weights:
            return cls(outcome=Outcome.INCOMPATIBLE, findings=found)
        if Weight.UNJUDGED in weights:
            return cls(outcome=Outcome.UNJUDGED, findings=found)
        return cls(outcome=Outcome.COMPATIBLE, findings=found)

    @property
    def compatible(self) -> bool:
        """Whether the change may pass."""
        return self.outcome is Outcome.COMPATIBLE


def judge(mode: Mode, one_way: Callable[[Reader], Verdict]) -> Verdict:
    """The verdict of a mode from those of its readers. `one_way` judges one of them, and is called only for those that count."""
    return Verdict.of(finding for reader in mode.readers for finding in one_way(reader).findings)


def across(history: Sequence[tuple[str, S]], new: S, mode: Mode, compare: Callable[[S, S, Mode], Verdict]) -> Verdict:
    """`new` against the past versions that the mode counts, as (name, schema), oldest first. No history is compatible.

    What several versions say alike is said once, against the newest of them.
    """
    if mode is Mode.NONE:
        return Verdict.of(())
    counted = history if mode.transitive else history[-1:]
    kept: dict[tuple[str, str, Reader, Weight], Finding] = {}
    for name, old in reversed(counted):
        for finding in compare(old, new, mode.step).findings:
            place = (finding.path, finding.rule, finding.breaks, finding.weight)
            kept.setdefault(place, msgspec.structs.replace(finding, against=name))
    return Verdict.of(kept.values())
