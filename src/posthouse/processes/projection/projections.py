"""Projections: the read models of one service: what is declared, which generations there are, and what to do with them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec

from posthouse.errors import BrokerError, ConfigurationError, RebuildStopped, StoreUnavailable, did_you_mean
from posthouse.operators import Act, OperatorsLog
from posthouse.processes.projection.clearing import clear
from posthouse.processes.projection.declared import Projection
from posthouse.processes.projection.freshness import Freshness, freshness
from posthouse.processes.projection.keeping import Keeper
from posthouse.processes.projection.rebuilding import Plan, Progress, Rebuild, Rebuilt, found
from posthouse.processes.projection.wiring import Wiring
from posthouse.receiving import Consumer
from posthouse.store import BLOCKING, Action, Counts
from posthouse.store.projections import Generation

TRIES, PAUSE = 50, 0.1
"""How often, and with how many seconds between, a generation is tried to be cleared away when an operator asks for it."""


class GenerationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A generation with its consumer group and its figures."""

    generation: Generation
    group: str
    freshness: Freshness


class ProjectionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A projection as it stands. `version` is that of the code at hand: it feeds a generation of the same version only."""

    name: str
    consumer: str
    version: int
    cross_tenant: bool
    generations: Sequence[GenerationStatus]

    @property
    def live(self) -> GenerationStatus | None:
        """The generation that is read."""
        return next((one for one in self.generations if one.generation.state == "live"), None)

    @property
    def building(self) -> GenerationStatus | None:
        """The generation that is being built."""
        return next((one for one in self.generations if one.generation.state == "building"), None)

    @property
    def well(self) -> bool:
        """What is read keeps its budget, and is fed by this version."""
        live = self.live
        return live is None or (live.freshness.within and live.generation.version == self.version)


class Projections:
    """The verbs, for the projections of services that share a store. `known` are the generations as they were last seen here;
    empty until the store was asked."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self.known: Sequence[Generation] = ()
        self.keeper = Keeper(wiring, self._learned, self._clear)
        """Runs them in this process."""

    @property
    def declared(self) -> Sequence[Projection]:
        """In the order in which they were declared."""
        return list(self.wiring.projections.values())

    def named(self, name: str) -> Projection:
        """One by its name; ConfigurationError, with a suggestion, when there is none."""
        for projection in self.declared:
            if name in (projection.name, projection.consumer):
                return projection
        names = [projection.name for projection in self.declared]
        raise ConfigurationError(
            f"{', '.join(self.wiring.services)} has no projection {name!r}.{did_you_mean(name, names)}"
        )

    def groups(self) -> Mapping[str, str]:
        """The consumer groups of generations that are read, as far as they are known, each with its consumer. One that is
        being built is its rebuild's own."""
        declared = self.wiring.projections
        rows = [row for row in self.known if row.state == "live" and row.projection in declared]
        return {declared[row.projection].group(row.number): row.projection for row in rows}

    def has_group(self, group: str) -> bool:
        """Whether a group is, or was, one of a generation."""
        declared, (consumer, _, number) = self.wiring.projections, group.rpartition(".g")
        return group in declared or (consumer in declared and number.isdecimal())

    def group_of(self, called: str) -> Mapping[str, Sequence[str]]:
        """The group of a generation that something is called after, a subscription say, with its topics: `<group>.<topic>.…`."""
        for projection in self.declared:
            found = re.match(rf"{re.escape(projection.consumer)}(\.g[1-9][0-9]*)?\.", called)
            if found is not None:
                return {found[0].removesuffix("."): self.wiring.topics(projection)}
        return {}

    # How they are opened and run.

    async def taker(self, group: str) -> Consumer | None:
        """Who takes what is brought to a group, where a broker pushes: of the generation that is read alone. None while it is
        being built, once another one took its place, and where other code has built it: then it is to be brought again."""
        for known in (True, False):
            if not known:
                await self.learn()
            for row in self.known:
                projection = self.wiring.projections.get(row.projection)
                if projection is None or projection.group(row.number) != group or row.state != "live":
                    continue
                return await self.keeper.taker(projection, row) if row.version == projection.terms.version else None
        return None

    async def open(self) -> None:
        """Make the first generation of those that have none, and see which there are."""
        await self.learn()
        for projection in self.declared:
            if not any(row.projection == projection.consumer for row in self.known):
                await self._found_first(projection)
        await self.learn()

    async def learn(self) -> None:
        """See which generations there are."""
        if self.declared:
            self.known = await self.wiring.store.projections.generations()

    async def _found_first(self, projection: Projection) -> None:
        store = self.wiring.store
        async with store.begin(tenant="platform") as tx:
            first = Generation(
                projection=projection.consumer,
                number=await store.projections.number(tx, projection.consumer),
                version=projection.terms.version,
                state="live",
                phase="following",
                effects=projection.effects,
            )
            await found(tx, self.wiring, projection, first)

    def _learned(self, rows: Sequence[Generation]) -> None:
        self.known = rows

    async def _clear(self, row: Generation) -> None:
        await clear(self.wiring, self.wiring.projections[row.projection], row)

    # What an operator asks.

    async def status(self) -> Sequence[ProjectionStatus]:
        """Each projection with its generations and their figures."""
        await self.learn()
        counts = await self.wiring.store.counts()
        return [await self._status(projection, counts) for projection in self.declared]

    async def rebuild(
        self,
        name: str,
        plan: Plan | None = None,
        told: Callable[[Progress], None] | None = None,
        *,
        by: str = "",
        why: str = "",
    ) -> Rebuilt:
        """Build a new generation beside the live one and swap it in; or go on with one that was begun. `told` hears how
        far it is; `by` and `why` are for the operators' log. Raises RebuildStopped when it cannot go on, and ConfigurationError
        when it cannot begin."""
        projection = self.named(name)
        try:
            async with self._noted("projection rebuild", projection, by, why) as act:
                done = await Rebuild(self.wiring, projection, plan or Plan(), told).run()
                act.changed, act.count = {"generation": (done.replaced, done.generation)}, done.events
                return done
        finally:
            await self.learn()
            self.keeper.nudge()

    async def drop(self, name: str, number: int | None = None, *, by: str = "", why: str = "") -> Generation:
        """Give up the generation that is being built, or a retired one by its number: its tables and its group go."""
        projection = self.named(name)
        await self.learn()
        rows = [row for row in self.known if row.projection == projection.consumer]
        row = next((row for row in rows if row.number == number or (number is None and row.state == "building")), None)
        if row is None:
            words = "no rebuild is under way" if number is None else f"there is no generation {number}"
            raise RebuildStopped(f"{projection.consumer}: {words}; see `posthouse projection status`")
        async with self._noted("projection drop", projection, by, why) as act:
            act.changed = {"generation": (row.number, None)}
            if not await self.wiring.store.projections.retire(projection.consumer, row.number):
                raise RebuildStopped(f"{projection.consumer}: generation {row.number} is live: rebuild it instead")
            await self._clear_patiently(row)
        await self.learn()
        return row

    def _noted(self, verb: str, projection: Projection, by: str, why: str) -> AbstractAsyncContextManager[Act]:
        """In the operators' log: it is no single transaction."""
        log = OperatorsLog(self.wiring.store, ", ".join(self.wiring.services))
        target = f"projection {projection.name}"
        return log.doing(Action(verb=verb, by=by, why=why, consumer=projection.consumer, target=target))

    async def _clear_patiently(self, row: Generation) -> None:
        """Processes that feed it learn within a second or two that it is over."""
        self.keeper.nudge()
        busy: Exception | None = None
        for _ in range(TRIES):
            try:
                return await self._clear(row)
            except (BrokerError, StoreUnavailable) as error:
                busy = error
                await asyncio.sleep(PAUSE)
        raise RebuildStopped(
            f"{row.projection}: generation {row.number} is given up, but its group or its tables cannot go yet ({busy}): running processes "
            "clear it away as soon as that ends"
        ) from busy

    async def _status(self, projection: Projection, counts: Counts) -> ProjectionStatus:
        rows = [row for row in self.known if row.projection == projection.consumer]
        return ProjectionStatus(
            name=projection.name,
            consumer=projection.consumer,
            version=projection.terms.version,
            cross_tenant=projection.terms.cross_tenant,
            generations=[await self._figures(projection, row, counts) for row in rows],
        )

    async def _figures(self, projection: Projection, row: Generation, counts: Counts) -> GenerationStatus:
        wiring, group = self.wiring, projection.group(row.number)
        waiting, dropped = 0, False
        if row.state != "retired":
            progress = await wiring.broker.progress(group, wiring.topics(projection))
            waiting = sum(one.pending for one in progress.values())
            dropped = any(one.dropped for one in progress.values())
        return GenerationStatus(
            generation=row,
            group=group,
            freshness=freshness(
                now=wiring.clock.now(),
                event_at=row.event_at,
                applied_at=row.applied_at,
                since=row.live_at or row.made_at,
                budget=projection.terms.lag_budget,
                waiting=waiting,
                held=sum(n for (name, _, state), n in counts.held.items() if name == group and state in BLOCKING),
                partial=row.history == "partial" or dropped,
            ),
        )
