"""Objection: one thing that speaks against a change, whom it touches, and the way out."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from posthouse.contracts.normal import sha256


class Severity(StrEnum):
    """Only an ERROR stops a change."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Touched(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer that a change touches. `handler` is empty where only the consumer group is known; `certain` is False where
    nobody said which fields are read: it may read this one."""

    consumer: str
    handler: str = ""
    certain: bool = False

    def __str__(self) -> str:
        who = f"{self.handler} ({self.consumer})" if self.handler else self.consumer
        return who if self.certain else f"{who}, which may read it"


class Objection(msgspec.Struct, frozen=True, kw_only=True):
    """`file` is a path inside the bundle; `path` a JSON Pointer into the payload, None where the event as a whole is meant.
    `change` tells one change from another, so that leave to make one is not leave to make the next."""

    rule: str
    severity: Severity
    subject: str
    file: str
    sentence: str
    way_out: str
    change: str
    path: str | None = None
    breaks: str = ""
    example: object = msgspec.UNSET
    touched: tuple[Touched, ...] = ()

    @property
    def fingerprint(self) -> str:
        """The same for the same objection to the same change, wherever it is looked at."""
        said = (self.rule, self.file, self.path or "", self.breaks, self.change)
        return sha256("\n".join(said)).removeprefix("sha256-")[:16]

    @property
    def place(self) -> str:
        """What is meant, in words."""
        if self.path is None:
            return "the event"
        return self.path or "the whole message"

    @property
    def readers(self) -> str:
        """Whom it touches, in words."""
        return "; ".join(map(str, self.touched)) if self.touched else "no consumer that is known here"
