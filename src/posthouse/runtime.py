"""Runtime: the tasks of a running service, and their end."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Literal

import msgspec

from posthouse.broker import Broker
from posthouse.clock import Clock, new_id
from posthouse.errors import ArchiveError, ArchiveUnavailable, BrokerError, StoreError
from posthouse.heartbeat import Heartbeat
from posthouse.history.archive.opening import ArchiveMember
from posthouse.history.audit.opening import AuditMember
from posthouse.history.sweep import PURGE_BATCH, Sweep
from posthouse.outage import Outages
from posthouse.processes import Scheduler, Timers
from posthouse.processes.projection import KEPT, Keeper
from posthouse.processes.saga.declared import CALLS
from posthouse.processes.saga.precedence import Precedence
from posthouse.pulse import Pulse
from posthouse.receiving import Consumer, Retrier
from posthouse.redaction import words_of
from posthouse.seam import NOTHING, Seam, VersionUsage, during
from posthouse.sending import Relay
from posthouse.sending.breaker import Breaker
from posthouse.store import Store, Worker, has_process_tables

log = logging.getLogger("posthouse.runtime")

Part = Literal["relay", "consumers", "timers", "archive"]
PARTS: tuple[Part, ...] = ("relay", "consumers", "timers", "archive")

SAGA_BATCH = 500
LOOK = 1.0
"""Seconds between two looks at what each loop does."""
WELL = 60.0
"""A loop that ran for so many seconds was well: its failures before are forgotten."""

BEGIN = 10.0
"""Seconds that whoever starts a service waits for consumers that begin at the end."""

Run = Callable[[asyncio.Event], Coroutine[object, object, None]]


class Hung(Exception):
    """A loop waits too long for something; the message says for what."""


@dataclasses.dataclass(frozen=True)
class Runtime:
    """Everything of an App that runs until it is told to stop. Several copies, in any processes, share the work."""

    services: Sequence[str]
    store: Store
    broker: Broker
    clock: Clock
    relay: Relay
    timers: Timers
    schedules: Scheduler | None
    """Begins what runs again and again; None where nothing does. It runs with the timers."""
    consumers: Sequence[Consumer]
    retriers: Sequence[Retrier]
    sweep: Sweep
    """Lets go of rows of the inbox, and of held ones that were given up."""
    seam: Seam
    worker: Worker
    """This process among those that run its services."""
    outages: Outages
    """Which of its servers are away."""
    version_usage: VersionUsage = dataclasses.field(default_factory=VersionUsage)
    action_retention: float | None = None
    """For how many seconds it is kept what operators did; None: for ever."""
    outbox_retention: float = 0.0
    """For how many seconds events that were sent are kept, as long as that takes no more than …"""
    outbox_retention_bytes: int = 0
    """… so many bytes."""
    saga_retention: float | None = None
    """For how many seconds sagas that ended are kept; None where there are none to forget."""
    saga_tombstone_retention: float | None = None
    """For how many seconds after their end their tombstones are; None: for ever."""
    housekeeping_every: float = 10.0
    projections: Keeper | None = None
    archive: ArchiveMember | None = None
    """Writes the archive; None where there is none."""
    audit: AuditMember | None = None
    """Writes the audit log; None where there is none. It runs with the consumers."""
    precedence: Precedence | None = None
    """Which sagas are run here, and not left to another release; None where there are none."""
    pulse: Pulse = dataclasses.field(default_factory=Pulse)
    """Of the housekeeping."""
    refused: set[str] = dataclasses.field(default_factory=set)
    untidy: set[str] = dataclasses.field(default_factory=set)
    """Why rows could not be archived at the last look; each is told of once."""
    heartbeats: list[Heartbeat] = dataclasses.field(default_factory=list)
    """That of the run that is under way."""
    loops: list[str] = dataclasses.field(default_factory=list)
    """What runs, by name."""
    left_behind: set[asyncio.Task[None]] = dataclasses.field(default_factory=set)
    """Loops that hung and did not end when they were cancelled."""

    @property
    def name(self) -> str:
        """What it is called in the log."""
        return ", ".join(self.services)

    @property
    def all_consumers(self) -> list[Consumer]:
        """Also those of the read models that are fed here."""
        return [*self.consumers, *([] if self.projections is None else self.projections.consumers)]

    @property
    def idle(self) -> bool:
        """Nothing that was received waits to be applied, and nothing held is being run."""
        if self.projections is not None and not self.projections.idle:
            return False
        if self.schedules is not None and not self.schedules.looked:
            return False
        if any(member is not None and not member.idle for member in (self.archive, self.audit)):
            return False
        return all(consumer.idle for consumer in self.consumers) and all(retrier.idle for retrier in self.retriers)

    async def run(self, stop: asyncio.Event, only: Collection[Part] = PARTS) -> None:
        """Run the parts until `stop`, then let each finish what it has in flight."""
        parts = [part for part in PARTS if part in only and (part != "archive" or self.archive is not None)]
        worker = msgspec.structs.replace(self.worker, id=new_id(), parts=parts)
        heartbeat = Heartbeat(self.store, self.clock, self.seam.timing, worker)
        heard = [consumer.name for consumer in self.consumers] if "consumers" in only else []
        loops: list[tuple[str, Run, Pulse]] = [
            ("heartbeat", heartbeat.run, heartbeat.pulse),
            ("housekeeping", self._keep_house, self.pulse),
        ]
        if "relay" in only:
            loops.append(("relay", self.relay.run, self.relay.pulse))
        if "timers" in only:
            loops.append(("timers", self.timers.run, self.timers.pulse))
            if self.schedules is not None:
                loops.append(("schedules", self.schedules.run, self.schedules.pulse))
        if "consumers" in only:
            loops += [
                (consumer.name, self._ours(consumer.name, consumer.run), consumer.pulse) for consumer in self.consumers
            ]
            loops += [
                (f"{consumer.name}, held", self._ours(consumer.name, r.run), r.pulse)
                for consumer, r in zip(self.consumers, self.retriers, strict=True)
            ]
            if self.precedence is not None:
                looking = partial(self.precedence.run, worker.id, heartbeat.beat)
                loops.append(("releases", looking, self.precedence.pulse))
            if self.audit is not None:
                loops.append((self.audit.name, self.audit.run, self.audit.pulse))
                loops.append(("audit log", self.audit.sign, self.audit.signing))
            if self.projections is not None:
                keeping = partial(self.projections.run, keep=self._keep_running)
                loops.append(("projections", keeping, self.projections.pulse))
        if self.archive is not None and "archive" in only:
            loops.append((self.archive.name, self.archive.run, self.archive.pulse))
        log.info("%s runs %s%s", self.name, ", ".join(parts), f": {', '.join(heard)}" if heard else "")
        self.heartbeats[:] = [heartbeat]
        self.loops[:] = [name for name, _, _ in loops]
        with during(NOTHING):  # whoever starts it, it runs for all
            async with asyncio.TaskGroup() as group:
                for name, run, pulse in loops:
                    group.create_task(self._keep_running(name, run, stop, pulse), name=f"posthouse {self.name} {name}")
        self.heartbeats.clear()
        await self._write_down_the_rest(heartbeat)
        log.info("%s stopped", self.name)

    def _ours(self, consumer: str, run: Run) -> Run:
        """A loop of a consumer; that of a saga, or of its calls, only while the saga is run here."""
        consumer = consumer.removesuffix(CALLS)
        if self.precedence is None or consumer not in self.worker.releases:
            return run
        return self.precedence.while_leading(consumer, run)

    async def begun(self, running: asyncio.Future[None]) -> None:
        """Wait until earlier releases of its sagas stand aside, and until consumers that begin at the end of their topics have
        said where that is: what is published after this is theirs. Ends early with `running`, or when the broker lets nobody in."""
        beginning = asyncio.ensure_future(_begun([c for c in self.consumers if c.start == "latest"], self.precedence))
        try:
            await asyncio.wait([beginning, running], timeout=BEGIN, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not beginning.done():
                beginning.cancel()
                log.warning("%s has not joined all its groups yet: they begin with what is published later", self.name)

    async def _keep_running(self, name: str, run: Run, stop: asyncio.Event, pulse: Pulse) -> None:
        """A loop that fails in a way nobody foresaw, or hangs in a driver, is started again, ever more slowly, and never in
        silence."""
        breaker = Breaker(0.5, 30.0)
        while not stop.is_set():
            began = self.clock.monotonic()
            try:
                await self._watched(name, run, stop, pulse)
            except Exception as error:
                if isinstance(error, Hung):
                    log.error("%s: %s hangs, %s: it is given up and started again", self.name, name, error)
                else:
                    log.exception("%s: %s failed and is started again", self.name, name)
                if self.clock.monotonic() - began > WELL:
                    breaker.succeeded()
                self.seam.counting.counter("loop_restarts_total", self.name, name).value += 1
                await self.clock.wait(stop, breaker.failed())

    async def _watched(self, name: str, run: Run, stop: asyncio.Event, pulse: Pulse) -> None:
        """Run it to its end. Raises Hung when something takes too long; what is given up is cancelled, and left behind
        when it does not even hear that."""
        pulse.reset()
        task = asyncio.ensure_future(run(stop))
        try:
            while not task.done():
                await asyncio.wait([task], timeout=LOOK)
                if not task.done() and (stuck := pulse.look(LOOK)):
                    raise Hung(stuck)
            task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=3 * pulse.last_words)  # it gives up others in its turn
            if not task.done():
                log.error("%s: %s does not end and is left behind", self.name, name)
                self.left_behind.add(task)
                task.add_done_callback(self.left_behind.discard)

    async def _keep_house(self, stop: asyncio.Event) -> None:
        """Forget what nobody needs: sent rows, old inbox rows, and sagas that ended long ago."""
        while not await self.clock.wait(stop, self.housekeeping_every):
            try:
                await self.tidy()
                self.outages.answered("housekeeping")
            except (StoreError, BrokerError) as error:
                self.outages.failed("housekeeping", error)
        self.outages.left("housekeeping")

    async def tidy(self) -> None:
        """One round of housekeeping, in small steps that let others in between."""
        full = True
        while full:
            with self.pulse.doing("purging the outbox"):
                sent = await self.store.outbox.purge(
                    PURGE_BATCH, keep=self.outbox_retention, room=self.outbox_retention_bytes
                )
            more = await self._sweep()
            full = more or sent == PURGE_BATCH
            await asyncio.sleep(0)
        await self._forget_sagas()
        await self._forget_effects()
        await self._tidy_archive()
        if self.action_retention is not None:
            with self.pulse.doing("purging the operators' log"):
                await self.store.actions.purge(self.action_retention, PURGE_BATCH)
                await self.store.jobs.purge(self.action_retention, PURGE_BATCH)
                await self.store.grants.purge(self.action_retention, PURGE_BATCH)
        now = self.clock.now()
        for service in self.services:
            self.version_usage.note("running", service, "", now)
        with self.pulse.doing("noting what was seen"):
            await self.version_usage.write(self.store.version_usage, now)

    async def _tidy_archive(self) -> None:
        """What is wrong with the archive must not keep anything else from being tidied; it is said once."""
        if self.archive is None:
            return
        try:
            await self.archive.tidy()
        except ArchiveError as error:
            if (words := str(error)) not in self.untidy:
                self.untidy.add(words)
                log.warning("%s: the archive is not tidied: %s", self.name, words_of(error))
        else:
            self.untidy.clear()

    async def _sweep(self) -> bool:
        """One batch of the inbox and one of the held; whether there is more. What cannot be written first stays."""
        try:
            with self.pulse.doing("purging the inbox"):
                _, more_seen = await self.sweep.inbox()
            with self.pulse.doing("purging held events that were given up"):
                _, more_held = await self.sweep.held()
        except ArchiveUnavailable as error:
            if (words := str(error)) not in self.refused:
                self.refused.add(words)
                log.warning("%s: rows that are to be archived first stay: %s", self.name, words)
            return False
        self.refused.clear()
        return more_seen or more_held

    async def _forget_effects(self) -> None:
        full = self.projections is not None
        while full:
            with self.pulse.doing("purging effects of projections"):
                full = await self.store.projections.purge_effects(KEPT, PURGE_BATCH) == PURGE_BATCH
            await asyncio.sleep(0)

    async def _forget_sagas(self) -> None:
        if self.saga_retention is None or not has_process_tables(self.store):
            return
        full = True
        while full:
            with self.pulse.doing("purging sagas"):
                full = await self.store.sagas.purge(self.saga_retention, SAGA_BATCH) == SAGA_BATCH
            await asyncio.sleep(0)
        full = self.saga_tombstone_retention is not None
        while full:
            with self.pulse.doing("deleting tombstones of sagas"):
                full = await self.store.sagas.forget(self.saga_tombstone_retention or 0.0, SAGA_BATCH) == SAGA_BATCH
            await asyncio.sleep(0)

    async def _write_down_the_rest(self, heartbeat: Heartbeat) -> None:
        """That this is the end, and what was seen since the last time; without it, the store is at most an hour behind."""
        try:
            await self.version_usage.write(self.store.version_usage, self.clock.now(), every=0.0)
            await heartbeat.end()
        except StoreError as error:
            log.warning("%s: what was seen and timed last could not be written: %s", self.name, error)


async def _begun(consumers: Sequence[Consumer], precedence: Precedence | None) -> None:
    if precedence is not None:
        await precedence.settled.wait()
    for consumer in consumers:
        await consumer.begun.wait()
