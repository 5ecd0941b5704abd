"""When frames were stored: the servers tell it with the record only, so one record is read for each partition that is asked for.
Nobody waits for that: how far a group is must be known in time, how old its next frame is would be good to know."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Mapping, Sequence
from contextvars import Context
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from posthouse.brokers.kafka.client import CONSUMER, Client, configured, mapped
from posthouse.brokers.kafka.committed_offsets import Spot
from posthouse.clock import Clock, new_id
from posthouse.errors import PosthouseError

log = logging.getLogger("posthouse.kafka")

PATIENCE = 2.0
"""Seconds after which what was not read is not known."""
AGAIN = 30.0
"""Seconds until it is asked for again, where nothing has moved."""
BRIEF, EVERY = 0.2, 1.0
"""All who ask wait together for so many seconds at most, of every so many: most records come by then."""
ONE: Mapping[str, object] = {
    "queued.min.messages": 1,
    "fetch.message.max.bytes": 1024,
    "fetch.queue.backoff.ms": 10,
    "enable.partition.eof": True,
}
"""The servers give a whole batch however small this is, and no more than that. Where no record comes they say so."""
NOTHING = math.inf
"""The time of an offset that holds no frame, nor does any behind it: others' transactions leave marks in the log."""


class Place(NamedTuple):
    """Where a group goes on in a partition, and where that ends."""

    topic_id: str
    offset: int
    end: int


class Known(NamedTuple):
    place: Place
    time: float | None
    """None: it could not be read."""
    read_at: float

    def of(self, place: Place, now: float) -> bool:
        """Whether this is what there is to know of a place. What was not found may be there when the log has grown."""
        if self.time is not None and self.time != NOTHING:
            return self.place[:2] == place[:2]
        return self.place == place and (self.time == NOTHING or now < self.read_at + AGAIN)


class Times:
    """Remembers what it read last for each group and partition, and what it did not find: while a group stands still nothing is
    read again. Its client is kept, for making one takes longer than reading; it joins no group."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[tuple[str, Spot], Known] = {}
        self._wanted: dict[tuple[str, Spot], Place] = {}
        self._reading: asyncio.Task[None] | None = None
        self._since = -math.inf
        self._consumer: Consumer | None = None
        self._one_reads = threading.Lock()

    async def of(
        self, group: str, offsets: Mapping[Spot, int], ends: Mapping[Spot, int], topic_ids: Mapping[str, str]
    ) -> dict[Spot, float]:
        """When the frames at these offsets were stored, in seconds since 1970, as far as it is known; `NOTHING` where there is
        none. What is not known is read in the background. Raises nothing."""
        places = {spot: Place(topic_ids[spot[0]], offset, ends[spot]) for spot, offset in offsets.items()}
        if missing := {
            (group, spot): place for spot, place in places.items() if self._time(group, spot, place) is None
        }:
            self._wanted |= {key: place for key, place in missing.items() if not self._missed(*key, place)}
        if self._wanted and (self._reading is None or self._reading.done()):
            self._reading = asyncio.get_running_loop().create_task(self._read_all(), context=Context())
        if self._reading is not None and not self._reading.done() and not self._wanted.keys().isdisjoint(missing):
            await asyncio.wait({self._reading}, timeout=self._brief())
        times = {spot: self._time(group, spot, place) for spot, place in places.items()}
        return {spot: time for spot, time in times.items() if time is not None}

    async def aclose(self) -> None:
        self._wanted.clear()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        await asyncio.to_thread(self._close)

    def _time(self, group: str, spot: Spot, place: Place) -> float | None:
        known = self._known.get((group, spot))
        return known.time if known is not None and known.of(place, self._clock.monotonic()) else None

    def _missed(self, group: str, spot: Spot, place: Place) -> bool:
        known = self._known.get((group, spot))
        return known is not None and known.of(place, self._clock.monotonic())

    def _brief(self) -> float:
        """How long somebody who asks now may wait."""
        now = self._clock.monotonic()
        if now >= self._since + EVERY:
            self._since = now
        return max(0.0, self._since + BRIEF - now)

    async def _read_all(self) -> None:
        """Whatever is wanted, one place of each partition at a time."""
        while self._wanted:
            turn: dict[Spot, Place] = {}
            for (_, spot), place in self._wanted.items():
                turn.setdefault(spot, place)
            found: Mapping[Spot, float] = {}
            try:
                found = await asyncio.to_thread(self._read, turn)
            except PosthouseError as error:
                log.debug("how old frames are is not known: %s", error)
            now = self._clock.monotonic()
            for key, place in [*self._wanted.items()]:
                if turn.get(key[1], ())[:2] == place[:2]:
                    self._known[key] = Known(place, found.get(key[1]), now)
                    del self._wanted[key]

    def _read(self, places: Mapping[Spot, Place]) -> dict[Spot, float]:
        deadline, found = self._clock.monotonic() + min(PATIENCE, self._client.timeout), dict[Spot, float]()
        ended = set[Spot]()
        with self._one_reads, mapped("reading when frames were stored"), configured():
            if self._consumer is None:
                self._consumer = Consumer(
                    {**ONE, **self._client.config({"group.id": f"posthouse-{new_id()}"}, CONSUMER)}
                )
            self._consumer.assign([TopicPartition(*spot, place.offset) for spot, place in places.items()])
            try:
                while len(found | dict.fromkeys(ended)) < len(places) and (
                    (left := deadline - self._clock.monotonic()) > 0
                ):
                    message = self._consumer.poll(left)
                    if message is None:
                        break
                    spot, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
                    if spot not in places:
                        continue
                    error = message.error()
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    if error is not None:
                        ended.add(spot)
                        if offset >= places[spot].end:  # before that there is somebody's open transaction
                            found.setdefault(spot, NOTHING)
                    elif offset >= places[spot].offset:
                        found.setdefault(spot, message.timestamp()[1] / 1000)
            finally:
                self._consumer.unassign()
        return found

    def _close(self) -> None:
        with self._one_reads:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None


def age_of(times: Sequence[float | None], now: float) -> float | None:
    """The age of the oldest; None where one of them is not known."""
    known = [time for time in times if time is not None]
    return None if len(known) < len(times) else max((max(0.0, now - time) for time in known), default=0.0)
