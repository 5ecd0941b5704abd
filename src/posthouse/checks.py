"""Checks: what a store or a broker found out about itself, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

Judgement = Literal["ok", "warn", "fail"]
"""ok: as it should be. warn: the promise holds, but is weaker or in danger. fail: it cannot be kept; nothing starts."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at: what was found, what that means, and, unless it is ok, how to mend it."""

    name: str
    found: str
    judgement: Judgement = "ok"
    fix: str = ""

    @property
    def sentence(self) -> str:
        """The finding and its fix in one line."""
        return f"{self.name}: {self.found}{f'; {self.fix}' if self.fix else ''}"


def judged(name: str, found: str, *, wrong: bool, as_: Judgement = "warn", fix: str = "") -> Check:
    """A check that is ok unless `wrong`: then it is judged so, and has a fix."""
    return Check(name=name, found=found, judgement=as_, fix=fix) if wrong else Check(name=name, found=found)


def refusals(checks: Iterable[Check]) -> list[str]:
    """One sentence for each reason not to start."""
    return [check.sentence for check in checks if check.judgement == "fail"]


def warnings(checks: Iterable[Check]) -> list[str]:
    """One sentence for each thing to know before starting all the same."""
    return [check.sentence for check in checks if check.judgement == "warn"]
