"""HTTP: a small server in a thread with an event loop of its own, so that it answers while the loop of the workers hangs.

It takes GET and HEAD, one request per connection, and is bounded in everything that a client could make large: connections, the
bytes of a request, the seconds it may take to send one and to read the answer. Where all places are taken, the oldest client
makes room that has not sent a whole request yet or has its answer, and only without any the oldest that waits for one: whoever only
connects takes no scrape away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from posthouse.redaction import words_of
from posthouse.watch.address import address_of

log = logging.getLogger("posthouse.watch")

PLACES = 64
"""Connections at a time."""
LARGEST_HEAD = 16 * 1024
"""Bytes of a request line with its headers."""
SEND_WITHIN = 5.0
"""Seconds for a client to send a request."""
ANSWER_WITHIN = 15.0
"""Seconds for an answer to be made, and as many for the client to read it."""
PIECE = 64 * 1024
"""Bytes of an answer that are handed on at a time: whoever does not read costs no copy of the rest, and holds nobody up."""
LINGER = 1.0
"""Seconds in which what a client still sends is thrown away, so that it reads the answer before the connection ends."""
LAST_WORDS = 2.0
"""Seconds for the thread to end."""
SAID_EVERY = 60.0
"""Seconds between two lines of the log that say that no connection can be taken."""

TEXT = "text/plain; charset=utf-8"
METHODS = ("GET", "HEAD")


class Request(NamedTuple):
    """What is asked. The names of headers are in small letters."""

    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    method: str = "GET"


class Answer(NamedTuple):
    """What is said to it."""

    status: int
    body: bytes
    content_type: str = TEXT
    headers: Mapping[str, str] = {}


Answers = Callable[[Request], Awaitable[Answer]]


def said(status: int, *lines: str, **headers: str) -> Answer:
    """Words, one line each."""
    return Answer(status, "".join(f"{line}\n" for line in lines).encode(), headers=headers)


class _Refused(Exception):
    """A request that cannot be answered; the answer says why."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.answer = said(status, words)


class Server:
    """Serves `answers` on a socket that listens, from `serving` until the block ends. `answers` is called on the loop of the
    server's thread, and what it raises is an answer with code 500 and a line in the log."""

    def __init__(
        self,
        listener: socket.socket,
        answers: Answers,
        *,
        send_within: float = SEND_WITHIN,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address = address_of(listener)
        self._tls = tls
        self._listener = listener
        self._answers = answers
        self._send_within = send_within
        self._here: dict[asyncio.Task[object], bool] = {}
        """Those who serve a connection, the oldest first, and whether a whole request waits for its answer there."""
        self._said_at = -math.inf
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Serve while the block lasts."""
        thread = threading.Thread(target=self._run, daemon=True, name="posthouse-http")
        thread.start()
        try:
            yield
        finally:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)
            thread.join(LAST_WORDS)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """asyncio says for each client in the queue that it cannot be taken: here it is a line a minute."""
        error = context.get("exception")
        if not isinstance(error, OSError):
            loop.default_exception_handler(context)
        elif loop.time() >= self._said_at + SAID_EVERY:
            self._said_at = loop.time()
            log.warning(
                "a connection could not be taken: %s; others wait, and it is tried again each second", words_of(error)
            )

    async def _serve(self) -> None:
        self._loop.set_exception_handler(self._failed)
        server = await asyncio.start_server(
            self._connected,
            sock=self._listener,
            limit=LARGEST_HEAD,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else self._send_within,
        )
        try:
            await self._stop.wait()
        finally:
            server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._here) >= PLACES:
            leaves = next((one for one, waits in self._here.items() if not waits), next(iter(self._here)))
            del self._here[leaves]
            leaves.cancel()
        self._here[task] = False
        writer.transport.set_write_buffer_limits(high=0)  # what was written is with the kernel when `drain` returns
        try:
            answer, whole = await self._answered(reader, task)
            async with asyncio.timeout(ANSWER_WITHIN):
                await _write(writer, answer, whole=whole)
            self._waits(task, False)
            async with asyncio.timeout(LINGER):
                while await reader.read(LARGEST_HEAD):
                    pass
        except (OSError, EOFError, TimeoutError):
            pass  # the client left, or does not read
        finally:
            self._here.pop(task, None)
            writer.transport.abort()

    def _waits(self, task: asyncio.Task[object], waits: bool) -> None:
        if task in self._here:  # it had to make room a moment ago
            self._here[task] = waits

    async def _answered(self, reader: asyncio.StreamReader, task: asyncio.Task[object]) -> tuple[Answer, bool]:
        """The answer to one request, and whether the client wants all of it."""
        try:
            async with asyncio.timeout(self._send_within):
                request = parsed(await reader.readuntil(b"\r\n\r\n"))
        except TimeoutError:
            return said(408, f"no whole request came within {self._send_within:g} s"), True
        except asyncio.LimitOverrunError:
            return said(431, f"a request has at most {LARGEST_HEAD:,} bytes here"), True
        except _Refused as refused:
            return refused.answer, True
        if request.method not in METHODS:
            return said(405, f"{request.method} is not taken here: GET and HEAD are", Allow=", ".join(METHODS)), True
        self._waits(task, True)
        return await self._answer(request), request.method == "GET"

    async def _answer(self, request: Request) -> Answer:
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                return await self._answers(request)
        except TimeoutError:
            return said(503, f"no answer was found within {ANSWER_WITHIN:g} s")
        except Exception:
            log.exception("%s could not be answered", request.path)
            return said(500, "this could not be answered, and the log says why")


def parsed(head: bytes) -> Request:
    """A request line with its headers."""
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[0].isalpha():
        raise _Refused(400, "this is no request of HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise _Refused(400, "a header of this request cannot be read")
        headers[name.lower()] = value.strip()
    try:
        target = urlsplit(words[1])
        query = dict(parse_qsl(target.query, keep_blank_values=True, max_num_fields=20))
    except ValueError:
        raise _Refused(400, "the address in this request cannot be read") from None
    return Request(target.path, query, headers, words[0])


async def _write(writer: asyncio.StreamWriter, answer: Answer, *, whole: bool) -> None:
    headers = {
        "Content-Type": answer.content_type,
        "Content-Length": str(len(answer.body)),
        "Connection": "close",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        **answer.headers,
    }
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    body = memoryview(answer.body if whole else b"")
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body[:PIECE])
    await writer.drain()
    for first in range(PIECE, len(body), PIECE):
        writer.write(body[first : first + PIECE])
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
