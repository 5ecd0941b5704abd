"""The nursery's own process: reads requests, forks, and tells what became of the children."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import select
import signal
import sys
import traceback
from pathlib import Path

import msgspec

from posthouse.stores.postgres import schema as postgres
from posthouse.stores.sqlite import schema as sqlite
from tests.faults.kit.nursery import AnyJob, News, Send, Start

FAILED = 70


class Forking:
    """Single-threaded: between two requests it waits for children and for more requests."""

    def __init__(self) -> None:
        self._children: set[int] = set()
        self._unread = b""
        self._wake, bell = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(bell, False)
        signal.set_wakeup_fd(bell, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # a child lets it in when it is ready to be told

    def run(self) -> None:
        """Until the client closes its end; then no child is left."""
        open_for_requests = True
        while open_for_requests:
            ready = select.select([0, self._wake], [], [])[0]
            if self._wake in ready:
                os.read(self._wake, 4096)
            self._reap(os.WNOHANG)
            if 0 in ready:
                open_for_requests = self._read()
        for pid in tuple(self._children):
            os.kill(pid, signal.SIGKILL)
        while self._children:
            self._reap(0)

    def _read(self) -> bool:
        chunk = os.read(0, 65536)
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        for line in lines:
            request = msgspec.json.decode(line, type=Start | Send)
            if isinstance(request, Start):
                self._fork(request.job)
            elif request.pid in self._children:
                os.kill(request.pid, request.signal)
        return bool(chunk)

    def _fork(self, job: AnyJob) -> None:
        pid = os.fork()
        if pid == 0:
            live(job)
        self._children.add(pid)
        tell(News(pid, "started"))

    def _reap(self, how: int) -> None:
        while self._children:
            try:
                pid, status = os.waitpid(-1, how | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                tell(News(pid, "stopped"))
            elif os.WIFCONTINUED(status):
                tell(News(pid, "continued"))
            else:
                self._children.discard(pid)
                tell(News(pid, "ended", os.waitstatus_to_exitcode(status)))


def live(job: AnyJob) -> None:
    """The life of a child; it never returns."""
    code = FAILED
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(os.open(Path(job.folder) / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), 2)
        os.dup2(2, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        job()
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def tell(news: News) -> None:
    """Unless the client has gone: then the children go next."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, msgspec.json.encode(news) + b"\n")


def warm_up() -> None:
    """Load what would otherwise be loaded by each child anew, and keep the collector off what they share."""
    sqlite.migrations()
    postgres.migrations()
    asyncio.new_event_loop().close()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    warm_up()
    Forking().run()
