"""Lines: a handler that never lets the code that logs wait. A thread writes; whoever reads the log too slowly loses lines, which it says,
and no event waits for him."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections import deque
from typing import Protocol

MOST = 10_000
"""Lines that may wait to be written."""
LAST_WORDS = 2.0
"""Seconds for the rest, at the end."""


class Stream(Protocol):
    """What lines are written to, such as `sys.stderr`."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class Lines(logging.Handler):
    """Writes to a stream, stderr unless given. A line is formatted where it is logged, so that it knows its event. A logging call
    never raises, and never waits for the stream."""

    def __init__(self, stream: Stream | None = None, *, most: int = MOST) -> None:
        super().__init__()
        self._stream = stream or sys.stderr
        self._most = most
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._waiting: deque[str] = deque()
        self._change = threading.Condition(threading.Lock())
        self._writing = False
        self._left_out = 0
        self._closed = False
        self._writer: threading.Thread | None = None

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
        if self._pid != os.getpid():
            return
        until = time.monotonic() + LAST_WORDS
        with self._change:
            while (self._waiting or self._writing) and (left := until - time.monotonic()) > 0:
                self._change.wait(left)

    def close(self) -> None:
        """End the writer when it is done."""
        super().close()
        with self._change:
            self._closed = True
            self._change.notify_all()

    def _put(self, text: str) -> None:
        if self._pid != os.getpid():  # a child: the writer is its parent's
            self._begin()
        with self._change:
            if len(self._waiting) >= self._most:
                self._left_out += 1
                return
            self._waiting.append(text)
            if self._writer is None or not self._writer.is_alive():
                self._writer = threading.Thread(target=self._write, daemon=True, name="posthouse-log")
                self._writer.start()
            self._change.notify_all()

    def _write(self) -> None:
        while True:
            with self._change:
                while not self._waiting:
                    if self._closed:
                        return
                    self._change.wait()
                texts = list(self._waiting)
                self._waiting.clear()
                left_out, self._left_out = self._left_out, 0
                self._writing = True
            if left_out:
                texts.append(self.format(_told(left_out)))
            with contextlib.suppress(OSError, ValueError):  # nobody reads any more
                self._stream.write("".join(f"{text}\n" for text in texts))
                self._stream.flush()
            with self._change:
                self._writing = False
                self._change.notify_all()


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
