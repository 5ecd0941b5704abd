"""Tenants: who says most, and for whom most is held. Figures never tell tenants apart, so a bounded number of rows is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from posthouse.app import App
from posthouse.console.asking import Ask, Refusal
from posthouse.console.pages.home import everyone
from posthouse.errors import did_you_mean
from posthouse.receiving import dead_letter_topic
from posthouse.store import HeldState

ROWS = 1_000
"""Of each store so many of the newest events in its outbox are looked at …"""
HELD = 500
"""… and so many of the oldest held ones of each state: they lie anywhere in a large table."""
MOST = 50
STATES: Sequence[HeldState] = ("dead", "quarantined", "gap", "blocked", "retrying")
ORDERS = ("events", "held", "dead", "age")

LAG = "How far consumers are behind is told by brokers, for all tenants of a topic together: nobody can tell it of one tenant."


class Tenant(msgspec.Struct, kw_only=True):
    """What was seen of one. `share`: of the events that were looked at. `oldest`: seconds that the first of its held events waits."""

    tenant: str
    events: int = 0
    share: float = 0.0
    held: int = 0
    dead: int = 0
    oldest: float | None = None
    services: Sequence[str] = ()


class Tenants(msgspec.Struct, frozen=True, kw_only=True):
    items: Sequence[Tenant]
    notes: Sequence[str]
    """What the figures are, and what they are not."""
    looked: int
    more: int
    """So many tenants were seen and are not listed."""


class _Seen(msgspec.Struct):
    said: dict[str, int]
    held: dict[str, int]
    dead: dict[str, int]
    first: dict[str, float]
    rows: int
    full: bool


async def tenants(ask: Ask) -> Tenants:
    """The first of them by `?by=events` (or held, dead, age)."""
    everyone(ask)
    by = ask.query.get("by", "events")
    if by not in ORDERS:
        raise Refusal(400, f"Tenants are not sorted by {by!r}.{did_you_mean(by, ORDERS)}")
    found = await ask.each(_seen)
    known: dict[str, Tenant] = {}
    looked = sum(seen.rows for seen in found.values())
    for app, seen in found.items():
        for name in {*seen.said, *seen.held}:
            one = known.setdefault(name, Tenant(tenant=name))
            one.events += seen.said.get(name, 0)
            one.held += seen.held.get(name, 0)
            one.dead += seen.dead.get(name, 0)
            one.services = [*one.services, app]
            if name in seen.first:
                one.oldest = max(one.oldest or 0.0, seen.first[name])
    for one in known.values():
        one.share = one.events / looked if looked else 0.0
    items = sorted(known.values(), key=lambda one: (-_figure(one, by), -one.held, one.tenant))
    return Tenants(items=items[:MOST], notes=_notes(found), looked=looked, more=max(0, len(items) - MOST))


def _figure(one: Tenant, by: str) -> float:
    return {"held": one.held, "dead": one.dead, "age": one.oldest or 0.0}.get(by, one.events)


async def _seen(app: App) -> _Seen:
    browsing = app.store.browsing
    copies = {dead_letter_topic(topic) for service in app.services for topic in service.declared.topics}
    said = [one for one in await browsing.said_by_tenant(limit=ROWS) if one.topic not in copies]
    held = await browsing.held_by_tenant(STATES, limit=HELD)
    async with app.store.begin() as tx:
        now = await app.store.timers.now(tx)
    looked = Counter[str]()
    seen = _Seen({}, {}, {}, {}, sum(one.number for one in said), full=False)
    for one in said:
        seen.said[one.tenant] = seen.said.get(one.tenant, 0) + one.number
    for part in held:
        tenant, number = part.tenant, part.number
        looked[part.state] += number
        seen.held[tenant] = seen.held.get(tenant, 0) + number
        seen.dead[tenant] = seen.dead.get(tenant, 0) + number * (part.state == "dead")
        seen.first[tenant] = max(seen.first.get(tenant, 0.0), now - part.first_at)
    seen.full = any(number >= HELD for number in looked.values())
    return seen


def _notes(found: dict[str, _Seen]) -> list[str]:
    notes = [
        f"Events: of each store the newest {ROWS:,} in its outbox were counted, so this is who says most lately; what was sent long ago "
        "and purged is not in it.",
        LAG,
    ]
    if full := [name for name, seen in found.items() if seen.full]:
        notes.append(f"Held: of {', '.join(full)} only the oldest {HELD:,} of a state were counted; there are more.")
    return notes


PAGES = {"/tenants": tenants}
