"""Bulk: the service's own streams, page by page from its store, into a generation that is being built.

Exactly what is read here and what the consumer group brings is settled by versions. The group is made first, so that it
gets whatever is published from then on. Then everything is read. Then, in one statement, the version of every stream is
written down (`cover`), and reading goes on until nothing is left, up to these versions and no further: they were committed
before, so they are all found. What the group brings of a stream is skipped up to its version and fed behind it: nothing
twice, nothing missed, whoever writes or dies meanwhile. Pages and cursor commit together.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import NamedTuple

import msgspec

from posthouse.contracts.versions import lift
from posthouse.errors import (
    CommitUnknown,
    PosthouseError,
    RebuildStopped,
    StoreFull,
    StoreUnavailable,
)
from posthouse.events import PLATFORM, Event, decode_any
from posthouse.events.codecs.own import HEADERS, Kind, OwnReader
from posthouse.processes.projection.ahead import ahead
from posthouse.processes.projection.declared import Projection
from posthouse.processes.projection.feeding import Feed
from posthouse.processes.projection.wiring import Wiring
from posthouse.receiving import Handler
from posthouse.receiving.collisions import despite_collisions
from posthouse.seam.inward import open_data
from posthouse.seam.masking import words_here
from posthouse.store import Transaction
from posthouse.store.projections import Generation, StreamKey
from posthouse.store.streams import BodyPage, StreamEvent, StreamPage

PAGE = 10_000
TURN = 100
"""Events that are decoded before others have a turn."""


class Page(NamedTuple):
    """What is fed in one transaction, up to a cursor. While closing also as it was stored."""

    events: Sequence[Event[object]]
    stored: Sequence[StreamEvent]
    cursor: str


class Bulk:
    """One bulk read. `told` hears how far it is after each page."""

    def __init__(
        self,
        wiring: Wiring,
        projection: Projection,
        generation: Generation,
        told: Callable[[Generation], None],
        live: Generation | None = None,
    ) -> None:
        self._wiring = wiring
        self._projection = projection
        self._told = told
        self._sealed = bool(wiring.seam.before_handler)
        """Whether data has to be fetched or decrypted before it can be read."""
        handlers = wiring.handlers(projection)
        face = wiring.face(projection, generation, live)
        made = {id(handler): Feed(handler, face, wiring.store, wiring.clock) for handler in handlers.values()}
        self._feeds = {subject: made[id(handler)] for subject, handler in handlers.items()}
        self._reader = OwnReader({subject: _kind(handler, subject) for subject, handler in handlers.items()})

    async def run(self, generation: Generation) -> Generation:
        """Read until the group can take over; from where it stood, if it was begun before."""
        if generation.phase == "bulk":
            generation = await self._feed_all(generation)
            if not await self._wiring.store.projections.cover(generation, self._wiring.streams(self._projection)):
                raise lost(generation)
            generation = msgspec.structs.replace(generation, phase="closing")
        if generation.phase == "closing":
            generation = await self._take_over(await self._feed_all(generation))
        return generation

    async def _feed_all(self, generation: Generation) -> Generation:
        with _fewer_collections():
            async with aclosing(ahead(self._pages(generation))) as pages:
                async for page in pages:
                    generation = await self._feed_page(generation, page)
        return generation

    async def _pages(self, generation: Generation) -> AsyncGenerator[Page, None]:
        """All that is there, as the handlers want it: typed, and lifted from older versions if need be."""
        before = generation.cursor
        async with aclosing(ahead(self._found(generation))) as found:
            async for page in found:
                if isinstance(page, BodyPage):
                    yield Page(await self._type_bodies(page.bodies, before), (), page.cursor)
                else:
                    yield Page(await self._type_rows(page.events), page.events, page.cursor)
                before = page.cursor

    async def _found(self, generation: Generation) -> AsyncGenerator[BodyPage | StreamPage, None]:
        """As it is stored: bodies alone, but all of it while closing, when each event is looked up, and where data has to be
        opened."""
        streams, types = self._wiring.store.streams, self._feeds.keys()
        cursor, more, bodies = generation.cursor, True, None
        while more:
            if generation.phase != "closing" and not self._sealed:
                bodies = await streams.read_bodies(HEADERS, cursor, PAGE, types=types)
            page = bodies or await streams.read_all(cursor, PAGE, types=types)
            yield page
            cursor, more = page.cursor, page.more

    async def _type_bodies(self, bodies: Sequence[bytes], before: str) -> Sequence[Event[object]]:
        """Now and then whoever reads or writes gets a turn, or the server would have to wait for us."""
        events = list[Event[object]]()
        try:
            for first in range(0, len(bodies), TURN):
                events += self._reader.events(bodies[first : first + TURN])
                await asyncio.sleep(0)
        except PosthouseError:
            page = await self._wiring.store.streams.read_all(before, PAGE, types=self._feeds.keys())
            await self._type_rows(page.events)  # says which it was
            raise
        return events

    async def _type_rows(self, stored: Sequence[StreamEvent]) -> Sequence[Event[object]]:
        events = list[Event[object]]()
        for place, one in enumerate(stored, 1):
            try:
                if self._sealed:
                    opened = await open_data(self._wiring.seam, decode_any(one.headers, one.body))
                    events.append(self._reader.typed(opened))
                else:
                    events.append(self._reader.event(one.headers, one.body))
            except PosthouseError as error:
                raise RebuildStopped(
                    f"{self._projection.consumer}: version {one.version} of {one.name} cannot be read: {words_here(error)}"
                ) from error
            if place % TURN == 0:
                await asyncio.sleep(0)
        return events

    async def _feed_page(self, generation: Generation, page: Page) -> Generation:
        return await despite_collisions(partial(self._fed, generation, page), self._projection.consumer)

    async def _fed(self, generation: Generation, page: Page) -> Generation:
        store, events = self._wiring.store, page.events
        async with store.begin(tenant=PLATFORM) as tx:
            if generation.phase == "closing":
                events = await self._covered(tx, generation, page)
            for tenant, theirs in self._by_tenant(events):
                await store.projections.turn_to(tx, tenant)
                await self._feed(tx, theirs)
            after = msgspec.structs.replace(generation, cursor=page.cursor, read=generation.read + len(events))
            if not await store.projections.advance(tx, generation, after):
                raise lost(generation)
        self._told(after)
        return after

    async def _take_over(self, generation: Generation) -> Generation:
        after = msgspec.structs.replace(generation, phase="following")
        async with self._wiring.store.begin(tenant=PLATFORM) as tx:
            if not await self._wiring.store.projections.advance(tx, generation, after):
                raise lost(generation)
        return after

    async def _covered(self, tx: Transaction, generation: Generation, page: Page) -> Sequence[Event[object]]:
        """Those that it was settled to read in bulk."""
        upto: dict[StreamKey, int] = {}
        for tenant in sorted({one.tenant for one in page.stored}):
            keys = sorted({(tenant, one.aggregate, one.stream) for one in page.stored if one.tenant == tenant})
            await self._wiring.store.projections.turn_to(tx, tenant)
            upto |= await self._wiring.store.projections.covered(tx, generation.projection, generation.number, keys)
        return [
            event
            for one, event in zip(page.stored, page.events, strict=True)
            if one.version <= upto.get((one.tenant, one.aggregate, one.stream), 0)
        ]

    def _by_tenant(self, events: Sequence[Event[object]]) -> Sequence[tuple[str, Sequence[Event[object]]]]:
        """A model of all tenants has them together; any other one after the other."""
        if self._projection.terms.cross_tenant:
            return [(PLATFORM, events)]
        if len(tenants := {event.tenant for event in events}) == 1:
            return [(tenants.pop(), events)]
        lists: dict[str, list[Event[object]]] = {}
        for event in events:
            lists.setdefault(event.tenant, []).append(event)
        return list(lists.items())

    async def _feed(self, tx: Transaction, events: Sequence[Event[object]]) -> None:
        for feed, batch in batches([self._feeds[event.type] for event in events], events):
            try:
                await feed.feed(batch, tx)
            except (StoreUnavailable, StoreFull, CommitUnknown):
                raise
            except Exception as error:
                raise RebuildStopped(
                    f"{self._projection.consumer}: {feed.name} failed on {_place(batch)}: {type(error).__name__}: "
                    f"{words_here(error, *batch)}. "
                    "Mend it and run the rebuild again: it goes on before this page"
                ) from error


def batches(feeds: Sequence[Feed], events: Sequence[Event[object]]) -> Sequence[tuple[Feed, Sequence[Event[object]]]]:
    """As few lists as the order of keys allows, each for one handler. What two handlers take of one key stays in order:
    each change of hands is one level further down."""
    different = set(feeds)
    if len(different) <= 1:
        return [(feed, events) for feed in different]
    levels: dict[tuple[str, str | None], tuple[int, Feed]] = {}
    found: dict[tuple[int, int], tuple[Feed, list[Event[object]]]] = {}
    for feed, event in zip(feeds, events, strict=True):
        key = (event.tenant, event.key)
        level, last = levels.get(key, (0, feed))
        level += last is not feed
        levels[key] = (level, feed)
        found.setdefault((level, id(feed)), (feed, []))[1].append(event)
    return [found[place] for place in sorted(found, key=lambda place: place[0])]


def lost(generation: Generation) -> RebuildStopped:
    """Somebody else has taken it over, or given it up."""
    return RebuildStopped(
        f"{generation.projection}: generation {generation.number} is not ours to build any more: another process has taken "
        "it over or dropped it, or a server took over that lacks the last pages: see `posthouse projection status`"
    )


@contextmanager
def _fewer_collections() -> Iterator[None]:
    """All events of a page live until it is fed: looking for garbage among them after every 700 costs a quarter of the
    time. Whoever set another threshold meanwhile keeps it."""
    before = gc.get_threshold()
    patient = (max(before[0], 10 * PAGE) if before[0] else 0, *before[1:])
    gc.set_threshold(*patient)
    try:
        yield
    finally:
        if gc.get_threshold() == patient:
            gc.set_threshold(*before)


def _kind(handler: Handler, subject: str) -> Kind:
    payload = next(known.payload for known in handler.event_types if known.name == subject)
    steps = handler.lifts.get(subject)
    if steps is None:
        return Kind(payload.decode, payload.plain)
    return Kind(lambda data: lift(steps, payload.decode(data)))


def _place(batch: Sequence[Event[object]]) -> str:
    if len(batch) == 1:
        return f"the event {batch[0].id}"
    return f"{len(batch):,} events from {batch[0].id} to {batch[-1].id}"
