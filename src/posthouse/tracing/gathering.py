"""Gathering: the events of one correlation, from every place that may have them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager

import msgspec

from posthouse.app import App, apps_of
from posthouse.broker import Broker
from posthouse.errors import BrokerError, StoreError
from posthouse.history.log import refusal, stored
from posthouse.receiving import dead_letter_topic
from posthouse.redaction import words_of
from posthouse.seam.frames import frame_of
from posthouse.service import Service
from posthouse.store import WAITED, HeldEvent, HeldFilter, OutboxRow
from posthouse.tracing.spot import Place, Spot
from posthouse.tracing.wanted import Wanted

PAGE = 2000
MOST_TIMERS = 1_000_000

_DEAD_LETTERS = dead_letter_topic("")


class Gathered(msgspec.Struct, kw_only=True):
    """What was found, by id. `held` are the held events of it. `notes` say which places could not be looked
    into; `read` counts the frames that were."""

    spots: dict[str, Spot] = msgspec.field(default_factory=dict)
    held: list[HeldEvent] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    read: int = 0

    def add(self, spot: Spot) -> None:
        """The first place stays, so look into the log first; a repeated frame is one event."""
        known = self.spots.setdefault(spot.event.id, spot).event
        if known.tenant != spot.event.tenant:
            note = f"{spot.event.tenant} has an event with the id {known.id} too, which is left out: this is that of {known.tenant}"
            if note not in self.notes:
                self.notes.append(note)


async def gather(
    services: Sequence[Service], wanted: Wanted, since: float | None, within: float | None = None
) -> Gathered:
    """Look into the logs of the brokers, then into what the stores still have. With `within`, each of them for so many seconds
    at most: what was not seen by then, or is away, is said in the notes."""
    found = Gathered()
    for broker, topics in _logs(services):
        if (why := refusal(broker)) is not None:
            found.notes.append(f"{why}. Looked into outboxes, held events and timers only")
            continue
        async with _bounded(found, f"the log of {broker.sheet.name}", within):
            await _from_log(found, broker, topics, wanted, since)
    for app in apps_of(services):
        async with _bounded(found, f"the store of {app.opened.name}", within):
            await _from_store(found, app, wanted)
    return found


@asynccontextmanager
async def _bounded(found: Gathered, place: str, within: float | None) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(within):
            yield
    except TimeoutError:
        found.notes.append(f"{place} was looked through for {within:g} s and then left: there may be more in it")
    except (BrokerError, StoreError) as error:
        if within is None:
            raise
        found.notes.append(f"{place} could not be looked into: {words_of(error)}")


def _logs(services: Sequence[Service]) -> list[tuple[Broker, Sequence[str]]]:
    """Each broker once, with the topics of all services on it; dead letters are copies."""
    brokers: dict[object, tuple[Broker, set[str]]] = {}
    for app in apps_of(services):
        url = app.opened.ports.broker_url
        _, topics = brokers.setdefault(url if "://" in url else id(app.broker), (app.broker, set()))
        topics.update(topic for topic in app.opened.topology().topics if not topic.endswith(_DEAD_LETTERS))
    return [(broker, sorted(topics)) for broker, topics in brokers.values()]


async def _from_log(
    found: Gathered, broker: Broker, topics: Sequence[str], wanted: Wanted, since: float | None
) -> None:
    async with aclosing(stored(broker, topics, since)) as deliveries:
        async for delivery in deliveries:
            found.read += 1
            frame = delivery.frame
            if (spot := _spot(wanted, frame.topic, frame.headers, frame.body, "log", delivery.stored_at)) is not None:
                found.add(spot)


async def _from_store(found: Gathered, app: App, wanted: Wanted) -> None:
    refused = {stuck.row.id: stuck.error for stuck in await app.store.outbox.stuck()}
    async for row in _rows(app):
        place: Place = "refused" if row.id in refused else "outbox"
        if (spot := _of_row(wanted, row, place, 0.0)) is not None:
            found.add(msgspec.structs.replace(spot, note=refused.get(row.id, "")))
    for timer in await app.store.timers.pending(limit=MOST_TIMERS):
        if (spot := _of_row(wanted, timer.row, "timer", timer.due_at)) is not None:
            found.add(msgspec.structs.replace(spot, at=timer.due_at))
    async for held in _held(app, wanted):
        entry = held.entry
        if (spot := _spot(wanted, entry.topic, held.headers, held.body, "held", held.first_at)) is not None:
            found.add(spot)
            found.held.append(held)


async def _held(app: App, wanted: Wanted) -> AsyncIterator[HeldEvent]:
    """Those that may be of it, each once, by what a store finds at once: there may be millions of others."""
    seen: set[int] = set()
    tenants = None if wanted.tenants is None else sorted(wanted.tenants)
    names = [name for id in wanted.ids for name in (id, f"{id}{WAITED}")]
    for asked in (
        HeldFilter(correlation=wanted.correlation, tenants=tenants),
        *(HeldFilter(event_id=name, tenants=tenants) for name in names),
    ):
        async for held in app.held.find(asked):
            if held.id not in seen:
                seen.add(held.id)
                yield held


async def _rows(app: App) -> AsyncIterator[OutboxRow]:
    after = 0
    while page := await app.store.outbox.kept(after, PAGE):
        for row in page:
            yield row
        after = page[-1].id


def _of_row(wanted: Wanted, row: OutboxRow, place: Place, at: float) -> Spot | None:
    if wanted.match(row.headers, row.body) is None:
        return None
    frame = frame_of(row)  # with the number that the store gave it
    return _spot(wanted, row.topic, frame.headers, frame.body, place, at)


def _spot(wanted: Wanted, topic: str, headers: Mapping[str, str], body: bytes, place: Place, at: float) -> Spot | None:
    event = wanted.match(headers, body)
    if event is None:
        return None
    try:
        said = event.occurred_at.timestamp() if event.time else at
    except ValueError:
        said = at
    return Spot(event=event, topic=topic, place=place, at=said)
