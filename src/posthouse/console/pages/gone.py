"""Gone: what became of an event that is not held under its number any more. Who looks at it as it goes wants to know that, not an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from posthouse.app import App
from posthouse.console.access.who import Who
from posthouse.console.asking import Ask
from posthouse.events import timestamp
from posthouse.store import HeldFilter
from posthouse.store.actions import Action, ActionFilter

LOOKED_AT = 500
"""So many of the newest acts on held events are looked at, to find those on one."""
SET_ASIDE = ("held skip", "held quarantine")

Outcome = Literal["applied", "held", "forgotten", "unknown"]
"""applied: its consumer has had it. held: it runs out of order, under another number. forgotten: it was set aside, long ago.
unknown: nothing is left that tells."""


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """`outcome`, and for whom it was held; `now` is its new number, where it has one; `at` is when its consumer had it, where the
    store remembers that."""

    outcome: Outcome
    consumer: str
    topic: str
    tenant: str
    key: str | None
    event_id: str
    now: str | None = None
    at: str | None = None


class Was(msgspec.Struct, frozen=True):
    """What held event it was, as who saw it knows."""

    consumer: str
    topic: str
    tenant: str
    key: str | None
    event_id: str


async def gone(app: App, ask: Ask, held_id: int) -> tuple[Gone, Sequence[Action]] | None:
    """What became of it, with the acts on its event; None where nobody knows what it was."""
    was = _told(ask) or _found(await _acts(app, ask.who), held_id)
    if was is None or not ask.who.sees(was.tenant):
        return None
    about = ActionFilter(event_id=was.event_id, tenants=[was.tenant])
    acts = [one for one in await app.store.browsing.actions(about) if one.consumer in ("", was.consumer)]
    held = await app.store.browsing.held(
        HeldFilter(consumer=was.consumer, topic=was.topic, tenant=was.tenant, event_id=was.event_id), limit=1
    )
    decided = next((one for one in acts if one.verb.startswith("held ")), None)
    at: float | None = None
    outcome: Outcome = "unknown"
    if held:
        outcome = "held"
    elif decided is not None and decided.verb in SET_ASIDE:
        outcome = "forgotten"
    elif (at := await _had(app, was)) is not None or await _is_past(app, was):
        outcome = "applied"
    return Gone(
        outcome=outcome,
        now=str(held[0].id) if held else None,
        at=None if at is None else timestamp(at),
        **msgspec.structs.asdict(was),
    ), acts


def _told(ask: Ask) -> Was | None:
    """By who saw it: `?event=`, `?consumer=`, `?topic=`, `?tenant=`, `?key=`."""
    said = ask.query
    if not all(said.get(name) for name in ("event", "consumer", "topic", "tenant")):
        return None
    return Was(said["consumer"], said["topic"], said["tenant"], said.get("key"), said["event"])


async def _acts(app: App, who: Who) -> Sequence[Action]:
    tenants = None if who.tenants is None else sorted(who.tenants)
    return await app.store.browsing.actions(ActionFilter(verb="held", tenants=tenants), limit=LOOKED_AT)


def _found(acts: Sequence[Action], held_id: int) -> Was | None:
    for act in acts:
        if act.target == f"held event {held_id}" and act.event_id:
            return Was(act.consumer, act.topic, act.tenant, act.key or None, act.event_id)
    return None


async def _had(app: App, was: Was) -> float | None:
    """When its consumer had it: of those that keep an order no store tells."""
    had = await app.store.browsing.applied(was.tenant, was.event_id)
    return next((one.received_at for one in had if one.consumer == was.consumer and one.topic == was.topic), None)


async def _is_past(app: App, was: Was) -> bool:
    """Whether its consumer has come to some number of its key: to this one, as it is held no more."""
    heads = () if was.key is None else await app.store.browsing.heads(was.tenant, was.key)
    return any(one.consumer == was.consumer and one.topic == was.topic for one in heads)
