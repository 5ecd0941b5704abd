"""Health: what `posthouse doctor` finds about each store and each broker, and how to mend it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from posthouse.checks import Check, Judgement
from posthouse.console.asking import Ask
from posthouse.console.pages.home import everyone
from posthouse.promise import Clause
from posthouse.redaction import redacted
from posthouse.watch.examining import Examination, examine

WITHIN = 4.0
"""Seconds that a store or a broker has for all checks."""
SAGAS = 5_000
"""Of more sagas that are not over it is not asked whether they fit their classes: each would be read."""
GRAVITY: dict[Judgement, int] = {"fail": 0, "warn": 1, "ok": 2}


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """One store or broker. The gravest of `checks` comes first; `promise` is what follows from a broker that could be reached."""

    service: str
    part: str
    place: str
    judgement: Judgement
    checks: Sequence[Check]
    promise: Sequence[Clause]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    sentence: str
    failed: int
    warned: int
    examined: Sequence[Examined]


async def health(ask: Ask) -> Health:
    """All of them at once. One that cannot be opened is a finding, not a problem of the page."""
    everyone(ask)
    told = await ask.estate.examined(partial(examine, within=WITHIN, sagas=SAGAS), within=3 * WITHIN)
    ask.problems.extend(told.problems)
    found = sorted(
        (_examined(one) for those in told.found.values() for one in those),
        key=lambda one: (GRAVITY[one.judgement], one.service, one.part != "store"),
    )
    failed, warned = (
        sum(check.judgement == kind for one in found for check in one.checks) for kind in ("fail", "warn")
    )
    return Health(sentence=_sentence(len(found), failed, warned), failed=failed, warned=warned, examined=found)


def _examined(one: Examination) -> Examined:
    checks = [
        msgspec.structs.replace(check, found=redacted(check.found), fix=redacted(check.fix)) for check in one.checks
    ]
    return Examined(
        service=one.service,
        part=one.part,
        place=one.place,
        judgement=min((check.judgement for check in checks), key=GRAVITY.__getitem__, default="ok"),
        checks=sorted(checks, key=lambda check: GRAVITY[check.judgement]),
        promise=one.promise,
    )


def _sentence(places: int, failed: int, warned: int) -> str:
    if failed:
        return f"{failed:,} {'check keeps' if failed == 1 else 'checks keep'} a service from running or from keeping its promise."
    if warned:
        return f"Everything runs and keeps its promise; {warned:,} {'thing weakens' if warned == 1 else 'things weaken'} it or may."
    return f"All stores and brokers ({places}) are as they should be." if places else "No service could be looked at."


PAGES = {"/health": health}
