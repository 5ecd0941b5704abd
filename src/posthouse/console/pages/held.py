"""Held: what could not be applied, by how it failed; and one of them with all that is known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

import msgspec

from posthouse.app import App
from posthouse.console.access.who import Who
from posthouse.console.asking import Ask, Page, Refusal
from posthouse.console.held_states import MEANINGS
from posthouse.console.listing import lines_wanted, place_of
from posthouse.console.pages.gone import gone
from posthouse.console.showing import looked_at, shown_headers, shown_text, why_of
from posthouse.errors import DecodeError, DeskError, did_you_mean
from posthouse.events import Event, decode_any, timestamp
from posthouse.revealing import looking_at
from posthouse.store import BLOCKING, HeldEvent, HeldFilter, HeldState
from posthouse.store.actions import Action, ActionFilter
from posthouse.store.browsing import Bounded, HeldGroup, HeldLine

FILTERS = ("consumer", "state", "tenant", "topic", "key", "fingerprint", "correlation")
LINE = 50
"""How many held events of a key are shown beside one of them."""
HISTORY = 50


# The list and its groups.


async def held(ask: Ask) -> object:
    """Held events, newest first, without their bytes."""
    wanted, limit, after = wanted_of(ask), lines_wanted(ask), place_of(ask, dict[str, int]) or {}

    async def lines(app: App) -> tuple[Sequence[HeldLine], Mapping[int, Bounded]]:
        found = await app.store.browsing.held(wanted, after=after.get(app.opened.name), limit=limit)
        return found, await app.store.browsing.waiting_behind(found)

    answers = await ask.each(lines, services_of(ask))
    shown, following = _newest({name: found for name, (found, _) in answers.items()}, limit, after)
    return {
        "items": [
            line_facts(owner(ask.estate.app(name), line.consumer), line, ask.who, answers[name][1].get(line.id))
            for name, line in shown
        ],
        "next": following,
    }


def _newest(
    pages: Mapping[str, Sequence[HeldLine]], limit: int, after: Mapping[str, int]
) -> tuple[list[tuple[str, HeldLine]], str | None]:
    """The newest of a page of each store, and the place behind them: the last id that each has shown. None at the end. A store that
    did not answer keeps its place."""
    places, left = dict(after), {name: list(page) for name, page in pages.items()}
    shown: list[tuple[str, HeldLine]] = []
    while len(shown) < limit and any(left.values()):
        name = max((name for name in left if left[name]), key=lambda name: left[name][0].first_at)
        line = left[name].pop(0)
        shown.append((name, line))
        places[name] = line.id
    more = any(left.values()) or any(len(page) == limit for page in pages.values())
    return shown, msgspec.json.encode(places).decode() if more and shown else None


async def groups(ask: Ask) -> object:
    """The failures that there are, the largest first, and what may be asked for."""
    wanted = wanted_of(ask)

    async def grouped(app: App) -> Sequence[HeldGroup]:
        return await app.store.browsing.held_groups(wanted)

    answers = await ask.each(grouped, services_of(ask))
    found = [(name, group) for name, groups in answers.items() for group in groups]
    found.sort(key=lambda each: (-each[1].count.number, each[1].consumer, each[1].fingerprint))
    return {
        "groups": [_group_facts(owner(ask.estate.app(name), group.consumer), group, ask.who) for name, group in found],
        "states": MEANINGS,
        "choices": _choices(ask),
    }


def wanted_of(ask: Ask) -> HeldFilter:
    """What the query asks for, and never more than who asks may see. An empty fingerprint is one: of those that did not fail."""
    given = {name: ask.query[name] for name in FILTERS if ask.query.get(name)}
    if ask.query.get("fingerprint") == "":
        given["fingerprint"] = ""
    state = given.get("state")
    if state is not None and state not in get_args(HeldState):
        raise Refusal(400, f"No held event is ever {state[:40]!r}.{did_you_mean(state, get_args(HeldState))}")
    return msgspec.convert({**given, "tenants": scope(ask.who)}, HeldFilter)


def scope(who: Who) -> Sequence[str] | None:
    """The tenants that somebody may see, as filters take them."""
    return None if who.tenants is None else sorted(who.tenants)


def owner(app: App, consumer: str) -> str:
    """The service of an App whose consumer it is: acts are asked of a service, and know its contracts."""
    owners = [service.name for service in app.services if consumer in app.opened.groups(service)]
    return (*owners, app.services[0].name)[0]


def services_of(ask: Ask) -> list[str] | None:
    """`?service=`; None for all."""
    return [ask.query["service"]] if ask.query.get("service") else None


def line_facts(service: str, line: HeldLine, who: Who, behind: Bounded | None = None) -> dict[str, object]:
    """A held event in a list."""
    return {
        "service": service,
        "id": str(line.id),
        "state": line.state,
        "consumer": line.consumer,
        "type": line.type,
        "topic": line.topic,
        "tenant": line.tenant,
        "key": line.key,
        "sequence": None if line.sequence is None else str(line.sequence),
        "event_id": line.event_id,
        "attempts": line.attempts,
        "first_at": timestamp(line.first_at),
        "last_at": timestamp(line.last_at),
        "next_at": timestamp(line.next_at) if line.state == "retrying" else None,
        "fingerprint": line.fingerprint,
        "error": shown_text(who, line.error or line.reason),
        "behind": behind,
    }


def _group_facts(service: str, group: HeldGroup, who: Who) -> dict[str, object]:
    return {
        "service": service,
        "fingerprint": group.fingerprint,
        "consumer": group.consumer,
        "state": group.state,
        "count": group.count,
        "first_at": timestamp(group.first_at),
        "last_at": timestamp(group.last_at),
        "example": str(group.example),
        "type": group.type,
        "error": shown_text(who, group.error),
    }


def _choices(ask: Ask) -> dict[str, Sequence[str]]:
    apps = ask.estate.apps
    consumers = {name for app in apps for service in app.services for name in app.opened.groups(service)}
    return {
        "services": sorted(app.opened.name for app in apps),
        "consumers": sorted(consumers),
        "states": get_args(HeldState),
        "tenants": sorted(ask.who.tenants or ()),
    }


# One of them.


async def one(ask: Ask) -> object:
    """A held event without its payload: that is asked for apart, since each look at it is kept. Of one that is held no more, what
    became of it, where that is known."""
    held_id = id_of(ask)

    async def facts(app: App) -> dict[str, object]:
        try:
            event = await held_event(app, ask.who, held_id)
        except Refusal:
            if (found := await gone(app, ask, held_id)) is None:
                raise
            became, acts = found
            return {"gone": became, "history": [_action(action, ask.who) for action in acts]}
        return {
            **_facts(owner(app, event.consumer), event, ask.who),
            "state_means": MEANINGS[event.state],
            "line": await _line(app, event, ask.who),
            "neighbours": await _neighbours(app, event, ask.who),
            "history": [_action(action, ask.who) for action in await _history(app, event, ask.who)],
        }

    return await ask.one(ask.path["service"], facts)


async def payload(ask: Ask) -> object:
    """The payload, headers and envelope of a held event; `?unmask=1&why=…` shows what is personal. Either look is kept."""
    held_id, unmask = id_of(ask), ask.query.get("unmask") == "1"

    async def shown(app: App) -> dict[str, object]:
        event = await held_event(app, ask.who, held_id)
        decoded = _decoded(event)
        seen = event.body if isinstance(decoded, str) else decoded
        return {
            "payload": await looked_at(app, ask.who, seen, looking_at(event, ""), unmask=unmask, why=why_of(ask)),
            "headers": shown_headers(ask.who, event.headers),
            "unreadable": decoded if isinstance(decoded, str) and ask.who.payloads else None,
        }

    return await ask.one(ask.path["service"], shown)


def id_of(ask: Ask) -> int:
    """The number of a held event in the path."""
    given = ask.path["id"]
    if not given.isascii() or not given.isdigit() or len(given) > 19:
        raise Refusal(404, f"No held event has the number {given[:40]!r}.")
    return int(given)


async def held_event(app: App, who: Who, held_id: int) -> HeldEvent:
    """One that somebody may see; Refusal 404 where there is none for them."""
    gone = Refusal(
        404,
        f"Nothing is held under the number {held_id} any more.",
        "It was applied, or its number changed as it was run out of order: search for the id of its event.",
    )
    try:
        event = await app.held.get(held_id)
    except DeskError:
        raise gone from None
    if not who.sees(event.entry.tenant):
        raise gone
    return event


def _decoded(event: HeldEvent) -> Event[bytes] | str:
    """The event; or why its bytes are none."""
    try:
        return decode_any(event.headers, event.body)
    except DecodeError as error:
        return str(error)


def _facts(service: str, event: HeldEvent, who: Who) -> dict[str, object]:
    entry, decoded = event.entry, _decoded(event)
    return {
        "service": service,
        "id": str(event.id),
        "state": event.state,
        "consumer": event.consumer,
        "type": event.type,
        "topic": entry.topic,
        "tenant": entry.tenant,
        "key": entry.key,
        "sequence": None if entry.sequence is None else str(entry.sequence),
        "lineage": str(entry.lineage),
        "event_id": entry.event_id,
        "attempts": event.attempts,
        "first_at": timestamp(event.first_at),
        "last_at": timestamp(event.last_at),
        "next_at": timestamp(event.next_at) if event.state == "retrying" else None,
        "fingerprint": event.fingerprint,
        "correlation": event.correlation,
        "size": len(event.body),
        "readable": not isinstance(decoded, str),
        "envelope": None if isinstance(decoded, str) else envelope_text(decoded, who),
        "reason": shown_text(who, event.reason),
        "error": shown_text(who, event.error),
        "stack": shown_text(who, event.stack),
        "payloads": who.payloads,
    }


def envelope_text(event: Event[bytes], who: Who) -> str:
    """What an envelope says, as JSON text, without its payload; what applications put beside it is part of that."""
    said = msgspec.to_builtins(event.with_data(None))
    left_out = () if who.payloads else ("extensions", "metadata", "idempotency_key")
    shown = {name: value for name, value in said.items() if value not in (None, {}) and name not in left_out}
    return msgspec.json.encode(shown).decode()


async def _line(app: App, event: HeldEvent, who: Who) -> Mapping[str, object]:
    """What else is held of its key, in order, and how many wait behind it."""
    entry, browsing = event.entry, app.store.browsing
    if entry.key is None:
        return {"items": [], "more": False, "behind": None, "first": None}
    wanted = HeldFilter(consumer=event.consumer, topic=entry.topic, tenant=entry.tenant, key=entry.key)
    lines = list(await browsing.held(wanted, newest=False, limit=LINE + 1))
    lines.sort(key=lambda line: (line.sequence or 0, line.id))
    mine = [line for line in lines if line.id == event.id]
    behind = (await browsing.waiting_behind(mine)).get(event.id)
    waiting = [line for line in lines if line.state in BLOCKING and line.sequence is not None]
    return {
        "items": [line_facts(app.opened.name, line, who) for line in lines[:LINE]],
        "more": len(lines) > LINE,
        "behind": behind,
        "first": str(waiting[0].id) if waiting else None,
    }


async def _neighbours(app: App, event: HeldEvent, who: Who) -> Mapping[str, str | None]:
    """Those that failed alike, held just before it and just after."""
    wanted = HeldFilter(consumer=event.consumer, state=event.state, fingerprint=event.fingerprint, tenants=scope(who))
    older = await app.store.browsing.held(wanted, after=event.id, limit=1)
    newer = await app.store.browsing.held(wanted, after=event.id, limit=1, newest=False)
    return {
        "older": str(older[0].id) if older else None,
        "newer": str(newer[0].id) if newer else None,
    }


async def _history(app: App, event: HeldEvent, who: Who) -> Sequence[Action]:
    return await app.store.browsing.actions(
        ActionFilter(event_id=event.entry.event_id, tenants=[event.entry.tenant]), limit=HISTORY
    )


def _action(action: Action, who: Who) -> dict[str, object]:
    """What was done, and what it changed; of an edit the values are part of the payload."""
    shown = who.payloads or action.verb != "held edit"
    return {
        "id": action.id,
        "at": timestamp(action.at),
        "verb": action.verb,
        "by": action.by,
        "why": action.why,
        "outcome": action.outcome,
        "target": action.target,
        "changed": [
            {"name": name, "before": _said(before) if shown else None, "after": _said(after) if shown else None}
            for name, (before, after) in action.changed.items()
        ],
    }


def _said(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


PAGES: Mapping[str, Page] = {
    "/held": held,
    "/held/groups": groups,
    "/held/{service}/{id}": one,
    "/held/{service}/{id}/payload": payload,
}
