"""Outbox: what waits to be sent, and what the broker refused."""

from __future__ import annotations

from collections.abc import Mapping

from posthouse.app import App
from posthouse.console.asking import Ask, Page, Refusal
from posthouse.console.listing import everybodys, lines_wanted, listed, place_of
from posthouse.console.showing import shown_text
from posthouse.events import timestamp
from posthouse.store import StuckRow


async def outbox(ask: Ask) -> object:
    """What is unsent per topic, with ages, and how many were refused; of each store."""
    everybodys(ask, "The outbox holds events")
    found = await ask.each(_of)
    return {"stores": [{"service": name, **facts} for name, facts in found.items()]}


async def _of(app: App) -> dict[str, object]:
    gauges = await app.store.gauges()
    counts = gauges.counts
    owners = {
        known.topic: service.name
        for service in app.services
        for known in (*service.declared.own_events, *service.declared.internal_events)
    }
    return {
        "services": [service.name for service in app.services],
        "estimated": counts.estimated,
        "stuck": counts.stuck,
        "refused": sum(counts.refused.values()),
        "oldest": gauges.oldest_unsent,
        "topics": [
            {
                "topic": topic,
                "service": owners.get(topic),
                "committed": counts.committed.get(topic, 0),
                "unsent": counts.unsent.get(topic, 0) - counts.refused.get(topic, 0),
                "refused": counts.refused.get(topic, 0),
                "oldest": gauges.unsent_oldest.get(topic),
            }
            for topic in sorted({*owners, *counts.committed, *counts.unsent})
        ],
    }


async def stuck(ask: Ask) -> object:
    """Rows that the broker refused, and those that wait behind them, by id."""
    everybodys(ask, "The outbox holds events")
    limit, after = lines_wanted(ask), place_of(ask, str)
    found = await ask.one(
        ask.path["service"], lambda app: app.store.outbox.stuck(after=_number(after), limit=limit + 1)
    )
    return listed(found, limit, lambda one: _facts(ask, one), lambda one: str(one.row.id))


def _facts(ask: Ask, found: StuckRow) -> Mapping[str, object]:
    row = found.row
    waits = found.quarantined or not found.attempts
    return {
        "id": str(row.id),
        "state": found.state,
        "topic": row.topic,
        "tenant": row.tenant,
        "key": row.key,
        "sequence": None if row.sequence is None else str(row.sequence),
        "event_id": row.event_id,
        "attempts": found.attempts,
        "first_at": timestamp(found.first_at),
        "next_at": None if waits else timestamp(found.next_at),
        "error": shown_text(ask.who, found.error),
    }


def _number(after: str | None) -> int:
    if after is None:
        return 0
    if not (after.isascii() and after.isdecimal() and len(after) <= 19) or int(after) >= 2**63:
        raise Refusal(400, f"after={after[:40]!r} is no place in this list.", "Begin at the top.")
    return int(after)


PAGES: Mapping[str, Page] = {"/outbox": outbox, "/outbox/{service}/stuck": stuck}
