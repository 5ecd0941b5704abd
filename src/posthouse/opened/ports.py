"""Ports: the store and the broker of an App, each opened at first use."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import cached_property
from typing import TypeVar, cast

from posthouse.broker import Broker
from posthouse.brokers import check_broker, is_for_one_host, open_broker
from posthouse.checks import Check
from posthouse.clock import Clock
from posthouse.history.archive.places import Place, open_place
from posthouse.local.naming import named
from posthouse.local.sharing import Shares, Sharing
from posthouse.store import CoreStore, Store
from posthouse.stores import check_store, open_store

T = TypeVar("T")

ALONE = (
    "the store is on a server, and the broker is {}, which one host alone sees: each host would write to a log of its own, "
    "and consumers on another host would never see its events"
)
TOGETHER = (
    'name one that every host reaches: broker="postgresql://…", for which the server of the store will do, or any other, '
    "or say it in POSTHOUSE_BROKER; if all processes will always run on this one host, say so: {}{}single_host=true"
)


class Ports:
    """A store and a broker, by URL or as they are. Each is opened at first use; those that were given by URL share what they
    can."""

    def __init__(
        self, store: str | CoreStore, broker: str | Broker, clock: Clock, name: str = "", archive: str | None = None
    ) -> None:
        self._name = name
        self._store = store
        self._broker = broker
        self._clock = clock
        self._sharing = Sharing()
        if isinstance(store, str):
            check_store(store)
        if isinstance(broker, str):
            check_broker(broker)
        self.archive_url = archive
        """Where the archive is; None where there is none."""

    @cached_property
    def store(self) -> Store:
        """Where it has the core alone, services that need more are refused when the App is opened."""
        if not isinstance(self._store, str):
            return cast("Store", self._store)
        with named(self._name):
            return self._shared(open_store(self._store, clock=self._clock))

    @cached_property
    def broker(self) -> Broker:
        if not isinstance(self._broker, str):
            return self._broker
        with named(self._name):
            return self._shared(open_broker(self._broker, clock=self._clock))

    @cached_property
    def archive(self) -> Place | None:
        """Where the archive lies; None where there is none."""
        return None if self.archive_url is None else open_place(self.archive_url)

    @property
    def store_url(self) -> str:
        """Where the store is; the name of its class when an object was given."""
        return self._store if isinstance(self._store, str) else type(self._store).__name__

    @property
    def broker_url(self) -> str:
        """Where the broker is; the name on its sheet when an object was given."""
        return self._broker if isinstance(self._broker, str) else self._broker.sheet.name

    @cached_property
    def reach(self) -> Check:
        """Whether all who use the store reach the broker. A broker that was given as an object was asked for by name."""
        place = self._broker
        if not isinstance(place, str) or not is_for_one_host(place) or self.store.embedded:
            return Check(name="reach", found="every host that uses the store reaches the broker")
        mark = "&" if "?" in place else "?"
        return Check(name="reach", found=ALONE.format(place), judgement="fail", fix=TOGETHER.format(place, mark))

    def _shared(self, port: T) -> T:
        if isinstance(port, Shares):
            port.share(self._sharing)
        return port

    async def aclose(self) -> None:
        """Close what was opened, both in any case."""
        async with AsyncExitStack() as closing:
            for name in ("store", "broker"):
                if name in vars(self):
                    closing.push_async_callback(vars(self)[name].aclose)
