"""Rebuilding: a new generation beside the live one, filled from the beginning, then swapped in."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import msgspec

from posthouse.broker import Progress as BrokerProgress
from posthouse.broker import Topology
from posthouse.clock import new_id
from posthouse.errors import (
    BrokerError,
    CommitUnknown,
    ConfigurationError,
    RebuildStopped,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from posthouse.events import PLATFORM
from posthouse.processes.projection.bulk import Bulk, lost
from posthouse.processes.projection.clearing import clear_lost
from posthouse.processes.projection.declared import Projection
from posthouse.processes.projection.effects import declared_alone
from posthouse.processes.projection.feeding import Face
from posthouse.processes.projection.model import Founding, Model, Swap
from posthouse.processes.projection.wiring import Member, Wiring
from posthouse.pulse import Pulse
from posthouse.receiving.collisions import despite_collisions
from posthouse.receiving.handler import name_of
from posthouse.seam.context import EventContext
from posthouse.store import HeldState, Transaction
from posthouse.store.projections import Generation, Phase

LEASE = 30.0
"""Seconds for which nobody else goes on with a rebuild whose process has died."""

LOOK = 0.1
"""Seconds between two looks at how far the group is."""

UNSOLVED: frozenset[HeldState] = frozenset(("retrying", "gap", "blocked", "dead"))


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How to rebuild. `source` None: from the service's own streams where all its events are in there, else from the
    broker's log. `partial` accepts a log whose beginning is gone, `with_held` a model in which events are missing that its
    handlers could not apply. The generation before may go `drop_after` seconds after the swap; None keeps it."""

    source: Literal["log", "streams"] | None = None
    drop_after: float | None = 60.0
    partial: bool = False
    with_held: bool = False


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a rebuild is: `done` of `total` events, after so many `seconds` of this run, `fresh` of them in this run."""

    generation: int
    phase: Phase
    done: int
    total: int
    fresh: int
    seconds: float

    @property
    def rate(self) -> float:
        """Events per second in this run."""
        return self.fresh / self.seconds if self.seconds > 0 else 0.0


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a rebuild. `events` counts what was read in bulk, or from the log, over all its runs."""

    projection: str
    generation: int
    replaced: int | None
    source: str
    events: int
    seconds: float
    kept: bool


class Rebuild:
    """One run of a rebuild. It may end at any moment, by a crash too: the next run goes on where this one was."""

    def __init__(
        self, wiring: Wiring, projection: Projection, plan: Plan, told: Callable[[Progress], None] | None = None
    ) -> None:
        self._wiring = wiring
        self._projection = projection
        self._plan = plan
        self._told = told
        self._owner = f"{socket.gethostname()}-{os.getpid()}-{new_id()[-6:]}"
        self._began = wiring.clock.now()
        self._total = 0
        self._over = asyncio.Event()
        """The lease is renewed no further: it ends with the swap."""
        self._before: int | None = None
        """How many events were done before this run."""

    async def run(self) -> Rebuilt:
        """Build, catch up, swap."""
        rows = [row for row in await self._wiring.store.projections.generations() if self._is_ours(row)]
        live = next((row for row in rows if row.state == "live"), None)
        generation = await self._taken(rows)
        async with self._leased(generation) as watched:
            events = await watched(self._built(generation, live))
        return Rebuilt(
            projection=self._projection.name,
            generation=generation.number,
            replaced=None if live is None else live.number,
            source=generation.source,
            events=events,
            seconds=self._wiring.clock.now() - self._began,
            kept=self._plan.drop_after is None,
        )

    def _is_ours(self, row: Generation) -> bool:
        return row.projection == self._projection.consumer

    # Which generation.

    async def _taken(self, rows: list[Generation]) -> Generation:
        """The generation to build: the one that was begun, or a new one."""
        begun = next((row for row in rows if row.state == "building"), None)
        if begun is None:
            begun = await self._new()
        else:
            self._refuse_another(begun)
            await self._refuse_gone(begun)
        if not await self._wiring.store.projections.lease(begun.projection, begun.number, self._owner, LEASE):
            raise RebuildStopped(
                f"{begun.projection}: generation {begun.number} is being built by {begun.owner or 'another process'}: wait "
                f"for it, or, if that process is gone, try again in {LEASE:.0f} s"
            )
        return await self._as_it_stands(begun)

    async def _as_it_stands(self, begun: Generation) -> Generation:
        """Now that it is ours: whoever had it before may have gone on since it was looked at."""
        for row in await self._wiring.store.projections.generations():
            if (row.projection, row.number, row.owner) == (begun.projection, begun.number, self._owner):
                return row
        raise lost(begun)

    def _refuse_another(self, begun: Generation) -> None:
        wanted, drop = self._plan.source, f"drop it first: `posthouse projection drop … {self._projection.name}`"
        declared = self._projection.terms.version
        problems = []
        if begun.version != declared:
            problems.append(f"it was begun by version {begun.version}, this is version {declared}: {drop}")
        if wanted is not None and wanted != begun.source:
            problems.append(f"it was begun from the {begun.source}, not from the {wanted}: {drop}")
        if problems:
            name = self._projection.consumer
            raise ConfigurationError(*(f"{name}: generation {begun.number}: {problem}" for problem in problems))

    async def _new(self) -> Generation:
        source = self._plan.source or ("streams" if not self._outside() else "log")
        cut = False
        if source == "streams":
            self._refuse_outside()
        else:
            cut = await self._refuse_short_log(self._projection.group(0))  # as a group that is new would find it
        async with self._wiring.store.begin(tenant="platform") as tx:
            generation = Generation(
                projection=self._projection.consumer,
                number=await self._wiring.store.projections.number(tx, self._projection.consumer),
                version=self._projection.terms.version,
                source=source,
                owner=self._owner,
                history="partial" if cut else "whole",
                effects=self._projection.effects,
            )
            founded = await found(tx, self._wiring, self._projection, generation)
        if founded is None:
            raise RebuildStopped(f"{generation.projection}: another process has just begun a rebuild: see its status")
        return founded

    def _outside(self) -> list[str]:
        """Events that feed it and are in no stream of this service."""
        aggregates = self._wiring.aggregates(self._projection)
        return sorted(name for name in self._wiring.handlers(self._projection) if name not in aggregates)

    def _refuse_outside(self) -> None:
        if outside := self._outside():
            raise ConfigurationError(
                f"{self._projection.consumer} cannot be rebuilt from streams, as these events are in no aggregate of this "
                f"service: {', '.join(outside)}. Rebuild it from the broker's log"
            )

    async def _refuse_gone(self, begun: Generation) -> None:
        """A rebuild that stood still goes on only where its group finds everything that it has not read yet."""
        if begun.phase == "begun" or self._plan.partial:
            return
        topics = self._wiring.topics(self._projection)
        progress = await self._wiring.broker.progress(self._projection.group(begun.number), topics)
        if gone := [topic for topic in topics if progress[topic].dropped]:
            raise self._lacking(begun, gone)

    def _lacking(self, generation: Generation, topics: Sequence[str]) -> RebuildStopped:
        return RebuildStopped(
            f"{generation.projection}: the broker has dropped events of {', '.join(topics)} that generation {generation.number} "
            "had not read: drop it and begin anew (`posthouse projection drop …`), or accept what is left with --partial"
        )

    async def _refuse_short_log(self, group: str) -> bool:
        """A log that is not there, or whose beginning is gone, cannot make the model anew. Whether it is accepted as it is."""
        broker, name = self._wiring.broker, self._projection.consumer
        topics = self._wiring.topics(self._projection)
        instead = (
            "its events are all in streams of this service: rebuild it with --from streams"
            if not self._outside()
            else "let the owner of the events say them again, or feed the new tables from a copy of its data"
        )
        if not broker.sheet.history:
            raise ConfigurationError(
                f"{name} cannot be rebuilt from the log: the {broker.sheet.name} broker keeps none; {instead}"
            )
        await broker.ensure(Topology(topics=topics))
        progress = await broker.progress(group, topics)
        cut = [topic for topic in topics if progress[topic].truncated]
        if cut and not self._plan.partial:
            raise ConfigurationError(
                f"{name} would be rebuilt in part only: the broker has dropped the oldest events of {', '.join(cut)}; "
                f"{instead}; or accept what is left with --partial"
            )
        return bool(cut)

    # How it is filled.

    async def _built(self, generation: Generation, live: Generation | None) -> int:
        generation = await self._with_group(generation)
        if generation.source == "streams":
            self._before = generation.read
            self._total = await self._wiring.store.projections.extent(self._wiring.streams(self._projection))
            generation = await Bulk(self._wiring, self._projection, generation, self._tell_of_pages, live).run(
                generation
            )
        member = await self._wiring.member(self._projection, generation, live)
        member.begin(_once)
        try:
            done = await self._followed(member, generation, live)
            self._over.set()
            await despite_collisions(partial(self._swap, generation, member.face), self._projection.consumer)
            member.face.live = True
        finally:
            await member.end()
            if not member.face.live:
                await self._clear_if_lost(generation)
        return generation.read if generation.source == "streams" else done

    async def _swap(self, generation: Generation, face: Face) -> None:
        """One transaction: whoever reads sees the other generation, what was left to this moment is said, and those who want
        to hear of it do."""
        wiring, projection = self._wiring, self._projection
        async with wiring.seam.transaction(projection.service, wiring.store.begin(tenant=PLATFORM)) as tx:
            rows = [row for row in await wiring.store.projections.generations() if self._is_ours(row)]
            before = next((row for row in rows if row.state == "live"), None)
            if not await wiring.store.projections.swap(tx, generation, self._plan.drop_after):
                raise lost(generation)
            if face.effects is not None:
                await face.effects.say_left(tx)
            if projection.swappers:
                await self._tell_swappers(tx, generation, before)

    async def _tell_swappers(self, tx: Transaction, generation: Generation, before: Generation | None) -> None:
        projection = self._projection
        swap = Swap(
            projection=projection.name,
            generation=generation.number,
            version=generation.version,
            replaced=None if before is None else before.number,
            replaced_version=None if before is None else before.version,
        )
        speaking = self._wiring.speaks(projection.service, tx, EventContext(tenant=PLATFORM))
        model = Model(
            projection.name,
            generation.number,
            speaking,
            tables=generation.tables,
            publish=declared_alone(projection, speaking.publish),
            live=True,
        )
        for swapper in projection.swappers:
            try:
                await swapper(model, swap)
            except (StoreUnavailable, StoreFull, CommitUnknown):
                raise
            except Exception as error:
                raise RebuildStopped(
                    f"{projection.consumer}: nothing was swapped, as {name_of(swapper)} failed: {type(error).__name__}. "
                    "Mend it and run the rebuild again: it goes on at the swap"
                ) from error
        await speaking.finish()

    async def _clear_if_lost(self, generation: Generation) -> None:
        """A server that took over may know nothing of it: then what its group holds is nobody's."""
        with contextlib.suppress(StoreError, BrokerError):
            rows = await self._wiring.store.projections.generations()
            if (generation.projection, generation.number) not in {(row.projection, row.number) for row in rows}:
                await clear_lost(self._wiring, self._projection, generation.number)

    async def _with_group(self, generation: Generation) -> Generation:
        """Its consumer group, at the beginning of the log, or at its end where the streams come first."""
        if generation.phase != "begun":
            return generation
        group, topics = self._projection.group(generation.number), self._wiring.topics(self._projection)
        await self._wiring.broker.ensure(Topology(groups={group: topics}))
        if generation.source == "streams":
            stream = await self._wiring.broker.subscribe(group, topics, start="latest")
            await stream.aclose()
        after = msgspec.structs.replace(generation, phase="bulk" if generation.source == "streams" else "following")
        async with self._wiring.store.begin(tenant="platform") as tx:
            if not await self._wiring.store.projections.advance(tx, generation, after):
                raise lost(generation)
        return after

    async def _followed(self, member: Member, generation: Generation, live: Generation | None) -> int:
        """Until it is as far as the live one; how many events its group has read."""
        topics, broker = self._wiring.topics(self._projection), self._wiring.broker
        while True:
            member.refuse_failed()
            theirs = {} if live is None else await broker.progress(self._projection.group(live.number), topics)
            mine = await broker.progress(member.consumer.name, topics)
            if not self._plan.partial and (gone := [topic for topic in topics if mine[topic].dropped]):
                raise self._lacking(generation, gone)
            pending = sum(one.pending for one in mine.values())
            read = sum(one.stored for one in mine.values()) - pending
            if generation.source == "log":
                self._tell(generation, read, read + pending)
            if is_as_far(mine, theirs) and (self._plan.with_held or not await self._unsolved(member.consumer.name)):
                return read
            await asyncio.sleep(LOOK)

    async def _unsolved(self, group: str) -> bool:
        """Whether events are held that may still be applied. Raises RebuildStopped for those that will not."""
        counts = await self._wiring.store.counts()
        held: Mapping[HeldState, int] = {}
        for (consumer, _, state), number in counts.held.items():
            if consumer == group:
                held = {**held, state: held.get(state, 0) + number}
        if held.get("dead"):
            raise RebuildStopped(
                f"{group}: {held['dead']:,} events are dead, so that the new generation would lack them: see `posthouse held "
                f"list --consumer {group}`, mend and retry or skip them, and run the rebuild again; or accept it with --with-held"
            )
        return any(held.get(state) for state in UNSOLVED)

    # Who else is told.

    def _tell_of_pages(self, generation: Generation) -> None:
        self._tell(generation, generation.read, max(self._total, generation.read))

    def _tell(self, generation: Generation, done: int, total: int) -> None:
        if self._before is None:
            self._before = done
        if self._told is not None:
            self._told(
                Progress(
                    generation=generation.number,
                    phase=generation.phase,
                    done=done,
                    total=total,
                    fresh=done - self._before,
                    seconds=self._wiring.clock.now() - self._began,
                )
            )

    @contextlib.asynccontextmanager
    async def _leased(self, generation: Generation) -> AsyncIterator[Callable[[Awaitable[int]], Awaitable[int]]]:
        """Renew the lease while the work goes on; the work ends when it is lost, and the lease when the work does."""
        table, place = self._wiring.store.projections, (generation.projection, generation.number, self._owner)

        async def renew() -> None:
            while not await self._wiring.clock.wait(self._over, LEASE / 3):
                if not await table.lease(*place, LEASE) and not self._over.is_set():
                    raise lost(generation)

        async def watched(work: Awaitable[int]) -> int:
            working, renewing = asyncio.ensure_future(work), asyncio.ensure_future(renew())
            renewing.add_done_callback(lambda task: working.cancel() if _error(task) else None)
            try:
                return await working
            except asyncio.CancelledError:
                if (error := _error(renewing)) is not None:
                    raise error from None
                raise
            finally:
                self._over.set()
                await asyncio.gather(renewing, return_exceptions=True)

        try:
            yield watched
        finally:
            await table.lease(*place, 0.0)


def is_as_far(mine: Mapping[str, BrokerProgress], theirs: Mapping[str, BrokerProgress]) -> bool:
    """Whether, in each topic and in each of its partitions, nothing is left to read, or no more than another group has left:
    whoever reads goes back nowhere. The other one is looked at first: it only gets on."""
    return all(_is_as_far(one, theirs.get(topic)) for topic, one in mine.items())


def _is_as_far(mine: BrokerProgress, theirs: BrokerProgress | None) -> bool:
    if mine.pending == 0:
        return True
    if theirs is None:
        return False
    if mine.behind is None or theirs.behind is None:
        return mine.pending <= theirs.pending
    return len(mine.behind) == len(theirs.behind) and all(
        ours <= other for ours, other in zip(mine.behind, theirs.behind, strict=True)
    )


async def found(tx: Transaction, wiring: Wiring, projection: Projection, generation: Generation) -> Generation | None:
    """Add a generation and make its tables, in one transaction; None when another process was faster."""
    if not await wiring.store.projections.begin(tx, generation):
        return None
    model = Founding(projection.name, generation.number, tx)
    for founder in projection.founders:
        await founder(model)
    await wiring.store.projections.name_tables(tx, generation.projection, generation.number, model.made)
    return msgspec.structs.replace(generation, tables=tuple(model.made))


async def _once(name: str, run: Callable[[asyncio.Event], Awaitable[None]], stop: asyncio.Event, pulse: Pulse) -> None:
    """A rebuild that fails says so and ends; it can be run again."""
    await run(stop)


def _error(task: asyncio.Future[None]) -> BaseException | None:
    """What a task ended with, if it has ended."""
    return task.exception() if task.done() and not task.cancelled() else None
