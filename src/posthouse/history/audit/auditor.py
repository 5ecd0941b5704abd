"""Auditor: the consumer that writes the audit log, one member of its group, and signs it when it is time.

Frames are acknowledged once their batch is in the log for good. A crash before that brings them again, and the log knows them; so
nothing needs a lease: members put their batches one behind the other, and any of them may sign."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from posthouse.broker import Broker, Delivery, Start, Stream
from posthouse.clock import Clock, backoff
from posthouse.errors import AuditDamaged, AuditError, BrokerError, DecodeError
from posthouse.events import decode_any
from posthouse.history.audit.batches import travelled
from posthouse.history.audit.log import AuditLog, Signer, seal
from posthouse.history.audit.notes import Verifier
from posthouse.history.audit.place import Place
from posthouse.history.audit.settings import Audit
from posthouse.history.audit.survey import standing
from posthouse.outage import Outages
from posthouse.pulse import Pulse
from posthouse.trust.signatures.keys import fits

log = logging.getLogger("posthouse.audit")

RECEIVE_WAIT = 1.0
FIRST_PAUSE, LAST_PAUSE = 0.5, 30.0
"""Seconds between the first two tries while something is away, and at the most."""
TURN = 500
"""Frames that are read before others have their turn."""
LOOK = 60.0
"""Seconds between two looks whether it is time to sign."""
SIGNING = 3_600.0
"""Seconds that it may take to put what was logged under a checkpoint."""


class Auditor:
    """One member, again and again: whenever something is in trouble it starts over from what is acknowledged. `places`: that of the log,
    and the second one. `keys`: the public ones, and who signs; None where another process has the private half."""

    def __init__(
        self,
        name: str,
        topics: Sequence[str],
        broker: Broker,
        places: tuple[Place, Place | None],
        audit: Audit,
        keys: tuple[Sequence[Verifier], Signer | None],
        clock: Clock,
        *,
        start: Start = "earliest",
        outages: Outages | None = None,
    ) -> None:
        self.name = name
        self.topics = sorted(topics)
        self.pulse, self.signing = Pulse(), Pulse()
        self.idle = True
        """Nothing that was received waits to be logged."""
        self.logged = 0
        """Events that are in the log because of this member."""
        self._broker, self._audit = broker, audit
        self._place, self._second = places
        self._keys, self._signer = keys
        self._clock = clock
        self._start = start
        self._outages = outages or Outages(clock)
        self._log = AuditLog(self._place)
        self._due: float | None = clock.now()
        """When the next checkpoint is due; None where nothing is there to be signed."""
        self._stuck: float | None = None
        """Since when the log takes nothing."""
        self._failures = 0
        self._complained = ""

    async def run(self, stop: asyncio.Event) -> None:
        """Log until `stop`: what is in hand then is logged first."""
        while not stop.is_set():
            try:
                await self._member(stop)
            except BrokerError as error:
                self._outages.failed(self.name, error)
                await self._pause(stop)
            except AuditError as error:
                self._stuck = self._clock.now() if self._stuck is None else self._stuck
                self._complain("events wait", error)
                self._log = AuditLog(self._place)
                await self._pause(stop)
        self._outages.left(self.name)

    async def sign(self, stop: asyncio.Event) -> None:
        """Sign when it is time, until `stop`."""
        while not stop.is_set():
            try:
                with self.signing.doing("signing a checkpoint", longer=SIGNING):
                    await asyncio.to_thread(self.sign_when_due)
            except AuditError as error:
                self._complain("nothing is signed", error)
            await self._clock.wait(stop, min(LOOK, self._audit.every))

    def sign_when_due(self) -> bool:
        """Sign if the last checkpoint is old enough; whether that was so. Blocking."""
        now = self._clock.now()
        found = standing(self._place, self._second, self._keys, now)
        if found.age is not None:
            self._due = now - found.age + self._audit.every
        elif not found.events:
            self._due = None
        elif self._due is None:
            self._due = now
        if self._signer is None or self._due is None or self._due > now:
            return False
        seal(self._place, self._second, self._signer, now)
        self._due = now + self._audit.every
        self._complained = ""
        return True

    def overdue(self) -> Mapping[str, float]:
        """For how many seconds a checkpoint is late, and events wait that the log does not take."""
        now = self._clock.now()
        since = {"checkpoint": self._due, "event": self._stuck}
        return {step: 0.0 if at is None else max(0.0, now - at) for step, at in since.items()}

    async def _member(self, stop: asyncio.Event) -> None:
        """From joining the group to leaving it."""
        with self.pulse.doing("subscribing"):
            stream = await self._broker.subscribe(
                self.name, self.topics, start=self._start, window=2 * self._audit.batch
            )
        in_hand: list[Delivery] = []
        try:
            ripe = 0.0
            while not stop.is_set():
                wait = min(RECEIVE_WAIT, max(0.0, ripe - self._clock.monotonic())) if in_hand else RECEIVE_WAIT
                with self.pulse.doing("receiving", longer=wait):
                    received = await stream.receive(self._audit.batch - len(in_hand), wait)
                if received and not in_hand:
                    ripe = self._clock.monotonic() + self._audit.wait
                in_hand += received
                self.idle = not in_hand
                if in_hand and (self._is_full(in_hand) or self._clock.monotonic() >= ripe):
                    await self._write(stream, in_hand)
                    in_hand = []
                if not in_hand:
                    self._answered()
            if in_hand:
                await self._write(stream, in_hand)
        finally:
            self.idle = True
            await asyncio.wait([asyncio.ensure_future(_left(stream))], timeout=self.pulse.last_words)

    def _is_full(self, in_hand: Sequence[Delivery]) -> bool:
        return (
            len(in_hand) >= self._audit.batch or sum(len(one.frame.body) for one in in_hand) >= self._audit.batch_bytes
        )

    async def _write(self, stream: Stream, in_hand: Sequence[Delivery]) -> None:
        """Log what is asked for, then acknowledge all of it."""
        events = []
        for number, delivery in enumerate(in_hand, 1):
            if self._is_asked_for(delivery):
                events.append(travelled(delivery.frame))
            if number % TURN == 0:
                await asyncio.sleep(0)
        with self.pulse.doing("writing to the audit log"):
            self.logged += await asyncio.to_thread(self._log.append, events)
        with self.pulse.doing("acknowledging"):
            await stream.ack(in_hand)
        self.idle = True
        self._stuck = None

    def _is_asked_for(self, delivery: Delivery) -> bool:
        if delivery.defect:
            return True
        try:
            event = decode_any(delivery.frame.headers, delivery.frame.body)
        except DecodeError:
            return True
        return event.metadata.retention in self._audit.classes or fits(event.type, self._audit.types)

    def _answered(self) -> None:
        self._failures = 0
        self._outages.answered(self.name)

    async def _pause(self, stop: asyncio.Event) -> None:
        self._failures += 1
        await self._clock.wait(stop, backoff(self._failures, FIRST_PAUSE, LAST_PAUSE))

    def _complain(self, what: str, error: AuditError) -> None:
        """Once for each reason."""
        words = f"{self.name}: {what}: {error}"
        if words != self._complained:
            self._complained = words
            (log.error if isinstance(error, AuditDamaged) else log.warning)("%s", words)


async def _left(stream: Stream) -> None:
    try:
        await stream.aclose()
    except BrokerError as error:
        log.info("the audit log left its group without a word: %s", error)
