"""Repeats: the same line again and again is one line with a count. Nothing is silent: the count comes at the latest a minute later, or at
the end."""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from posthouse import forks
from posthouse.options import Count, checked
from posthouse.seam.current import current
from posthouse.seam.words import attempted

PATIENCE = 0.05
"""Seconds to wait for another thread that counts, which takes microseconds."""
LAST_WORDS = 1.0
"""Seconds to try, where the counts are asked for and another thread is in the midst of them."""
MINUTE = 60.0
MOST = 2_000
"""Different lines that are counted at once; what comes beyond is let through."""
WHOSE = ("consumer", "handler", "error_type")
"""Lines of one template that differ in these are different lines."""
FOR_GOOD = ("dead", "quarantined")
"""Outcomes that somebody has to look at: each of these lines is shown."""

Key = tuple[object, ...]


@dataclass
class _Seen:
    since: float
    shown: int = 0
    left_out: int = 0


class Repeats(logging.Filter):
    """Lets a line through `most` times a minute; then says how many like it were left out. Lines count as the same by their
    logger, level and template. It looks at loggers below `name`, at all when that is empty. A failure that makes an event dead
    is never left out.

    `tell` gets the line with the count; without it, the logger does.
    """

    @checked
    def __init__(
        self, name: str = "posthouse", most: Count = 60, tell: Callable[[logging.LogRecord], object] | None = None
    ) -> None:
        super().__init__(name)
        self._most = most
        self._tell = tell or _through_its_logger
        self.begin_anew()
        forks.tell(self)
        atexit.register(self.finish)

    def begin_anew(self) -> None:
        """Also in the child of a fork: what was left out so far, its parent tells."""
        self._seen: dict[Key, _Seen] = {}
        self._lock = threading.RLock()
        self._counts = False
        self._teller: threading.Thread | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is shown; what was decided for one handler holds for all. What cannot be compared is shown."""
        known = record.__dict__.get("_posthouse_shown")
        if known is None:
            known = record.__dict__["_posthouse_shown"] = attempted(lambda: self._is_shown(record), True)
        return bool(known)

    def finish(self) -> None:
        """Say at once what was left out so far."""
        until = time.monotonic() + LAST_WORDS
        while not self._tell_those_since(float("inf")) and time.monotonic() < until:
            time.sleep(PATIENCE)

    def _is_shown(self, record: logging.LogRecord) -> bool:
        if not super().filter(record) or getattr(record, "outcome", None) in FOR_GOOD:
            return True
        whose = {"consumer": current().consumer, **record.__dict__}
        key = (record.name, record.levelno, str(record.msg), *(str(whose.get(name, "")) for name in WHOSE))
        now = time.monotonic()
        with self._counting() as alone:
            if not alone:
                return True
            seen = self._seen.get(key)
            if seen is None or (now - seen.since >= MINUTE and not seen.left_out):
                if seen is None and len(self._seen) >= MOST and not self._made_room(now):
                    return True
                seen = self._seen[key] = _Seen(now)
            if seen.shown < self._most:
                seen.shown += 1
                return True
            seen.left_out += 1
            if self._teller is None or not self._teller.is_alive():
                self._teller = threading.Thread(target=self._tell_in_time, daemon=True, name="posthouse-repeats")
                with contextlib.suppress(RuntimeError):  # the process ends, and `finish` tells
                    self._teller.start()
            return False

    @contextlib.contextmanager
    def _counting(self) -> Iterator[bool]:
        """One at a time. False in a signal handler or a finaliser that logs in the midst of it, in the same thread; and where whoever
        is in it does not come out, because such a one of his waits for the thread that asks."""
        lock = self._lock
        if not lock.acquire(timeout=PATIENCE):
            yield False
            return
        try:
            if self._counts:
                yield False
                return
            self._counts = True
            try:
                yield True
            finally:
                self._counts = False
        finally:
            lock.release()

    def _made_room(self, now: float) -> bool:
        for key in [key for key, seen in self._seen.items() if now - seen.since >= MINUTE and not seen.left_out]:
            del self._seen[key]
        return len(self._seen) < MOST

    def _tell_in_time(self) -> None:
        """Runs while something was left out that was not told."""
        while True:
            wait = PATIENCE
            with self._counting() as alone:
                if alone:
                    waiting = [seen.since for seen in self._seen.values() if seen.left_out]
                    if not waiting:
                        self._teller = None
                        return
                    wait = min(waiting) + MINUTE - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            self._tell_those_since(time.monotonic() - MINUTE)

    def _tell_those_since(self, latest: float) -> bool:
        """False where another is counting, and nothing could be told."""
        with self._counting() as alone:
            if not alone:
                return False
            due = [(key, seen) for key, seen in self._seen.items() if seen.left_out and seen.since <= latest]
            for key, _ in due:
                del self._seen[key]
        for key, seen in due:
            with contextlib.suppress(Exception):
                self._tell(_count(key, seen))
        return True


def _count(key: Key, seen: _Seen) -> logging.LogRecord:
    name, level, template, *whose = key
    seconds = max(1, round(time.monotonic() - seen.since))
    fields = {field: value for field, value in zip(WHOSE, whose, strict=True) if value}
    of = f" ({', '.join(map(str, fields.values()))})" if fields else ""
    return logging.makeLogRecord(
        {
            "name": name,
            "levelno": level,
            "levelname": logging.getLevelName(int(str(level))),
            "msg": "%d lines like this were left out in %d s: %s%s",
            "args": (seen.left_out, seconds, template, of),
            "repeats": seen.left_out,
            "_posthouse_shown": True,
            **fields,
        }
    )


def _through_its_logger(record: logging.LogRecord) -> None:
    logging.getLogger(record.name).handle(record)
