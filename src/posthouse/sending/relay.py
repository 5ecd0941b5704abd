"""Relay: moves committed rows from the outbox to the broker, per key in commit order, at least once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence

import msgspec

from posthouse.broker import Broker, Verdict
from posthouse.clock import Clock, backoff, new_id
from posthouse.errors import BrokerError, StoreError
from posthouse.options import Count, LeaseSeconds, Options, Seconds, SomeSeconds
from posthouse.outage import Outages
from posthouse.pulse import Pulse
from posthouse.redaction import redacted
from posthouse.seam import Failure, Seam
from posthouse.seam.frames import UNFIT, fit_for_broker
from posthouse.seam.outward import event_in
from posthouse.seam.timing import OTHERS
from posthouse.sending.breaker import Breaker
from posthouse.store import OutboxReader, OutboxRow, OutboxShard, Poll, RelaySource, Store, StuckRow, WalReader, parked

log = logging.getLogger("posthouse.relay")


class RelaySettings(Options):
    """How a relay works. Durations are seconds."""

    source: RelaySource = "poll"
    """Where rows come from: `poll` asks the outbox, `wal` follows the database's log and needs a store that has one."""
    batch: Count = 500
    """At most so many rows are published at once while the relay keeps up."""
    backlog_batch: Count = 1000
    """The most when it does not: then a look costs more than the rows. As many may come again after a crash."""
    backlog_bytes: Count = 8 * 1024 * 1024
    """About how large the bodies of such a batch may be together."""
    lease: LeaseSeconds = 10.0
    """How long a relay may be silent before others take its shards; 1 or more."""
    idle: SomeSeconds = 1.0
    """The longest wait between two looks when nobody rings."""
    first_delay: Seconds = 0.2
    """The delay after a first failure; it doubles from there."""
    last_delay: Seconds = 5.0
    """No delay after a failure of the broker or the store is longer, for nobody says when it is back; a stuck key follows `stuck_delay`."""
    stuck_delay: Seconds = 600.0
    """The longest delay between two tries of a row that the broker refused."""
    quarantine_attempts: Count = 50
    """A refused row is quarantined after so many tries …"""
    quarantine_after: Seconds = 6 * 3600.0
    """… that span at least so long."""

    def conflicts(self) -> list[str]:
        if self.first_delay <= self.last_delay:
            return []
        return [
            f"RelaySettings: first_delay={self.first_delay:g} is longer than last_delay={self.last_delay:g}: raise last_delay"
        ]


class Relay:
    """One worker. Several of them, in any number of processes, share the shards of one outbox. With a `tail` its rows come
    from the database's log. `sent` is told which rows the broker accepted. `name` is what its publishing is timed under. `says`:
    which service the events of a topic are counted under. `process` is where it runs, for people who ask who holds a shard."""

    def __init__(
        self,
        store: Store,
        broker: Broker,
        clock: Clock,
        settings: RelaySettings | None = None,
        tail: WalReader | None = None,
        sent: Callable[[Sequence[OutboxRow]], None] | None = None,
        seam: Seam | None = None,
        name: str = "relay",
        outages: Outages | None = None,
        says: Mapping[str, str] | None = None,
        process: str = "",
    ) -> None:
        self._outages = outages or Outages(clock)
        self._seam = seam or Seam()
        self._name = name
        self._says = says or {}
        self._fences = self._seam.counting.counter("relay_fenced_total", name)
        if not self._seam.counting.classifies:  # there, as 0, before the first one is sent
            for topic, service in self._says.items():
                for outcome in ("accepted", "refused"):
                    self._seam.counting.counter("events_published_total", service, topic, "", outcome)
        self._outbox: OutboxReader = tail or store.outbox
        self._changed = tail.changed if tail else store.changed
        self._tail = tail
        self._sent = sent
        self._broker = broker
        self._clock = clock
        self._settings = settings or RelaySettings()
        self._breaker = Breaker(self._settings.first_delay, self._settings.last_delay)
        self._owner = f"{process} {new_id()}".lstrip()
        self._shards: Sequence[OutboxShard] = ()
        self._leased_at = float("-inf")
        self._stop = asyncio.Event()
        self.pulse = Pulse()
        self._limit = self._settings.batch
        self._caught_up = False
        """Whether the last step left nothing behind that it knew of."""

    async def run(self, stop: asyncio.Event) -> None:
        """Relay until `stop`; what is in flight is finished and settled, then the shards are given up."""
        seen = 0
        self._stop = stop
        try:
            while not stop.is_set():
                try:
                    moved = await self.step()
                    self._breaker.succeeded()
                    self._outages.answered("relay")
                    if not moved or self._caught_up:
                        seen = await self._idle(seen, stop)
                except (BrokerError, StoreError) as error:
                    if isinstance(error, StoreError):
                        self._leased_at = float("-inf")  # perhaps it is another server now: ask it for shards
                    await self._back_off(error, stop)
        finally:
            self._outages.left("relay")
            await self._give_up()
            if self._tail is not None:
                await self._tail.aclose()

    async def step(self) -> int:
        """Look at the outbox: hold shards, read, publish, settle, then try what is stuck. Returns rows dealt with."""
        await self._hold_shards()
        if not self._shards:
            return 0
        moved, last = await self._relay_all()
        tried = 0 if last.none_stuck else await self._relay_stuck()
        self._caught_up = bool(self._shards) and not last.more and not tried
        return moved + tried

    async def _hold_shards(self) -> None:
        if self._holding and self._shards:
            return
        now = self._clock.monotonic()
        with self.pulse.doing("leasing shards"):
            self._shards = await self._outbox.lease(self._owner, self._settings.lease)
        self._leased_at = now

    @property
    def _holding(self) -> bool:
        """Whether the lease is young."""
        return self._clock.monotonic() - self._leased_at < self._settings.lease / 3

    async def _relay_all(self) -> tuple[int, Poll]:
        """Until nothing is left over, or the lease must be renewed; how many rows, and the last poll."""
        count = 0
        while True:
            poll = await self._relay_new(self._shards)
            count += len(poll.rows)
            self._adapt(poll)
            if not poll.more or not self._holding or self._stop.is_set():
                return count, poll

    def _adapt(self, poll: Poll) -> None:
        """Read more at once behind a backlog, as long as it is not too large."""
        settings = self._settings
        if not poll.more or not poll.rows:
            self._limit = settings.batch
            return
        average = sum([len(row.body) for row in poll.rows]) // len(poll.rows) + 1
        self._limit = max(1, min(2 * self._limit, settings.backlog_batch, settings.backlog_bytes // average))

    async def _relay_new(self, shards: Sequence[OutboxShard]) -> Poll:
        with self.pulse.doing("reading the outbox"):
            poll = await self._outbox.poll(shards, self._limit)
        if not poll.rows and poll.cursor is None:
            return poll
        fresh = [row for row in poll.rows if row.id not in poll.stuck] if poll.stuck else poll.rows
        verdicts = await self._publish(fresh)
        waiting = [parked(row) for row in poll.rows if row.id in poll.stuck] if poll.stuck else []
        waiting += [self._refused(row, verdict) for row, verdict in self._failures(fresh, verdicts)]
        with self.pulse.doing("settling what was published"):
            settled = await self._outbox.settle(self._owner, poll, waiting)
        if not settled:
            self._fenced()
        return msgspec.structs.replace(poll, none_stuck=False) if waiting else poll

    async def _relay_stuck(self) -> int:
        with self.pulse.doing("reading what is stuck"):
            due = await self._outbox.stuck_due(self._shards, self._settings.batch)
        if not due:
            return 0
        verdicts = await self._publish([stuck.row for stuck in due])
        sent = [stuck.row.id for stuck, verdict in zip(due, verdicts, strict=True) if verdict.accepted]
        failed = [
            self._refused_again(stuck, verdict)
            for stuck, verdict in zip(due, verdicts, strict=True)
            if not verdict.accepted
        ]
        with self.pulse.doing("settling what was stuck"):
            settled = await self._outbox.settle_stuck(self._owner, self._shards, sent, failed)
        if not settled:
            self._fenced()
        return len(sent)

    async def _publish(self, rows: Sequence[OutboxRow]) -> Sequence[Verdict]:
        with self.pulse.doing("publishing"):
            frames, unfit = fit_for_broker(rows)
            verdicts = await self._seam.publish(self._broker, self._name, frames) if frames else []
        if unfit:
            said = iter(verdicts)
            verdicts = [unfit[place] if place in unfit else next(said) for place in range(len(rows))]
        if self._sent is not None:
            self._sent([row for row, verdict in zip(rows, verdicts, strict=True) if verdict.accepted])
        self._count(rows, verdicts)
        return verdicts

    def _count(self, rows: Sequence[OutboxRow], verdicts: Sequence[Verdict]) -> None:
        """What the broker said, by topic and class of tenant."""
        counting = self._seam.counting
        if counting.classifies:
            found = Counter([(r.topic, v.accepted, r.tenant) for r, v in zip(rows, verdicts, strict=True)])
        else:
            found = Counter([(r.topic, v.accepted, "") for r, v in zip(rows, verdicts, strict=True)])
        for (topic, accepted, tenant), number in found.items():
            service = self._says.get(topic)
            place = (self._name, OTHERS) if service is None else (service, topic)
            outcome = "accepted" if accepted else "refused"
            counting.counter("events_published_total", *place, counting.class_of(tenant), outcome).value += number

    def _failures(
        self, rows: Sequence[OutboxRow], verdicts: Sequence[Verdict]
    ) -> list[tuple[OutboxRow, Verdict | None]]:
        """Refused rows, and those of the same key behind them (None: they were not tried on their own account)."""
        if all(verdict.accepted for verdict in verdicts):
            return []
        found: list[tuple[OutboxRow, Verdict | None]] = []
        stuck: set[Hashable] = set()
        for row, verdict in zip(rows, verdicts, strict=True):
            line = (row.topic, row.tenant, row.key) if row.key is not None else row.id
            if line in stuck:
                found.append((row, None))
            elif not verdict.accepted:
                stuck.add(line)
                found.append((row, verdict))
        return found

    def _refused(self, row: OutboxRow, verdict: Verdict | None) -> StuckRow:
        return parked(row) if verdict is None else self._refused_again(parked(row), verdict)

    def _refused_again(self, stuck: StuckRow, verdict: Verdict) -> StuckRow:
        """Schedule the next try, or give up: at once when the broker says never, else when tries and time are spent."""
        settings, attempts = self._settings, stuck.attempts + 1
        first = stuck.attempts == 0  # its time behind another does not count
        age = 0.0 if first else stuck.age
        spent = attempts >= settings.quarantine_attempts and age >= settings.quarantine_after
        quarantined = verdict.final or spent
        row = stuck.row
        delay = backoff(attempts + 1, settings.first_delay, settings.stuck_delay)
        self._seam.failures.report(
            Failure(
                reason=("" if verdict.reason.startswith(UNFIT) else "the broker refused it: ")
                + redacted(verdict.reason),
                outcome="quarantined" if quarantined else "retry",
                event_type=_type_of(row),
                event_id=row.event_id,
                topic=row.topic,
                tenant=row.tenant,
                key=row.key,
                correlation=_correlation_in(row),
                attempt=attempts,
                next_at=None if quarantined else self._clock.now() + delay,
                command="posthouse outbox list TARGET" if quarantined else "",
            )
        )
        return StuckRow(
            row=row,
            attempts=attempts,
            error=redacted(verdict.reason),
            quarantined=quarantined,
            after=delay,
            first_at=0.0 if first else stuck.first_at,
        )

    async def _idle(self, seen: int, stop: asyncio.Event) -> int:
        """Wait until somebody adds to the outbox, or `stop`."""
        changed = asyncio.ensure_future(self._changed(seen, self._settings.idle))
        stopped = asyncio.ensure_future(stop.wait())
        try:
            with self.pulse.doing("waiting for news of the outbox", longer=self._settings.idle):
                await asyncio.wait([changed, stopped], return_when=asyncio.FIRST_COMPLETED)
            return changed.result() if changed.done() else seen
        finally:
            changed.cancel()
            stopped.cancel()

    def _fenced(self) -> None:
        """Another relay owns our shards, or the server has begun another run: what we published comes again, and consumers
        drop it."""
        log.warning("relay %s lost its shards; nothing was settled", self._owner)
        self._fences.value += 1
        self._shards = ()
        self._leased_at = float("-inf")

    async def _back_off(self, error: Exception, stop: asyncio.Event) -> None:
        self._outages.failed("relay", error)
        await self._clock.wait(stop, self._breaker.failed())

    async def _give_up(self) -> None:
        try:
            with self.pulse.doing("giving up shards"):
                await self._outbox.release(self._owner)
        except StoreError as error:
            log.warning("shards were not released and will expire: %s", error)


def _correlation_in(row: OutboxRow) -> str | None:
    with contextlib.suppress(Exception):
        event = event_in(row)
        return event.correlation or event.id
    return None


def _type_of(row: OutboxRow) -> str:
    """The subject; empty where the row cannot be read."""
    with contextlib.suppress(Exception):
        return event_in(row).type
    return ""
