"""The connection: many questions through one inbox, and every foreign error mapped once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
import nats
import nats.errors
from nats.aio.client import Client as Connection
from nats.aio.msg import Msg

from posthouse.brokers.nats.users import WHO, Said, UserInfo
from posthouse.errors import BrokerError, BrokerUnavailable
from posthouse.local.naming import client_name
from posthouse.pulse import alive

T = TypeVar("T")
STATUS = "Status"
EXPECTED = "Nats-Expected-Stream"
FLOW = 100
"""Messages after which the client may write what it has, so that the server works while we go on."""
CODE_MISSING = 10059
CODE_CONFLICT = 10071
Listener = Callable[[Msg], Awaitable[None]]


class Message(NamedTuple):
    """One message to send."""

    subject: str
    body: bytes
    headers: dict[str, str] | None = None


class Refusal(msgspec.Struct):
    """An error as JetStream words it."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class Answer(msgspec.Struct):
    """To a stored message: its sequence, or why it was not stored."""

    seq: int = 0
    stream: str = ""
    error: Refusal | None = None


class Refused(BrokerError):
    """JetStream said no to a request; `code` is its number for the reason."""

    def __init__(self, subject: str, refusal: Refusal) -> None:
        self.code = refusal.err_code
        super().__init__(f"{subject}: {refusal.description}")


STARTING = 2.0
"""Seconds for which a server may refuse connections because it is about to start."""
NOBODY = Refusal(code=503, description="nobody listens on this subject")
_answer = msgspec.json.Decoder(Answer)


class Waiting:
    """For `count` messages, or, with `count` 0, for all until one with a status."""

    __slots__ = ("count", "done", "found")

    def __init__(self, count: int) -> None:
        self.count = count
        self.found: list[tuple[int, Msg]] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self, number: int, message: Msg) -> None:
        self.found.append((number, message))
        complete = len(self.found) == self.count if self.count else bool(message.headers and STATUS in message.headers)
        if complete and not self.done.done():
            self.done.set_result(None)


class NoTls(nats.errors.Error):
    """The server says that it speaks plain text only."""


class Guarded(Connection):
    """Where TLS was asked for, nothing is said without it. The driver would go on in plain text, with the password, when the server,
    or somebody between, says that it takes none."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if self.options.get("tls") is not None and not self.options.get("tls_handshake_first"):
            if not (info.get("tls_required") or info.get("tls_available")):
                raise NoTls("TLS was asked for, and the server offers none")
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)

    @property
    def server_id(self) -> str:
        """Of the server that we are connected to."""
        return str(self._server_info.get("server_id", ""))


class Client:
    """Connects at the first use, reconnects by itself, and fails at once while the server is away."""

    def __init__(self, servers: Sequence[str], *, timeout: float, driver: Mapping[str, object]) -> None:
        self._name = client_name("broker")
        self._servers = list(servers)
        self._shown = ", ".join(server.rpartition("@")[2].rpartition("/")[2] for server in servers)
        """Without anybody's password."""
        self._turned_away = ""
        """What the server said of who we are, while we were connecting."""
        self._nobody = ""
        """Why nobody could be connected to, meanwhile."""
        self._no_tls = ""
        """Why TLS did not come about, meanwhile."""
        self._connecting: asyncio.Timeout | None = None
        self.timeout = timeout
        self._driver = driver
        self._connection: Guarded | None = None
        self._opening = asyncio.Lock()
        self._closed = False
        self._inbox = ""
        self._numbers = itertools.count(1)
        self._waiting: dict[str, Waiting] = {}
        self.reconnected: set[Callable[[], None]] = set()
        """Called whenever a connection was lost and found again."""

    async def connection(self) -> Guarded:
        """The connected connection."""
        if self._connection is None:
            async with self._opening:
                if self._connection is None:
                    await self._open()
        connection = self._connection
        if connection is None or self._closed:
            raise BrokerError("this broker was closed")
        if not connection.is_connected:
            raise BrokerUnavailable(f"NATS at {self._shown} is not connected: trying again")
        return connection

    @property
    def inbox_prefix(self) -> str:
        """How the subjects begin on which we hear answers, once connected."""
        return self._inbox.rpartition(".")[0]

    async def aclose(self) -> None:
        self._closed = True
        async with self._opening:
            connection, self._connection = self._connection, None
        self._fail("this broker was closed")
        if connection is not None:
            with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
                async with asyncio.timeout(self.timeout):
                    await connection.close()

    async def tell(self, subject: str, body: bytes = b"", reply: str = "") -> None:
        """Send one message and wait for nothing."""
        connection = await self.connection()
        with mapped(subject):
            async with asyncio.timeout(self.timeout):
                await connection.publish(subject, body, reply)

    async def ask(self, verb: str, question: object, kind: type[T]) -> T:
        """One request to JetStream's API. Raises Refused."""
        connection = await self.connection()
        subject = f"$JS.API.{verb}"
        with mapped(subject):
            message = await connection.request(subject, msgspec.json.encode(question), timeout=self.timeout)
        alive()
        if b'"error"' in message.data:
            error = _answer.decode(message.data).error
            if error is not None:
                raise Refused(subject, error)
        return msgspec.json.decode(message.data, type=kind)

    async def read(self, stream: str, query: object) -> list[Msg]:
        """Stored messages by JetStream's direct road; their headers say where each was."""
        async with self._answers(0) as (prefix, waiting):
            await self.tell(f"$JS.API.DIRECT.GET.{stream}", msgspec.json.encode(query), f"{prefix}.0")
            await self._arrival(waiting, f"reading {stream}")
        (_, last) = waiting.found.pop()
        if last.headers is not None and last.headers[STATUS] == "503":
            raise Refused(f"reading {stream}", Refusal(err_code=CODE_MISSING, description="there is no such stream"))
        return [message for _, message in waiting.found]

    async def store(self, messages: Sequence[Message]) -> list[Answer]:
        """Send all in one go; one answer for each, in their order."""
        if not messages:
            return []
        connection = await self.connection()
        async with self._answers(len(messages)) as (prefix, waiting):
            with mapped("storing"):
                async with asyncio.timeout(self.timeout) as limit:
                    for number, (subject, body, headers) in enumerate(messages):
                        await connection.publish(subject, body, f"{prefix}.{number}", headers)
                        if number % FLOW == 0:
                            await self._go_on(limit)
            await self._arrival(waiting, "storing")
        alive()
        answers = [Answer()] * len(messages)
        for number, message in waiting.found:
            answers[number] = answered(message)
        return answers

    async def store_together(self, stream: str, messages: Sequence[Message]) -> Answer:
        """All in this stream or none, in their order: an atomic batch. Only the last is answered."""
        connection = await self.connection()
        async with self._answers(1) as (prefix, waiting):
            batch = prefix.removeprefix("_INBOX.")[:64]
            with mapped("storing"):
                async with asyncio.timeout(self.timeout) as limit:
                    for number, (subject, body, headers) in enumerate(messages, 1):
                        marked = {**(headers or {}), "Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
                        reply = ""
                        if number == 1:
                            marked[EXPECTED] = stream
                        if number == len(messages):
                            marked["Nats-Batch-Commit"], reply = "1", f"{prefix}.0"
                        await connection.publish(subject, body, reply, marked)
                        if number % FLOW == 0:
                            await self._go_on(limit)
            await self._arrival(waiting, "storing")
        alive()
        return answered(waiting.found[0][1])

    async def who(self) -> UserInfo:
        """As whom we are connected, and what that user may. BrokerError where no server tells, or not this user."""
        connection = await self.connection()
        try:
            async with self._answers(1) as (prefix, waiting):
                await self.tell(WHO, b"", f"{prefix}.0")
                await self._arrival(waiting, "asking what this user may do")
        except BrokerUnavailable as error:
            if "permissions violation" not in str(error).lower():
                raise
            raise BrokerError(f"NATS lets this user not ask what he may do: let him publish to {WHO}") from error
        _, message = waiting.found[0]
        if message.headers and STATUS in message.headers:
            raise BrokerError("NATS tells what a user may do from 2.10 on, and no server here does")
        said = msgspec.json.decode(message.data, type=Said)
        told = said.data.permissions is not None or said.server.id == connection.server_id
        return msgspec.structs.replace(said.data, told=told)

    async def listen(self, listener: Listener, subject: str = "") -> tuple[str, Callable[[], Awaitable[None]]]:
        """Hear what is said on a subject, or on an inbox of its own; the second result ends it."""
        connection = await self.connection()
        heard = subject or connection.new_inbox()
        with mapped(heard):
            async with asyncio.timeout(self.timeout):
                subscription = await connection.subscribe(
                    heard, cb=listener, pending_msgs_limit=0, pending_bytes_limit=0
                )

        async def end() -> None:
            with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
                async with asyncio.timeout(self.timeout):
                    await subscription.unsubscribe()

        return heard, end

    async def version(self) -> tuple[int, int]:
        """Of the server."""
        version = (await self.connection()).connected_server_version
        return version.major, version.minor

    async def max_payload(self) -> int:
        return (await self.connection()).max_payload

    async def _open(self) -> None:
        if self._closed:
            raise BrokerError("this broker was closed")
        connection = Guarded()
        options = {
            "name": self._name,
            "ping_interval": 5,
            "max_outstanding_pings": 2,
            "connect_timeout": self.timeout,
            **self._driver,
        }
        self._turned_away = self._nobody = self._no_tls = ""
        with mapped(f"connecting to {self._shown}"):
            try:
                async with asyncio.timeout(self.timeout) as self._connecting:
                    await connection.connect(
                        self._servers,
                        error_cb=self._on_error,
                        disconnected_cb=self._on_disconnect,
                        reconnected_cb=self._on_reconnect,
                        max_reconnect_attempts=-1,
                        reconnect_time_wait=options.pop("reconnect_time_wait", 0.2),  # type: ignore[arg-type]  # floats work
                        **options,  # type: ignore[arg-type]  # the driver checks what it is given
                    )
            except BaseException as error:
                await connection.close()
                if self._turned_away:
                    raise BrokerError(f"NATS at {self._shown} refuses us: {self._turned_away}") from None
                if self._no_tls and isinstance(error, TimeoutError):
                    raise BrokerUnavailable(f"NATS at {self._shown}: no TLS: {self._no_tls}") from None
                if self._nobody and isinstance(error, TimeoutError):
                    raise BrokerUnavailable(f"NATS: nothing listens at {self._shown} ({self._nobody})") from None
                raise
            finally:
                self._connecting = None
            self._inbox = connection.new_inbox()
            await connection.subscribe(
                f"{self._inbox}.*.*", cb=self._on_message, pending_msgs_limit=0, pending_bytes_limit=0
            )
        self._connection = connection

    @contextlib.asynccontextmanager
    async def _answers(self, count: int) -> AsyncIterator[tuple[str, Waiting]]:
        await self.connection()
        token, waiting = str(next(self._numbers)), Waiting(count)
        self._waiting[token] = waiting
        try:
            yield f"{self._inbox}.{token}", waiting
        finally:
            del self._waiting[token]
            if not waiting.done.cancel() and not waiting.done.cancelled():
                waiting.done.exception()  # somebody has seen it, or nobody waits any more

    async def _go_on(self, limit: asyncio.Timeout) -> None:
        """The client takes what we send: its time begins anew."""
        limit.reschedule(asyncio.get_running_loop().time() + self.timeout)
        await asyncio.sleep(0)

    async def _arrival(self, waiting: Waiting, doing: str) -> None:
        with mapped(doing):
            async with asyncio.timeout(self.timeout):
                await waiting.done

    async def _on_message(self, message: Msg) -> None:
        _, token, number = message.subject.rsplit(".", 2)
        waiting = self._waiting.get(token)
        if waiting is not None:
            waiting.take(int(number), message)

    async def _on_error(self, error: Exception) -> None:
        """A right that is missing is told apart from any request: whoever waits now gets no answer."""
        if self._connecting is not None and _cancellations():
            raise asyncio.CancelledError  # the driver kept the end of its time to itself, and would try for ever
        if isinstance(error, ConnectionRefusedError) and self._connecting is not None:
            when, now = self._connecting.when(), asyncio.get_running_loop().time()
            self._nobody = str(error)
            if when is not None and now > when - self.timeout + STARTING:
                self._connecting.reschedule(now)
        if isinstance(error, ssl.SSLError | NoTls):
            self._no_tls = str(error)
        if "authorization violation" in str(error).lower():
            self._turned_away = str(error)
        if "permissions violation" in str(error).lower():
            self._fail(str(error))

    async def _on_disconnect(self) -> None:
        self._fail("the connection was lost")

    async def _on_reconnect(self) -> None:
        for call in self.reconnected:
            call()

    def _fail(self, reason: str) -> None:
        for waiting in self._waiting.values():
            if not waiting.done.done():
                waiting.done.set_exception(BrokerUnavailable(f"no answer: {reason}"))


def answered(message: Msg) -> Answer:
    if message.headers and STATUS in message.headers:
        return Answer(error=NOBODY)
    return _answer.decode(message.data)


NO_ANSWER = (
    "no answer in time. Is the server up? An account with narrow rights hears answers only on the inbox that it may subscribe to: "
    "nats://…?inbox=WORD"
)


@contextlib.contextmanager
def mapped(doing: str) -> Iterator[None]:
    """Foreign errors end here. A cancellation that the client kept to itself goes on from here."""
    before = _cancellations()
    try:
        yield
    except (nats.errors.Error, TimeoutError, OSError) as error:
        what = NO_ANSWER if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        raise BrokerUnavailable(f"NATS, {doing}: {what}") from error
    if _cancellations() > before:
        raise asyncio.CancelledError


def _cancellations() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
