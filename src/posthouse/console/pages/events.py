"""Events: found by id, key or correlation; and one of them with all that it led to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from posthouse.app import App, app_of
from posthouse.console.access.who import Who
from posthouse.console.asking import Ask, Page, Refusal
from posthouse.console.estate import Estate
from posthouse.console.pages.held import envelope_text, line_facts, scope
from posthouse.console.showing import looked_at, shown_text, why_of
from posthouse.console.turns import Turns
from posthouse.errors import DecodeError
from posthouse.events import Event, decode_any, timestamp
from posthouse.receiving import dead_letter_topic
from posthouse.seam.frames import frame_of
from posthouse.service import Service
from posthouse.store import HeldFilter, OutboxRow
from posthouse.store.actions import Action
from posthouse.store.browsing import HeldLine, OutboxFilter
from posthouse.store.sagas import SagaFilter, SagaRow
from posthouse.tracing import Branch, Heard, Spot, Trace, trace

LONGEST_ID = 512
FOUND = 20
"""How many of each kind a search shows."""
WITHIN = 5.0
"""Seconds for each log and each store that a trace looks through."""

DEAD_LETTERS = dead_letter_topic("")
"""How the topics of copies end: what they are copies of is shown."""


class _Found(msgspec.Struct):
    """What one store knows of a text."""

    held: dict[int, HeldLine]
    rows: dict[int, OutboxRow]
    sagas: Sequence[SagaRow]
    unseen: bool
    """There are older rows in the outbox that were not looked at."""


async def search(ask: Ask) -> object:
    """What the stores have under a text: an id, a key, a correlation, a saga's id. Whole texts only; nothing in payloads is searched."""
    text = ask.query.get("q", "").strip()
    if not text:
        return {"q": "", "events": [], "held": [], "keys": [], "sagas": [], "notes": []}
    if len(text) > LONGEST_ID:
        raise Refusal(400, f"No id and no key is longer than {LONGEST_ID} characters.")
    tenants = scope(ask.who)

    async def found(app: App) -> _Found:
        browsing = app.store.browsing
        held: dict[int, HeldLine] = {}
        for wanted in (
            HeldFilter(event_id=text, tenants=tenants),
            HeldFilter(key=text, tenants=tenants),
            HeldFilter(correlation=text, tenants=tenants),
        ):
            held |= {line.id: line for line in await browsing.held(wanted, limit=FOUND)}
        by_id = await browsing.outbox(OutboxFilter(event_id=text, tenants=tenants), limit=FOUND)
        by_key = await browsing.outbox(OutboxFilter(key=text, tenants=tenants), limit=FOUND)
        sagas = {
            row.number: row
            for wanted in (SagaFilter(id=text, tenants=tenants), SagaFilter(correlation=text, tenants=tenants))
            for row in await browsing.sagas(wanted, limit=FOUND)
        }
        rows = {row.id: row for row in (*by_id.rows, *by_key.rows) if not row.topic.endswith(DEAD_LETTERS)}
        return _Found(held, rows, list(sagas.values()), by_id.after is not None or by_key.after is not None)

    return _search_facts(text, await ask.each(found), ask.who)


def _search_facts(text: str, answers: Mapping[str, _Found], who: Who) -> dict[str, object]:
    keys: dict[tuple[str, str, str], set[str]] = {}
    for name, found in answers.items():
        for topic, tenant, key in (
            *((line.topic, line.tenant, line.key) for line in found.held.values()),
            *((row.topic, row.tenant, row.key) for row in found.rows.values()),
        ):
            if key == text:
                keys.setdefault((topic, tenant, key), set()).add(name)
    return {
        "q": text,
        "events": [_row_facts(name, row) for name, found in answers.items() for row in found.rows.values()],
        "held": [line_facts(name, line, who) for name, found in answers.items() for line in found.held.values()],
        "keys": [{"topic": topic, "tenant": tenant, "key": key} for topic, tenant, key in sorted(keys)],
        "sagas": [
            {
                "service": name,
                "saga": row.saga,
                "id": row.id,
                "tenant": row.tenant,
                "attempt": row.attempt,
                "status": row.status,
                "started_at": timestamp(row.started_at),
            }
            for name, found in answers.items()
            for row in found.sagas
        ],
        "notes": [
            f"{name} has older rows in its outbox that were not looked at: the trace reads the broker's log"
            for name, found in answers.items()
            if found.unseen
        ],
    }


def _row_facts(service: str, row: OutboxRow) -> dict[str, object]:
    event = _event_of(row)
    return {
        "service": service,
        "id": row.event_id,
        "type": event.type if event else "",
        "at": event.time if event else None,
        "correlation": event.correlation if event else None,
        "topic": row.topic,
        "tenant": row.tenant,
        "key": row.key,
        "sequence": None if row.sequence is None else str(row.sequence),
    }


def _event_of(row: OutboxRow) -> Event[bytes] | None:
    frame = frame_of(row)
    try:
        return decode_any(frame.headers, frame.body)
    except DecodeError:
        return None


# One event, and all that it led to.


class Traces:
    """Each reads logs and outboxes through, so that a few at a time are as many as others bear."""

    def __init__(self, estate: Estate) -> None:
        self.turns = Turns(each=3, of_all=8, what="traces")

    async def aclose(self) -> None:
        """There is nothing to close."""


async def one(ask: Ask) -> object:
    """The causal tree that an event or a correlation belongs to, as far as logs and stores still tell."""
    identifier = ask.path["id"]
    if len(identifier) > LONGEST_ID:
        raise Refusal(404, f"No event has an id of more than {LONGEST_ID} characters.")
    async with ask.estate.part(Traces).turns.taken(ask.who.name):
        found = await trace(await _within_reach(ask), identifier, within=WITHIN, tenants=ask.who.tenants)
    return _trace_facts(found, identifier, ask.who)


async def _within_reach(ask: Ask) -> list[Service]:
    """The services whose stores answer."""

    async def services(app: App) -> Sequence[Service]:
        return app.services

    return [service for found in (await ask.each(services)).values() for service in found]


def _trace_facts(found: Trace, identifier: str, who: Who) -> dict[str, object]:
    seen = [branch for branch in found.branches if who.sees(branch.spot.event.tenant)]
    notes = list(found.notes)
    if who.tenants is not None:
        notes.append("events of tenants that you may not see are left out, if there are any")
    return {
        "id": identifier,
        "correlation": found.correlation,
        "services": sorted({branch.spot.service for branch in seen}),
        "frames_read": found.read,
        "since": None if found.since is None else timestamp(found.since),
        "notes": notes,
        "events": [_branch_facts(branch, found, who) for branch in seen],
    }


def _branch_facts(branch: Branch, found: Trace, who: Who) -> dict[str, object]:
    spot, event = branch.spot, branch.spot.event
    return {
        "id": event.id,
        "type": event.type,
        "service": spot.service,
        "at": timestamp(spot.at),
        "tenant": event.tenant,
        "key": event.key,
        "sequence": None if event.sequence is None else str(event.sequence),
        "lineage": str(event.lineage),
        "topic": spot.topic,
        "causation": event.causation,
        "correlation": event.correlation,
        "missing_cause": branch.cause,
        "depth": branch.depth,
        "last": branch.last,
        "has_children": branch.has_children,
        "place": spot.place,
        "refused_because": shown_text(who, spot.note),
        "deadline": found.deadlines.get(event.id),
        "consumers": [_heard_facts(heard, who) for heard in found.heard.get(event.id, ())],
    }


def _heard_facts(heard: Heard, who: Who) -> dict[str, object]:
    saga = heard.saga
    return {
        "service": heard.service,
        "consumer": heard.consumer,
        "handler": heard.handler,
        "state": heard.state,
        "held": None if heard.held is None else str(heard.held),
        "note": shown_text(who, heard.note),
        "saga": None
        if saga is None
        else {
            "saga": saga.saga,
            "id": saga.id,
            "turn": saga.turn,
            "attempt": saga.attempt,
            "method": saga.method,
            "status": saga.status,
            "late": saga.late,
        },
    }


async def payload(ask: Ask) -> object:
    """Envelope and payload of an event, wherever it is found; `?unmask=1&why=…` shows what is personal. Either look is kept."""
    identifier, unmask = ask.path["id"], ask.query.get("unmask") == "1"
    services = await _within_reach(ask)
    async with ask.estate.part(Traces).turns.taken(ask.who.name):
        found = await trace(services, identifier, within=WITHIN, tenants=ask.who.tenants)
    spots = [branch.spot for branch in found.branches if branch.spot.event.id == identifier]
    if not spots or not ask.who.sees(spots[0].event.tenant):
        raise Refusal(404, "This event was not found.", "No log, outbox, timer or held event here has it any more.")
    spot = spots[0]
    app = _knows(services, spot)
    payload = await looked_at(app, ask.who, spot.event, _look_at(spot), unmask=unmask, why=why_of(ask))
    return {"envelope": envelope_text(spot.event, ask.who), "payload": payload}


def _knows(services: Sequence[Service], spot: Spot) -> App:
    """The App that said it, else one that has its contract: there the look is kept."""
    said = [service for service in services if service.name == spot.service]
    known = [service for service in services if service.declared.catalogue.get(spot.event.type) is not None]
    return app_of((*(service for service in said if service in known), *known, *said, *services)[0])


def _look_at(spot: Spot) -> Action:
    event = spot.event
    return Action(
        verb="",
        target=f"event {event.id}",
        topic=spot.topic,
        tenant=event.tenant,
        key=event.key or "",
        event_id=event.id,
    )


PAGES: Mapping[str, Page] = {"/events": search, "/events/{id}": one, "/events/{id}/payload": payload}
