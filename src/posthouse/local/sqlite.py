"""A SQLite file that several processes write: opened safely, begun without blocking the loop, checkpointed by one.

Statements run on the event loop's own thread. A hop to another thread and back costs more than the commit it would hide
(`docs/adr/0002-sqlite-on-the-loop.md`); waiting for another process's write lock is the only long wait, and that one is
asynchronous.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from posthouse.clock import backoff
from posthouse.errors import (
    ConfigurationError,
    PosthouseError,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnavailable,
    ValueRefused,
    did_you_mean,
)

try:  # Windows has no flock; there every process checkpoints and the lock is SQLite's own.
    import fcntl
except ImportError:  # pragma: no cover
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("posthouse.local")

OLDEST = (3, 35, 0)
"""RETURNING and upsert as we use them."""
WAL_RACE_FIXED = (3, 51, 3)
"""Before it, two connections that write and checkpoint at one moment can corrupt a WAL file, very rarely."""
NETWORK_FILESYSTEMS = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "glusterfs")
)

MIB = 1024 * 1024
PAGE = 4096
LOOK = 8
"""Commits between two looks at the WAL."""
PAGES_PER_COMMIT, PAGES_PER_ROW = 6, 1 / 3
"""What a commit writes to the WAL, roughly: some pages in any case, and more for each row of about a kilobyte."""

FIRST_PAUSE, LAST_PAUSE = 0.0003, 0.015
"""Seconds between two tries at what another process holds."""

Synchronous = Literal["FULL", "NORMAL"]
Inode = tuple[int, int]
"""Device and number: which file has a name, as long as somebody has it open; then the number may be given again."""
T = TypeVar("T")


class NumbersAsNames(sqlite3.Connection):
    """For Python 3.12.0 to 3.12.3, which take `?1` for a name and warn of it when they get a sequence."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return super().execute(sql, _named(parameters) if "?1" in sql else parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        return super().executemany(sql, map(_named, parameters) if "?1" in sql else parameters)


def _named(parameters: Sequence[Any]) -> Mapping[str, Any]:
    return {str(number): value for number, value in enumerate(parameters, 1)}


CONNECTION = NumbersAsNames if (3, 12) <= sys.version_info < (3, 12, 4) else sqlite3.Connection


def connect(path: Path | str, *, synchronous: Synchronous = "FULL") -> sqlite3.Connection:
    """A connection in WAL mode with no implicit BEGIN and no implicit checkpoint; `:memory:` is allowed.

    FULL: a commit survives power loss. NORMAL: it survives a crash of the process, and power loss may undo the last
    ones; for writes whose loss only repeats work.
    """
    if isinstance(path, Path) and not path.parent.is_dir():
        raise StoreUnavailable(f"opening {path}: there is no folder {path.parent}: make it, or name another file")
    with mapped(f"opening {path}"):
        connection = sqlite3.connect(
            path,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=CONNECTION,
        )
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA synchronous={synchronous}")
            connection.execute("PRAGMA mmap_size=0")
            connection.execute("PRAGMA foreign_keys=ON")
            connection.execute("PRAGMA wal_autocheckpoint=0")
        except BaseException:
            connection.close()
            raise
    return connection


def absent(path: Path) -> str:
    """A sentence on a file that is not there, with those beside it that it may be."""
    if not path.parent.is_dir():
        return f"{path} is not there, nor is its folder"
    beside = [file.name for file in path.parent.glob(f"*{path.suffix}") if file.is_file()]
    hint = did_you_mean(path.name, beside)
    return f"{path} is not there.{hint if 'Did you mean' in hint else ''}"


def look_into(path: Path) -> sqlite3.Connection:
    """A connection to a file that is there, for reading: it neither makes the file nor changes how it is written. Raises
    StoreUnavailable where that cannot be."""
    with mapped(f"opening {path}"):
        return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=0, isolation_level=None)


def check_place(path: Path) -> list[str]:
    """Sentences on what weakens the promise here. Raises ConfigurationError where it cannot be kept at all."""
    if sqlite3.sqlite_version_info < OLDEST:
        raise ConfigurationError(
            f"SQLite {sqlite3.sqlite_version} is too old: {'.'.join(map(str, OLDEST))} or later is needed (use a newer Python)"
        )
    kind = filesystem_of(path)
    if kind in NETWORK_FILESYSTEMS:
        raise ConfigurationError(
            f"{path} lies on a network filesystem ({kind}), where SQLite's locks do not hold: use a local disk or PostgreSQL"
        )
    if sqlite3.sqlite_version_info < WAL_RACE_FIXED:
        return [
            f"SQLite {sqlite3.sqlite_version} has the WAL-reset race mended in 3.51.3; one checkpointer at a time is kept"
        ]
    return []


def filesystem_of(path: Path) -> str:
    """The type of the filesystem that holds the path, or an empty text where the system does not tell."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    place = os.path.realpath(path.parent)
    fields = (line.split(" ") for line in mounts)
    holders = [(f[1], f[2]) for f in fields if place == f[1] or place.startswith(f[1].rstrip("/") + "/")]
    return max(holders, key=lambda holder: len(holder[0]), default=("", ""))[1]


async def begin(connection: sqlite3.Connection, *, patience: float = 30.0) -> None:
    """BEGIN IMMEDIATE, waiting for other processes without blocking the loop. StoreUnavailable after `patience` seconds."""
    with mapped("beginning a transaction"):
        await patiently(lambda: connection.execute("BEGIN IMMEDIATE"), patience=patience)


async def patiently(run: Callable[[], T], *, patience: float = 30.0) -> T:
    """What `run` returns, called again while another process holds what it needs; it must be safe to call again.

    Reading may be held up too: by a process that recovers the file after another one was killed. StoreUnavailable
    after `patience` seconds, as StoreBusy; other errors pass through.
    """
    deadline = time.monotonic() + patience
    attempts = 0
    while True:
        attempts += 1
        try:
            return run()
        except (sqlite3.OperationalError, StoreUnavailable) as error:
            if not is_busy(error.__cause__ if isinstance(error, StoreUnavailable) else error):
                raise
        if time.monotonic() > deadline:
            raise StoreBusy(
                f"another process has held the write lock for {patience:g} s: look for a transaction that was left open"
            )
        await asyncio.sleep(backoff(attempts, FIRST_PAUSE, LAST_PAUSE, factor=1.5, spread=2 / 3))


def is_busy(error: BaseException | None) -> bool:
    """Whether another connection holds what we need."""
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


MISFITS = (OverflowError, UnicodeEncodeError)
"""What the driver itself says of a value that it cannot hand over: an integer beyond 64 bits, half a surrogate pair."""
REFUSED = (sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH)


def translated(error: sqlite3.Error | OverflowError | UnicodeEncodeError, doing: str) -> PosthouseError:
    """The error of our tree that says the same."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    text = f"{doing}: {error}"
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(f"{text}: nothing was written; free some space and it goes on")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        return StoreUnavailable(text)
    if code in REFUSED or isinstance(error, (*MISFITS, sqlite3.DataError)):
        return ValueRefused(text)
    return StoreError(text)


@contextlib.contextmanager
def mapped(doing: str) -> Iterator[None]:
    """Turn sqlite3's errors into ours."""
    try:
        yield
    except (sqlite3.Error, *MISFITS) as error:
        raise translated(error, doing) from error


def checkpoint(path: Path, connection: sqlite3.Connection) -> None:
    """Move the WAL into the file and give its space back, unless another process is at it. Never raises."""
    with contextlib.suppress(OSError, sqlite3.Error), _alone(Path(f"{path}-checkpoint.lock")) as alone:
        if alone:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class Checkpointer:
    """Keeps the WAL of one file short and its space in place: a synced commit into space that the WAL already has takes
    half the time of one that makes it grow, so it is emptied often, and truncated only when it is far too long.

    After about `pages` pages: SQLite does not tell how many it wrote, so they are guessed from the rows that changed;
    or when the WAL grew by `growth` bytes, because the rows were large. Above `most` bytes it is truncated.
    Housekeeping only: `committed` never raises.
    """

    def __init__(self, path: Path, *, pages: int = 1000, growth: int = 4 * MIB, most: int = 64 * MIB) -> None:
        self._path = path
        self._pages, self._growth, self._most = pages, growth, most
        self._commits = 0
        self._written = 0.0
        self._size = 0
        self._changes: dict[int, int] = {}

    def committed(self, connection: sqlite3.Connection) -> None:
        """Call it after each commit, on a connection outside a transaction."""
        self._commits += 1
        if self._commits % LOOK == 1:
            self._look(connection)

    def _look(self, connection: sqlite3.Connection) -> None:
        total = connection.total_changes
        rows = total - self._changes.get(id(connection), 0)
        self._changes[id(connection)] = total
        self._written += LOOK * PAGES_PER_COMMIT + max(rows, 0) * PAGES_PER_ROW
        try:
            size = self._wal()
            if self._commits == 1:
                self._written += size / PAGE  # what earlier processes left there, who may never live long enough
            if self._written >= self._pages or size > self._size + self._growth:
                self._empty(connection)
        except (OSError, sqlite3.Error) as error:
            log.warning("the WAL of %s was not emptied: %s", self._path, error)

    def _empty(self, connection: sqlite3.Connection) -> None:
        how = "TRUNCATE" if self._wal() > self._most else "PASSIVE"
        with _alone(Path(f"{self._path}-checkpoint.lock")) as alone:
            if alone:
                connection.execute(f"PRAGMA wal_checkpoint({how})").fetchall()
        self._written, self._size = 0.0, self._wal()

    def _wal(self) -> int:
        return os.stat(f"{self._path}-wal").st_size


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[bool]:
    if fcntl is None:  # pragma: no cover
        yield True
        return
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True


def inode(path: Path) -> Inode | None:
    """None when nothing that can be reached has this name. Never opens it: closing it again would end the locks that SQLite has on it."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
