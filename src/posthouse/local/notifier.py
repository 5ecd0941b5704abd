"""A notifier between the processes of one machine: "something was committed". It may be lost, so nobody relies on it.

Each listener binds a datagram socket in a folder named after the file it listens for; notifying sends one byte to every
socket there. The folders lie in the user's run-time directory, else in one of the user's own in the temporary directory,
where anybody may have made that name first: one that is not ours alone is not used. Where there is no folder, or the system
has no such sockets, listeners simply wait out their polling interval.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import os
import secrets
import socket
import stat
import tempfile
import time
from pathlib import Path

_count = itertools.count()

LOOK = 0.002
"""Seconds between two looks for new listeners: a busy writer notifies thousands of times in one."""


class LocalNotifier:
    """Tells of one file. `notify` never blocks and never fails; `wait` returns early when somebody did. Any number of
    tasks may wait: each passes the count it saw last. Without a path it reaches this process only."""

    def __init__(self, path: Path | str | None) -> None:
        self._folder: Path | None = None
        if path is not None:
            digest = hashlib.blake2b(os.path.realpath(path).encode(), digest_size=8).hexdigest()
            self._folder = _home() / digest
        self._listener: socket.socket | None = None
        self._own: Path | None = None
        self._notices = 0
        self._waiters: set[asyncio.Future[None]] = set()
        self._sender: socket.socket | None = None
        self._neighbours: list[str] = []
        self._listed_at = -1
        self._looked_at = float("-inf")

    def notify(self) -> None:
        """Wake every waiter of this file, in this process and in others."""
        self.wake()
        for neighbour in self._others():
            try:
                self._send(neighbour)
            except (ConnectionRefusedError, FileNotFoundError):
                _remove(neighbour)  # its owner died without unbinding
            except OSError:
                pass  # its queue is full: it has been told already

    async def wait(self, seen: int, seconds: float) -> int:
        """The count, as soon as it differs from `seen`, at the latest after `seconds`."""
        self._listen()
        if self._notices == seen:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await waiter
            finally:
                self._waiters.discard(waiter)
        return self._notices

    def neighbourhood(self) -> str:
        """A text that is the same for all whom this notifier can reach, and for nobody else."""
        return _shared_text(self._folder.parent / "neighbourhood") if self._folder else secrets.token_hex(8)

    def close(self) -> None:
        """Stop listening. Idempotent."""
        if self._listener is not None:
            with contextlib.suppress(RuntimeError, ValueError):
                asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None
        if self._own is not None:
            with contextlib.suppress(OSError):
                self._own.unlink()
                self._own.parent.rmdir()  # unless others listen there
            self._own = None
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    def _others(self) -> list[str]:
        """Sockets of the folder but our own; listed again only when the folder changed."""
        if self._folder is None:
            return []
        now = time.monotonic()
        if now - self._looked_at < LOOK:
            return self._neighbours
        self._looked_at = now
        try:
            changed = os.stat(self._folder, follow_symlinks=False).st_mtime_ns
        except OSError:
            return []
        if not (_is_ours(self._folder.parent) and _is_ours(self._folder)):
            return []
        if changed != self._listed_at:
            with contextlib.suppress(OSError):
                own = str(self._own) if self._own else ""
                self._neighbours = [entry.path for entry in os.scandir(self._folder) if entry.path != own]
                # A folder's time stands still for some milliseconds: another listener may bind within the same tick.
                self._listed_at = changed if time.time_ns() - changed > 50_000_000 else -1
        return self._neighbours

    def _send(self, neighbour: str) -> None:
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
        self._sender.sendto(b"!", neighbour)

    def wake(self) -> None:
        """Wake every waiter in this process alone."""
        self._notices += 1
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _listen(self) -> None:
        if self._folder is None or self._listener is not None or not hasattr(socket, "AF_UNIX"):
            return
        with contextlib.suppress(OSError):
            if not (_made(self._folder.parent) and _made(self._folder)):
                return
            own = self._folder / f"{os.getpid()}-{next(_count)}"
            _remove(str(own))  # left by a process that had our number
            self._listener, self._own = _bound(own), own
            asyncio.get_running_loop().add_reader(self._listener.fileno(), self._heard)

    def _heard(self) -> None:
        with contextlib.suppress(OSError):
            while self._listener is not None and self._listener.recv(64):
                pass
        self.wake()


def _shared_text(file: Path) -> str:
    """What the first of all processes drew by lot; in doubt a new text, which nobody shares."""
    drawn = secrets.token_hex(8)
    try:
        if not _made(file.parent):
            return drawn
        with tempfile.NamedTemporaryFile("w", dir=file.parent, encoding="ascii") as new:
            new.write(drawn)
            new.flush()
            with contextlib.suppress(FileExistsError):
                os.link(new.name, file)  # whole or not at all
        return file.read_text(encoding="ascii") or drawn
    except OSError:
        return drawn


def _home() -> Path:
    """Where this user's bells hang: the same for all processes of one user that share a run-time directory, or have none."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given and _is_ours(Path(given)):
        return Path(given) / "posthouse"
    return Path(tempfile.gettempdir()) / f"posthouse-{_user()}"


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _made(folder: Path) -> bool:
    """Make a folder that nobody else can write into, unless it is there; whether it is one."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    return _is_ours(folder)


def _is_ours(folder: Path) -> bool:
    """Whether it is a folder, no link to one, of this user, in which nobody else can make or replace anything."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == _user() and not found.st_mode & 0o022


def _remove(path: str) -> None:
    """Remove a socket of this user's, and nothing else."""
    with contextlib.suppress(OSError):
        found = os.lstat(path)
        if stat.S_ISSOCK(found.st_mode) and found.st_uid == _user():
            os.unlink(path)


def _bound(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        listener.setblocking(False)
        listener.bind(str(path))
    except OSError:
        listener.close()
        raise
    return listener
