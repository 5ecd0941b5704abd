"""A relay as a process of its own: `wal_member.py <url> wal|poll <report>`.

Its broker is a file that all relays append to; a line is written when the frame is accepted, with where the row came from.
Ends well on SIGTERM.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import sys
from collections.abc import Sequence

from posthouse.broker import ACCEPTED, Frame, Verdict
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError, StoreError
from posthouse.sending import Relay, RelaySettings
from posthouse.store import WalReader
from posthouse.stores.postgres import PostgresStore

SEQUENCE = re.compile(rb'"sequence":"(\d+)"')
LEASE = 1.5


class FileBroker(MemoryBroker):
    """Accepts everything."""

    def __init__(self, path: str, tail: WalReader | None) -> None:
        super().__init__(clock=SystemClock())
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self._tail = tail

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        mode = self._tail.mode if self._tail else "poll"
        os.write(self._file, "".join(self._line(frame, mode) for frame in frames).encode())
        return [ACCEPTED] * len(frames)

    def _line(self, frame: Frame, mode: str) -> str:
        found = SEQUENCE.search(frame.body)
        return f"{frame.key} {int(found[1]) if found else 0} {mode} {os.getpid()}\n"


async def main(url: str, source: str, report: str) -> None:
    logging.basicConfig(level=logging.INFO, filename=f"{report}.log", format=f"%(asctime)s {os.getpid()} %(message)s")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    store = PostgresStore(url, patience=5.0)
    tail = await opened(store) if source == "wal" else None
    settings = RelaySettings(lease=LEASE, last_delay=0.5)
    await Relay(store, FileBroker(report, tail), SystemClock(), settings, tail).run(stop)
    await store.aclose()


async def opened(store: PostgresStore) -> WalReader:
    """A supervisor would start the process again; here it tries until the server is there."""
    while True:
        try:
            return await store.wal_reader()
        except (StoreError, ConfigurationError) as error:
            logging.warning("not yet: %s", error)
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
