"""Acknowledge: what was committed is told to the broker, soon and many at a time; never before its commit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from posthouse.broker import Delivery, Stream
from posthouse.errors import BrokerError
from posthouse.pulse import Pulse

log = logging.getLogger("posthouse.consumer")

BATCH = 100
DELAY = 0.5
"""Seconds that an acknowledgement waits for others, at most, whatever a slow handler does meanwhile."""


class Acknowledger:
    """The acknowledgements of one stream."""

    def __init__(self, consumer: str, stream: Stream, pulse: Pulse) -> None:
        self._consumer = consumer
        self._stream = stream
        self._pulse = pulse
        self._committed: list[Delivery] = []
        self._some = asyncio.Event()
        """Something waits to be acknowledged, or `wake` was called."""

    @property
    def idle(self) -> bool:
        """Nothing waits."""
        return not self._committed

    @property
    def full(self) -> bool:
        """Enough waits to be worth a word."""
        return len(self._committed) >= BATCH

    def add(self, deliveries: Sequence[Delivery]) -> None:
        """They were committed, as applied or held or known already."""
        self._committed += deliveries
        self._some.set()

    async def flush(self) -> None:
        """Acknowledge what waits. What the broker does not hear comes again, and the inbox knows it."""
        if not self._committed:
            return
        committed, self._committed = self._committed, []
        try:
            with self._pulse.doing("acknowledging"):
                await self._stream.ack(committed)
        except BrokerError as error:
            log.info(
                "%s: %d acknowledgements were lost, the inbox will know them: %s", self._consumer, len(committed), error
            )

    async def run(self, halt: asyncio.Event) -> None:
        """Acknowledge in time, also where a slow handler keeps the workers from coming to it: until then an event counts as
        applied and as in flight."""
        while not halt.is_set():
            await self._some.wait()
            self._some.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DELAY):
                    await halt.wait()
            await self.flush()

    def wake(self) -> None:
        """Let `run` see that it is to halt."""
        self._some.set()
