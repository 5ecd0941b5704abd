"""Pool: connections to one PostgreSQL database. A store and a broker that belong together share them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast
from urllib.parse import urlsplit

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from posthouse.local.naming import client_name, given_name
from posthouse.local.postgres.connection import ServerConnection
from posthouse.local.sharing import Sharing

log = logging.getLogger("posthouse.local")

MOST = 256
"""Connections that one pool may have; a share that does not fit in any more gets another pool."""


def options(url: str, *, pooled: bool, name: str) -> dict[str, Any]:
    """What each of our connections is opened with; nothing that a pooler does not know. Behind one nothing is prepared by name.
    `name` is what the server calls it, unless the URL says so."""
    given = "target_session_attrs" in urlsplit(url).query
    return {
        "connection_class": ServerConnection,
        "statement_cache_size": 0 if pooled else 100,
        "target_session_attrs": None if given else SessionAttribute.read_write,
        "server_settings": {"application_name": given_name(url) or name},
    }


def server_of(url: str) -> str:
    """Host and port, to tell whether two URLs lead to one server."""
    return urlsplit(url).netloc.rpartition("@")[2]


class Share:
    """The right to have up to `most` connections of a pool at once, for which one waits up to `patience` seconds. Those of one URL
    that have the same `sharing` use each other's connections while those are idle. The driver's own errors come out as
    they are."""

    def __init__(self, url: str, *, pooled: bool, most: int, patience: float, role: str = "pool") -> None:
        self.url = url
        self.name = client_name(role)
        """What its connections are called; those that are shared, by the first who needed them."""
        self.pooled = pooled
        self.most = most
        self.closed = False
        self.sharing: Sharing | None = None
        """With whom; decided before the first use."""
        self._patience = patience
        self._slots = asyncio.Semaphore(most)
        self._lent = 0
        self._pool: _Pool | None = None

    @property
    def in_use(self) -> int:
        """How many of them are lent at this moment."""
        return self._lent

    async def acquire(self) -> ServerConnection:
        """A connection, clean and outside of a transaction."""
        if self._slots.locked():
            async with asyncio.timeout(self._patience):
                await self._slots.acquire()
        else:
            await self._slots.acquire()
        try:
            if self.closed:
                raise asyncpg.InterfaceError("the connections were closed by this process")
            pool = self._pool
            if pool is None:
                pool = self._pool = _pool_of(self)
            connection = await pool.acquire(self._patience)
        except BaseException:
            self._slots.release()
            raise
        self._lent += 1
        return connection

    async def release(self, connection: ServerConnection) -> None:
        """Give it back; whoever still holds what was lent can do nothing more with it."""
        try:
            if self._pool is not None:
                await self._pool.release(connection)
        finally:
            self._lent -= 1
            self._slots.release()

    def expire(self) -> None:
        """The connections lead to a server that may not be written any more: the next ones look for the right one."""
        if self._pool is not None:
            self._pool.expire()

    async def aclose(self) -> None:
        """Give up the share; with the last one all connections are closed. Idempotent."""
        closed, self.closed = self.closed, True
        if not closed and self._pool is not None:
            await self._pool.leave(self, min(self._patience, 5.0))


class _Pool:
    """What shares have in common. A connection that only we have used is kept at hand: the way through the driver's pool costs as
    much as a statement."""

    def __init__(self, url: str, *, pooled: bool, room: int, name: str) -> None:
        self.room = room
        self._name = name
        self._url = url
        self._pooled = pooled
        self._size = room
        self._shares: set[Share] = set()
        self._driver: asyncpg.Pool[Any] | None = None
        self._opening = asyncio.Lock()
        self._spare: list[ServerConnection] = []
        self._expired = False
        self._generation = 0

    def enter(self, share: Share) -> None:
        self._shares.add(share)
        self.room -= share.most

    async def acquire(self, patience: float) -> ServerConnection:
        driver = self._driver or await self._open()
        if self._expired:
            self._expired = False
            await driver.expire_connections()
        generation = self._generation  # whatever we wait for below may be an old one by then
        while self._spare:
            connection = self._spare.pop()
            if not connection.is_closed():
                return connection
            await self._put_back(driver, connection)
        lent: Any = await driver.acquire(timeout=patience)
        fresh: ServerConnection = lent.itself
        fresh.lent, fresh.generation = lent, generation
        return fresh

    async def release(self, connection: ServerConnection) -> None:
        if self._driver is None:
            connection.terminate()
            return
        if connection.generation != self._generation:
            connection.terminate()  # the driver may take it for one that was made since
        if connection.is_closed() or connection.unclean or connection.is_in_transaction():
            await self._put_back(self._driver, connection)
        else:
            self._spare.append(connection)

    def expire(self) -> None:
        self._expired = True
        self._generation += 1
        for connection in self._spare:
            connection.terminate()

    async def leave(self, share: Share, seconds: float) -> None:
        self._shares.discard(share)
        self.room += share.most
        if self._shares:
            return
        driver, self._driver = self._driver, None
        if driver is None:
            return
        try:
            async with asyncio.timeout(seconds):
                while self._spare:
                    await self._put_back(driver, self._spare.pop())
                await driver.close()
        except Exception:  # a server that is away or hangs must not keep us from ending
            driver.terminate()

    async def _put_back(self, driver: asyncpg.Pool[Any], connection: ServerConnection) -> None:
        try:
            await driver.release(cast("Any", connection.lent))
        except Exception as error:  # whoever gives it back may have committed, and must not be told otherwise
            log.info("a connection was dropped: %s", error)
            connection.terminate()

    async def _open(self) -> asyncpg.Pool[Any]:
        async with self._opening:
            if self._driver is None:
                driver = options(self._url, pooled=self._pooled, name=self._name)
                self._driver = await asyncpg.create_pool(self._url, min_size=0, max_size=self._size, **driver)
            return self._driver


def _pool_of(share: Share) -> _Pool:
    made = {} if share.sharing is None else share.sharing.made
    key = (
        "postgresql",
        asyncio.get_running_loop(),
        share.url,
        share.pooled,
    )  # no loop can use another one's connections
    pool = made.get(key)
    if pool is None or pool.room < share.most:
        alone = share.sharing is None  # a pool costs for each connection that it might have
        room = share.most if alone else max(MOST, share.most)
        pool = made[key] = _Pool(share.url, pooled=share.pooled, room=room, name=share.name)
    pool.enter(share)
    return pool
