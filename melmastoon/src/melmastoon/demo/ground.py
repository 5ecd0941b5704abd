"""Where the demonstration happens: a folder with a SQLite file for each service, one log, one clock and the vendors' own
books; or servers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from melmastoon.demo.cast import cast
from melmastoon.demo.clock import SharedClock
from melmastoon.demo.script import DAY
from melmastoon.demo.secrets import secrets_in
from melmastoon.demo.signatures import signing_of
from melmastoon.demo.weather import Planned
from melmastoon.demo.witness import watch
from melmastoon.vendors.ledger import Ledger
from melmastoon.vendors.world import World, pretending
from posthouse import Service
from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.clock import Clock, SystemClock
from posthouse.stores.sqlite import SqliteStore
from posthouse.testing import rehost

LEASE = 3600.0
"""Seconds. A member of the log that dies is known to be dead by whoever killed it, so that nobody has to wait for it."""

PARTITIONS = 2
"""Each group has one member: more would only be more to look at."""


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What a process must know to run some of the services. Without `store` and `broker` everything is in the folder, on a
    clock that stands still unless it is `live`; with them (`{service}` stands for the name) on servers, and in real time."""

    folder: str
    seed: int
    bookings: int
    store: str = ""
    broker: str = ""
    live: bool = False

    @property
    def simulated(self) -> bool:
        """Whether time is moved by the driver."""
        return not (self.store or self.live)

    @property
    def clock_file(self) -> Path:
        return Path(self.folder) / "clock"

    @property
    def log_file(self) -> Path:
        return Path(self.folder) / "log.db"

    @property
    def vendors_file(self) -> Path:
        return Path(self.folder) / "vendors.db"

    @property
    def strike_file(self) -> Path:
        """While it is there, the carrier of messages takes none."""
        return Path(self.folder) / "strike"

    def store_file(self, service: str) -> Path:
        return Path(self.folder) / f"{service}.db"

    def outside(self) -> AbstractContextManager[World]:
        """The vendors as the guests' fates want them, inside the block. Their slowness is left out where time stands still."""
        first = MONDAY if self.simulated else LONG_AGO
        calendar, midnight = SharedClock(self.clock_file), first - first % DAY
        weather = Planned.of(
            cast(self.seed, self.bookings), self.seed, lambda: calendar.now() - midnight, self.strike_file.exists
        )
        return pretending(World(Ledger(self.vendors_file), weather, latency=0.0 if self.simulated else 1.0))

    def clock(self) -> Clock:
        return SharedClock(self.clock_file) if self.simulated else SystemClock()

    def settle_in(self, services: Sequence[Service], clock: Clock) -> None:
        """Let services run here, each watched by the witness. Commits survive a SIGKILL, which is all that happens here;
        a power cut might take the last ones, at a tenth of the price. Each signs what it says, and hears nothing unsigned;
        what is personal in it is encrypted."""
        log = None
        if not self.store:
            patience = {"lease": LEASE} if self.simulated else {}
            log = EmbeddedBroker(
                self.log_file, clock=SystemClock(), partitions=PARTITIONS, synchronous="NORMAL", **patience
            )
        for service in services:
            folder = Path(self.folder)
            signing, secrets = signing_of(folder, service), secrets_in(folder, service)
            if log is None:
                store = self.store.format(service=service.name)
                rehost(service, store=store, broker=self.broker, clock=clock, signing=signing, secrets=secrets)
            else:
                file = SqliteStore(self.store_file(service.name), clock=clock, synchronous="NORMAL")
                rehost(service, store=file, broker=log, clock=clock, signing=signing, secrets=secrets)
            watch(service)


MONDAY = 1_805_097_600.0
"""Where the clock of a simulated world begins: Monday, 15 March 2027, 8:00 UTC."""

LONG_AGO = MONDAY - 5 * 364 * DAY
"""Where the calendar of a world in real time begins: so long before today that by any clock every guest has left in time."""
