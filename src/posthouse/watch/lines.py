"""Lines: a handler that never lets the code that logs wait. A thread writes; whoever reads the log too slowly loses lines, which it says,
and no event waits for him."""

from __future__ import annotations

import logging
import sys
import threading
import time
import weakref
from collections import deque
from typing import Any, Protocol

from posthouse import forks

MOST = 10_000
"""Lines that may wait to be written."""
MOST_CHARACTERS = 32 * 1024 * 1024
"""And how much they may be together."""
LAST_WORDS = 2.0
"""Seconds for the rest, at the end."""


class Stream(Protocol):
    """What lines are written to, such as `sys.stderr`."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class Lines(logging.Handler):
    """Writes to a stream, stderr unless given. A line is formatted where it is logged, so that it knows its event. A logging call
    never raises, and never waits for the stream; a signal handler and a finaliser may log in the midst of another call."""

    def __init__(self, stream: Stream | None = None, *, most: int = MOST) -> None:
        super().__init__()
        self._stream = stream or sys.stderr
        self._most = most
        self._end: Any = None
        self.begin_anew()
        forks.tell(self)

    def begin_anew(self) -> None:
        """Also in the child of a fork: the writer, and what waited for it, are its parent's."""
        self._waiting: deque[str] = deque()
        self._size = 0
        self._change = threading.Condition(threading.RLock())  # whoever logs inside of it is let in again
        self._writing = False
        self._left_out = 0
        self._closed = False
        self._writer: threading.Thread | None = None

    def handle(self, record: logging.LogRecord) -> bool:
        """As any handler, and without its lock: nobody waits while another's line is put into words."""
        shown: object = self.filter(record)  # from Python 3.12 on maybe another record
        if shown:
            self.emit(shown if isinstance(shown, logging.LogRecord) else record)
        return bool(shown)

    def emit(self, record: logging.LogRecord) -> None:
        """Hand the line to the writer."""
        try:
            self._put(self.format(record))
        except Exception:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Nothing: what cannot be logged must not break what was to be logged."""

    def flush(self) -> None:
        """Wait until all is written, what filters have to add as well, for a moment."""
        for one in self.filters:
            if (finish := getattr(one, "finish", None)) is not None:
                finish()
        until = time.monotonic() + LAST_WORDS
        with self._change:
            if self._writer is None and self._waiting:  # none can be started any more
                self._write_those(*self._taken())
            while (self._waiting or self._writing) and (left := until - time.monotonic()) > 0:
                self._change.wait(left)

    def close(self) -> None:
        """End the writer when it is done."""
        super().close()
        with self._change:
            self._closed = True
            self._change.notify_all()

    def _put(self, text: str) -> None:
        with self._change:
            if len(self._waiting) >= self._most or self._size > MOST_CHARACTERS:
                self._left_out += 1
                return
            self._waiting.append(text)
            self._size += len(text)
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, daemon=True, name="posthouse-log")
                try:
                    self._writer.start()
                except RuntimeError:  # the process ends: flush writes
                    self._writer = None
            self._change.notify_all()
        if self._end is None or not self._end.still_active():
            self._end = _at_the_end_of_a_child(self)

    def _write(self) -> None:
        while True:
            with self._change:
                while not self._waiting:
                    if self._closed:
                        self._writer = None
                        return
                    self._change.wait()
                self._writing = True
                texts, left_out = self._taken()
            self._write_those(texts, left_out)
            with self._change:
                self._writing = False
                self._change.notify_all()

    def _taken(self) -> tuple[deque[str], int]:
        """What waits, in one step: what is logged meanwhile is either among these or waits."""
        texts, self._waiting, self._size = self._waiting, deque(), 0
        left_out, self._left_out = self._left_out, 0
        return texts, left_out

    def _write_those(self, texts: deque[str], left_out: int) -> None:
        if left_out:
            texts.append(self.format(_told(left_out)))
        whole = "".join(f"{text}\n" for text in texts)
        try:
            try:
                self._stream.write(whole)
            except UnicodeEncodeError as error:
                self._stream.write(whole.encode(error.encoding, "backslashreplace").decode(error.encoding))
            self._stream.flush()
        except Exception:  # nobody reads, or not now
            with self._change:
                self._left_out += len(texts)


def _at_the_end_of_a_child(handler: Lines) -> Any:
    """Processes of `multiprocessing` end without `atexit`, by their own list, which is emptied when they begin."""
    util = sys.modules.get("multiprocessing.util")
    return None if util is None else util.Finalize(handler, _flush, args=(weakref.ref(handler),), exitpriority=-100)


def _flush(handler: weakref.ref[Lines]) -> None:
    if (one := handler()) is not None:
        one.flush()


def _told(left_out: int) -> logging.LogRecord:
    return logging.makeLogRecord(
        {
            "name": "posthouse.logs",
            "levelno": logging.ERROR,
            "levelname": "ERROR",
            "msg": "whoever reads the log does not keep up: %d lines were left out",
            "args": (left_out,),
        }
    )
