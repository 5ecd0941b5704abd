"""Archiver: the consumer that writes the archive, one member of its group.

A round has five steps, and a crash between any two of them leaves each event exactly once:

1. plan: in the store, events are claimed and the names of their files noted;
2. write: each file, under a name that nobody else will use, and only where there is none;
3. commit: one entry of the log beside the files makes them live, all or none (`journal.Journal.commit`);
4. follow: the store notes that the plan is done;
5. acknowledge: the broker forgets the frames.

Up to 3 nothing counts: the frames come again, and whoever gets them gives up the plan when its lease is over, in the log, so that a
member that wakes up late finds that in its way. From 3 on it counts: what comes again is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence

from posthouse.broker import Broker, Delivery, Start, Stream
from posthouse.clock import Clock, backoff, new_id
from posthouse.errors import ArchiveError, ArchiveOvertaken, BrokerError, StoreError
from posthouse.history.archive.batch import Batch, Pending
from posthouse.history.archive.compacting import Compactor, give_up, lapsed, put
from posthouse.history.archive.files import File, encoded, name_of
from posthouse.history.archive.forgotten import Forgotten, first_moment
from posthouse.history.archive.journal import Journal
from posthouse.history.archive.places import Place
from posthouse.history.archive.rows import Row, row_of
from posthouse.history.archive.settings import ArchiveSettings
from posthouse.outage import Outages
from posthouse.pulse import Pulse
from posthouse.redaction import words_of
from posthouse.store import ArchiveTable

log = logging.getLogger("posthouse.archive")

RECEIVE_WAIT = 1.0
FIRST_PAUSE, LAST_PAUSE = 0.5, 5.0
"""Seconds between the first two tries while something is away, and at the most."""
DAY = 86_400 * 1_000_000
"""Microseconds."""
TURN = 500
"""Frames that are read before others have their turn."""
FORGET = 5_000
"""Events that are forgotten at once."""


class Archiver:
    """One member, again and again: whenever something is in trouble it starts over from what is acknowledged."""

    def __init__(
        self,
        name: str,
        topics: Sequence[str],
        broker: Broker,
        place: Place,
        table: ArchiveTable,
        clock: Clock,
        *,
        member: str,
        settings: ArchiveSettings | None = None,
        start: Start = "earliest",
        outages: Outages | None = None,
    ) -> None:
        self.name = name
        self.topics = sorted(topics)
        self.pulse = Pulse()
        self.begun = asyncio.Event()
        """It has joined its group once."""
        self.written = 0
        """Events that are in the archive because of it."""
        self.idle = True
        """Nothing that was received waits to be written."""
        self._broker, self._place, self._table, self._clock = broker, place, table, clock
        self._settings = settings or ArchiveSettings()
        self._start = start
        self._outages = outages or Outages(clock)
        self._journal = Journal(name, place, table, clock, member)
        self._compactor = Compactor(name, place, table, self._journal, clock, self._settings)
        self._forgotten = Forgotten(place)
        self._failures = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Archive until `stop`: what is in hand then is written first."""
        while not stop.is_set():
            try:
                await self._member(stop)
            except ArchiveOvertaken as error:
                log.warning("%s: %s: what it had in hand comes again", self.name, error)
            except ArchiveError as error:
                if self._failures & (self._failures - 1) == 0:  # ever more rarely
                    log.warning("%s waits, and what it has in hand comes again: %s", self.name, words_of(error))
                await self._back_off(stop)
            except (BrokerError, StoreError) as error:
                self._outages.failed(self.name, error)
                await self._back_off(stop)
        self._outages.left(self.name)

    async def _back_off(self, stop: asyncio.Event) -> None:
        self._failures += 1
        await self._clock.wait(stop, backoff(self._failures, FIRST_PAUSE, LAST_PAUSE))

    async def _member(self, stop: asyncio.Event) -> None:
        """From joining the group to leaving it."""
        with self.pulse.doing("opening the archive"):
            await self._journal.open()
        with self.pulse.doing("subscribing"):
            stream = await self._broker.subscribe(
                self.name, self.topics, start=self._start, window=self._settings.window
            )
        self.begun.set()
        batch = Batch(self._settings)
        try:
            while not stop.is_set():
                await self._receive(stream, batch)
                if batch.due(self._clock.monotonic()):
                    await self.round(stream, batch)
            if batch.pending:
                await self.round(stream, batch)
        finally:
            self.idle = True
            await asyncio.wait([asyncio.ensure_future(_left(stream))], timeout=self.pulse.last_words)

    async def _receive(self, stream: Stream, batch: Batch) -> None:
        wait = max(0.0, min(RECEIVE_WAIT, batch.ripe_in(self._clock.monotonic())))
        with self.pulse.doing("receiving", longer=wait):
            received = await stream.receive(max(1, min(self._settings.window, batch.room)), wait)
        if not received:
            self._answered()
        for place, delivery in enumerate(received):
            batch.add(Pending(row_of(delivery), [delivery]), self._clock.monotonic())
            self.idle = False
            if place % TURN == TURN - 1:
                await asyncio.sleep(0)

    def _answered(self) -> None:
        self._failures = 0
        self._outages.answered(self.name)

    async def round(self, stream: Stream, batch: Batch) -> None:
        """Plan, write, commit, acknowledge; what others have planned waits for the next round."""
        taken, plan = batch.take(), new_id()
        pending = await self._without_old(stream, taken)
        if not pending:
            self.idle = True
            return
        files = _by_file(plan, pending)
        with self.pulse.doing("planning"):
            planned = await self._table.plan(
                self.name,
                plan,
                self._journal.member,
                sorted(files),
                [each.row.digest for each in pending],
                self._settings.lease,
            )
        own = [pending[place] for place in planned.own]
        if own:
            written = await self._write(plan, own)
            with self.pulse.doing("committing to the log"):
                await self._journal.commit("written", plan=plan, add=written)
            self.written += len(own)
        waiting = [pending[place] for place in planned.elsewhere]
        if waiting:
            with self.pulse.doing("looking who else writes"):
                await self._take_over(set(planned.elsewhere.values()))
        left = {id(each) for each in waiting}
        await self._acknowledge(stream, [each for each in pending if id(each) not in left])
        for each in waiting:
            batch.add(each, self._clock.monotonic(), again=True)
        self.idle = not batch.pending
        self._answered()

    async def _without_old(self, stream: Stream, taken: Sequence[Pending]) -> Sequence[Pending]:
        """Those of which the store may have forgotten that they are archived are looked for in the files: whoever was sent back to the
        beginning, or published again, doubles nothing."""
        with self.pulse.doing("asking what is remembered"):
            since = await self._table.remembers(self.name)
        slack = self._settings.remembers / 2  # so much may the clocks of producers, broker and store differ
        old = [each.row for each in taken if since is None or first_moment(each.row) < since + slack]
        if not old:
            return taken
        with self.pulse.doing("looking for old events in the archive", longer=60.0):
            await self._journal.catch_up()
            known = await asyncio.to_thread(self._forgotten.among, self._journal.manifest, old)
        await self._acknowledge(stream, [each for each in taken if each.row.digest in known])
        return [each for each in taken if each.row.digest not in known]

    async def _write(self, plan: str, own: Sequence[Pending]) -> list[File]:
        """Every file of a plan, one after the other, so that only one is in memory."""
        written = []
        for name, rows in _by_file(plan, own).items():
            with self.pulse.doing(f"writing {name}"):
                if not await self._table.renew(self.name, plan, self._settings.lease):
                    raise ArchiveOvertaken(f"the plan {plan} was given up by another member")
                file, data = await asyncio.to_thread(encoded, plan, name, rows)
                await asyncio.to_thread(put, self._place, file, data)
            written.append(file)
        return written

    async def _take_over(self, plans: Collection[str]) -> None:
        """Others hold these events: read what they did meanwhile, and give up those plans whose lease is over."""
        await self._journal.catch_up()
        for found in await self._table.plans(self.name):
            if found.id in plans and (found.owner == self._journal.member or lapsed(found, self._settings.lease)):
                await give_up(self._journal, found)

    async def _acknowledge(self, stream: Stream, done: Sequence[Pending]) -> None:
        deliveries: list[Delivery] = [delivery for each in done for delivery in each.deliveries]
        if not deliveries:
            return
        try:
            with self.pulse.doing("acknowledging"):
                await stream.ack(deliveries)
        except BrokerError as error:
            log.info("%s: %d acknowledgements were lost, these are known: %s", self.name, len(deliveries), error)

    async def tidy(self) -> None:
        """Housekeeping: small files become large ones, what nobody needs is deleted, and what was archived so long ago that it
        does not come again is forgotten."""
        if self.begun.is_set():
            with self.pulse.doing("compacting", longer=60.0):
                await self._compactor.tidy()
        more = 1
        while more:
            with self.pulse.doing("forgetting old events"):
                more = await self._table.forget(self.name, self._settings.remembers, FORGET)
            await asyncio.sleep(0)


def _by_file(plan: str, pending: Sequence[Pending]) -> Mapping[str, Sequence[Row]]:
    """Rows by the name of their file, one for each class, topic and day."""
    files: dict[tuple[str, str, int], list[Row]] = {}
    for each in pending:
        row = each.row
        files.setdefault((row.retention, row.topic, row.received // DAY), []).append(row)
    return {name_of(plan, retention, topic, rows[0].day): rows for (retention, topic, _), rows in files.items()}


async def _left(stream: Stream) -> None:
    try:
        await stream.aclose()
    except BrokerError as error:
        log.info("the archive left its group without a word: %s", error)
