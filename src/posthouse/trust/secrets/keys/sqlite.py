"""SqliteKeys: the keys in a file of their own, for services on one host. What is erased is overwritten in the file."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError, SecretsUnavailable, StoreError, ValueRefused
from posthouse.local.sqlite import MISFITS, Inode, check_place, connect, inode
from posthouse.trust.secrets.keystore import Erasure, Holder, KeyStore, StoredKey

T = TypeVar("T")

TABLES = """
CREATE TABLE IF NOT EXISTS posthouse_key (
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    wrapped BLOB,
    made_at REAL NOT NULL,
    erased_at REAL,
    erasure INTEGER,
    why TEXT NOT NULL DEFAULT '',
    by TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, subject)
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS posthouse_key_erasure ON posthouse_key (erasure) WHERE erasure IS NOT NULL;
CREATE TABLE IF NOT EXISTS posthouse_key_holder (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    forgot INTEGER NOT NULL,
    seen_at REAL NOT NULL,
    lease REAL NOT NULL
) STRICT;
"""
TOMBSTONES = "SELECT tenant, subject, why, by, erased_at, erasure FROM posthouse_key WHERE erasure IS NOT NULL"
FORGOTTEN = 86_400.0
"""Seconds after which a process that fell silent is not listed any more."""
PAUSE = 0.005


def open_at(url: str, patience: float) -> KeyStore:
    """At `sqlite:///keys.db`."""
    path = unquote(urlsplit(url).path)[1:]
    if not path:
        raise ConfigurationError(f"{url} names no file: write sqlite:///keys.db")
    return SqliteKeys(Path(path), patience)


class SqliteKeys:
    """`path` is the file, `patience` the seconds to wait for a writer of another process."""

    def __init__(self, path: Path, patience: float = 5.0) -> None:
        self.path = path.absolute()
        self.place = f"sqlite:///{self.path}"
        self._patience = patience
        self._clock = SystemClock()
        self._connection: sqlite3.Connection | None = None
        self._inode: Inode | None = None
        """Which file it was opened on: its name may have become that of another, as of one from a backup."""

    async def upgrade(self) -> bool:
        with _mapped():
            check_place(self.path)
            made = not self.path.exists()
            if made:
                with contextlib.suppress(FileExistsError):
                    self.path.touch(0o600, exist_ok=False)
        await self._do(lambda run: run.executescript(TABLES), begin="")
        return made

    async def begin(self) -> None:
        if not self.path.exists():
            await self.upgrade()
        await self.present()

    async def is_new(self) -> bool:
        return not await self._do(_all("SELECT 1 FROM posthouse_key LIMIT 1"))

    async def present(self) -> None:
        if not self.path.exists():
            raise SecretsUnavailable(self._absent)
        names = {row[0] for row in await self._do(_all("SELECT name FROM sqlite_master"))}
        if "posthouse_outbox" in names:
            raise ConfigurationError(
                f"{self.path} is the store of a service, whose backups would bring erased keys back: let the keys have a file of their own"
            )
        if "posthouse_key_holder" not in names:
            await self.upgrade()

    async def get(self, tenant: str, subjects: Collection[str]) -> Mapping[str, StoredKey]:
        rows = await self._do(_all(_get(len(subjects)), tenant, *subjects))
        return {row[1]: StoredKey(*row) for row in rows}

    async def add(self, tenant: str, wrapped: Mapping[str, bytes]) -> Mapping[str, StoredKey]:
        def add(run: sqlite3.Connection) -> list[Any]:
            run.executemany(
                "INSERT INTO posthouse_key (tenant, subject, wrapped, made_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                [(tenant, subject, key, self._clock.now()) for subject, key in wrapped.items()],
            )
            return run.execute(_get(len(wrapped)), (tenant, *wrapped)).fetchall()

        return {row[1]: StoredKey(*row) for row in await self._do(add)}

    async def erase(self, erasure: Erasure) -> Erasure:
        def erase(run: sqlite3.Connection) -> Erasure:
            run.execute(
                "INSERT INTO posthouse_key (tenant, subject, made_at, erased_at, erasure, why, by) SELECT ?1, ?2, ?3, ?3, "
                "max(coalesce(max(erasure), 0) + 1, ?6), ?4, ?5 FROM posthouse_key WHERE true "
                "ON CONFLICT (tenant, subject) DO UPDATE SET wrapped = NULL, erased_at = excluded.erased_at, "
                "erasure = excluded.erasure, why = excluded.why, by = excluded.by WHERE erasure IS NULL",
                (erasure.tenant, erasure.subject, erasure.at, erasure.why, erasure.by, int(self._clock.now() * 1000)),
            )
            found = run.execute(f"{TOMBSTONES} AND tenant = ? AND subject = ?", (erasure.tenant, erasure.subject))
            return _erasure(found.fetchone())

        stands = await self._do(erase)
        await self._do(lambda run: run.execute("PRAGMA wal_checkpoint(TRUNCATE)"), begin="")  # the log has the key too
        return stands

    async def erased(self, tenant: str | None = None, subjects: Collection[str] | None = None) -> Sequence[Erasure]:
        where, values = "", list[str]()
        if tenant is not None:
            where, values = " AND tenant = ?", [tenant]
        if subjects is not None:
            where, values = f"{where} AND subject IN ({_marks(subjects)})", [*values, *subjects]
        rows = await self._do(_all(f"{TOMBSTONES}{where} ORDER BY erasure", *values))
        return [_erasure(row) for row in rows]

    async def list(self, tenant: str, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        sql = (
            "SELECT tenant, subject, wrapped, made_at, erased_at FROM posthouse_key WHERE tenant = ? AND subject > ? "
            "ORDER BY subject LIMIT ?"
        )
        return [StoredKey(*row) for row in await self._do(_all(sql, tenant, after, limit))]

    async def hear(self, holder: Holder) -> tuple[int, Sequence[tuple[str, str]]]:
        def hear(run: sqlite3.Connection) -> tuple[int, Sequence[tuple[str, str]]]:
            now = self._clock.now()
            run.execute(
                "INSERT INTO posthouse_key_holder (id, name, forgot, seen_at, lease) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) "
                "DO UPDATE SET forgot = excluded.forgot, seen_at = excluded.seen_at, lease = excluded.lease",
                (holder.id, holder.name, holder.forgot, now, holder.lease),
            )
            run.execute("DELETE FROM posthouse_key_holder WHERE seen_at < ?", (now - FORGOTTEN,))
            (last,) = run.execute("SELECT coalesce(max(erasure), 0) FROM posthouse_key").fetchone()
            if holder.forgot > 0:
                known = run.execute("SELECT 1 FROM posthouse_key WHERE erasure = ?", (holder.forgot,)).fetchone()
                last = last if known else 0
            since = last if holder.forgot < 0 else holder.forgot
            found = run.execute("SELECT tenant, subject FROM posthouse_key WHERE erasure > ?", (since,)).fetchall()
            return last, [(row[0], row[1]) for row in found]

        return await self._do(hear)

    async def holders(self) -> Sequence[Holder]:
        rows = await self._do(
            _all("SELECT id, name, forgot, seen_at, lease FROM posthouse_key_holder ORDER BY seen_at DESC")
        )
        now = self._clock.now()
        return [Holder(id=row[0], name=row[1], forgot=row[2], age=now - row[3], lease=row[4]) for row in rows]

    async def leave(self, id: str) -> None:
        await self._do(lambda run: run.execute("DELETE FROM posthouse_key_holder WHERE id = ?", (id,)))

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @property
    def _absent(self) -> str:
        return (
            f"the key store {self.path} is not there: mount it where it was, or bring it back from its backup. Where there never was "
            "one, or it is lost with all that it opens, `posthouse subject upgrade TARGET` makes a new one"
        )

    async def _do(self, work: Callable[[sqlite3.Connection], T], begin: str = "BEGIN IMMEDIATE") -> T:
        """One transaction, tried again while another process writes. It never waits but for that."""
        until = time.monotonic() + self._patience
        while True:
            try:
                with _mapped():
                    return self._once(work, begin)
            except SecretsUnavailable as error:
                if not _is_busy(error.__cause__) or time.monotonic() > until:
                    raise
            await asyncio.sleep(PAUSE)

    def _once(self, work: Callable[[sqlite3.Connection], T], begin: str) -> T:
        if self._connection is not None and self._inode != inode(
            self.path
        ):  # somebody has put another file in its place
            self._connection.close()
            self._connection = None
        if self._connection is None:
            if not self.path.exists():
                raise SecretsUnavailable(self._absent)
            self._connection = connect(self.path)
            self._inode = inode(self.path)
            self._connection.execute("PRAGMA secure_delete=ON")
            self._connection.execute("PRAGMA wal_autocheckpoint=1000")
        run = self._connection
        if not begin:
            return work(run)
        run.execute(begin)
        try:
            found = work(run)
        except BaseException:
            run.execute("ROLLBACK")
            raise
        run.execute("COMMIT")
        return found


@contextlib.contextmanager
def _mapped() -> Iterator[None]:
    try:
        yield
    except (*MISFITS, sqlite3.DataError, sqlite3.IntegrityError) as error:
        raise ValueRefused(f"the key store takes no such value: {error}") from error
    except (sqlite3.Error, OSError, StoreError) as error:
        if isinstance(error, SecretsUnavailable):
            raise
        raise SecretsUnavailable(f"the key store: {error}") from error


def _is_busy(error: BaseException | None) -> bool:
    """Whether somebody else writes, or opens the file for the first time."""
    if error is None or isinstance(error, sqlite3.OperationalError):
        return "locked" in str(error)
    return _is_busy(error.__cause__)


def _all(sql: str, *values: object) -> Callable[[sqlite3.Connection], list[Any]]:
    return lambda run: run.execute(sql, values).fetchall()


def _get(many: int) -> str:
    """The keys of so many persons of a tenant."""
    marks = ", ".join("?" * many)
    return f"SELECT tenant, subject, wrapped, made_at, erased_at FROM posthouse_key WHERE tenant = ? AND subject IN ({marks})"


def _marks(values: Collection[str]) -> str:
    return ", ".join("?" * len(values))


def _erasure(row: Any) -> Erasure:
    tenant, subject, why, by, at, number = row
    return Erasure(tenant=tenant, subject=subject, why=why, by=by, at=at, number=number)
