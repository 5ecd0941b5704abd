"""Finding: one place where a rule of the house is not kept, why that matters, and what to do."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """How much a finding counts: an error fails the check, a warning fails it with `--strict`, an info never does."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a file, from 1. For a declaration they end where its body begins."""

    file: str
    line: int
    until: int


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule says about one thing: `where` is its subject, handler, topic or module. `fix` only where it differs from
    that of the rule, and `severity` only where it does."""

    where: str
    sentence: str
    place: Place | None = None
    fix: str = ""
    severity: Severity | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The same with what the rule has to say. `file` and `line` where they are known."""

    rule: str
    severity: Severity
    where: str
    sentence: str
    reason: str
    fix: str
    file: str | None = None
    line: int | None = None
