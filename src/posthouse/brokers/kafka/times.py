"""When frames were stored: the servers tell it with the record only, so one record is read for each partition that is asked for."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from posthouse.brokers.kafka.client import CONSUMER, Client, configured, mapped
from posthouse.brokers.kafka.committed_offsets import Spot
from posthouse.clock import Clock, new_id

PATIENCE = 2.0
"""Seconds after which what was not read is not known this time."""
ONE: Mapping[str, object] = {"queued.min.messages": 1, "fetch.message.max.bytes": 1024, "fetch.queue.backoff.ms": 10}
"""The servers give a whole batch however small this is, and no more than that."""


class Times:
    """Remembers what it read last of each partition: while a group stands still nothing is read again. Its client is kept, for
    making one takes longer than reading; it joins no group."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[Spot, tuple[str, int, float]] = {}
        self._consumer: Consumer | None = None
        self._one_reads = threading.Lock()

    async def of(self, offsets: Mapping[Spot, int], topic_ids: Mapping[str, str]) -> dict[Spot, float]:
        """When the frames at these offsets were stored, in seconds since 1970; of those that did not come in time, nothing."""
        places = {spot: (topic_ids[spot[0]], offset) for spot, offset in offsets.items()}
        missing = {spot: at for spot, (_, at) in places.items() if self._known.get(spot, ())[:2] != places[spot]}
        if missing:
            for spot, time in (await asyncio.to_thread(self._read, missing)).items():
                self._known[spot] = (*places[spot], time)
        return {spot: self._known[spot][2] for spot in places if self._known.get(spot, ())[:2] == places[spot]}

    async def aclose(self) -> None:
        await asyncio.to_thread(self._close)

    def _read(self, offsets: Mapping[Spot, int]) -> dict[Spot, float]:
        deadline, found = self._clock.monotonic() + min(PATIENCE, self._client.timeout), dict[Spot, float]()
        with self._one_reads, mapped("reading when frames were stored"), configured():
            if self._consumer is None:
                self._consumer = Consumer(
                    {**ONE, **self._client.config({"group.id": f"posthouse-{new_id()}"}, CONSUMER)}
                )
            self._consumer.assign([TopicPartition(*spot, offset) for spot, offset in offsets.items()])
            try:
                while len(found) < len(offsets) and (left := deadline - self._clock.monotonic()) > 0:
                    message = self._consumer.poll(left)
                    if message is None:
                        break
                    if (error := message.error()) is not None:
                        raise KafkaException(error)
                    spot = (message.topic() or "", message.partition() or 0)
                    if (message.offset() or 0) >= offsets.get(spot, math.inf):
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
