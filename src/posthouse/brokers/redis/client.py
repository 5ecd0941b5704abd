"""The connection: scripts and commands, and every foreign error mapped once."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import redis.exceptions as foreign
from redis.asyncio import Redis, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from posthouse.brokers.redis.entries import Entry
from posthouse.brokers.redis.scripts import CONSUMER, LOOK, Script
from posthouse.errors import BrokerError, BrokerUnavailable, ConfigurationError
from posthouse.local.naming import client_name
from posthouse.pulse import alive

Value = str | bytes | int
PASSING = ("BUSY", "LOADING", "READONLY", "MISCONF", "MASTERDOWN", "NOREPLICAS", "TRYAGAIN", "CLUSTERDOWN", "NOAUTH")
"""Words with which the server says that it cannot do this now, whatever is asked."""


class Refused(BrokerError):
    """The server said no to this one thing."""


class Disturbed(BrokerError):
    """What was watched changed, or the connection was lost while it watched: the driver does not tell which."""


class Asked(NamedTuple):
    """A lane to read: as which number and epoch the ledger has it, in which run of the server, and where to begin (`>`, or
    an id for entries that are pending)."""

    ledger: str
    key: str
    number: int
    epoch: int
    run: str
    begin: str


class Read(NamedTuple):
    """An answer: entries by the keys of their lanes, or the indices of lanes that were lost. Neither: the ledgers changed
    meanwhile, or the connection was lost, and nobody knows what was read."""

    entries: Mapping[bytes, Sequence[Entry]] | None = None
    lost: Sequence[int] = ()


class TlsConnection(SSLConnection):
    """One whose TLS was made elsewhere: the driver's own would believe the system's authorities beside those of a file."""

    def __init__(self, *, tls: ssl.SSLContext, **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context.context = tls


class Client:
    """Connects at the first use and whenever a connection is gone; repeats nothing by itself."""

    def __init__(self, url: str, *, timeout: float, driver: Mapping[str, object]) -> None:
        self.timeout = timeout
        options: dict[str, Any] = {
            "protocol": 2,
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
            "socket_keepalive": True,
            "retry": Retry(NoBackoff(), 0),
            "client_name": client_name("broker"),
            **driver,
        }
        try:
            self._client = Redis.from_url(url, **options)
        except (ValueError, TypeError) as error:
            raise ConfigurationError(f"redis-py does not take this URL or these options: {error}") from error
        self._client.set_response_callback("XREADGROUP", _as_it_is)
        parts = urlsplit(url)
        self._where = f"{parts.hostname or parts.path}:{parts.port or 6379}"
        self._closed = False

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Value]) -> Any:
        """What the script returned. The server keeps scripts until it restarts; then it gets the text again."""
        with self._mapped(script.name):
            try:
                return await self._client.evalsha(script.digest, len(keys), *keys, *arguments)
            except foreign.NoScriptError:
                return await self._client.eval(script.text, len(keys), *keys, *arguments)

    async def read(self, group: str, member: str, count: int, lanes: Sequence[Asked]) -> Read:
        """The next entries of lanes, at most `count` of each, if the member still holds all of them.

        Looking and reading are one step: the ledgers are watched, and whatever changes them ends it. A script could do
        both at once, but takes four times as long, as each entry goes through it.
        """
        ledgers = list(dict.fromkeys(lane.ledger for lane in lanes))
        keys = [key for lane in lanes for key in (lane.ledger, lane.key)]
        said: list[Value] = [member, *(word for lane in lanes for word in (lane.number, lane.epoch, lane.run))]
        streams = [*(lane.key for lane in lanes), *(lane.begin for lane in lanes)]
        try:
            with self._mapped("receiving"):
                async with self._client.pipeline(transaction=True) as transaction:
                    await transaction.watch(*ledgers)
                    try:
                        lost = await transaction.evalsha(LOOK.digest, len(keys), *keys, *said)
                    except foreign.NoScriptError:
                        lost = await transaction.eval(LOOK.text, len(keys), *keys, *said)
                    if lost:
                        return Read(lost=lost)
                    transaction.multi()  # type: ignore[no-untyped-call]  # the driver's
                    transaction.execute_command(
                        "XREADGROUP", "GROUP", group, CONSUMER, "COUNT", count, "STREAMS", *streams
                    )
                    (answer,) = await transaction.execute()
                    return Read(entries=dict(answer or ()))
        except Disturbed:
            return Read()
        except Refused as error:
            if "NOGROUP" in str(error):  # somebody destroyed it between two looks
                return Read(lost=range(len(lanes)))
            raise

    async def ask(self, *command: Value) -> Any:
        """The answer to one command."""
        with self._mapped(str(command[0])):
            return await self._client.execute_command(*command)  # type: ignore[no-untyped-call]  # the driver's

    async def ask_all(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        """The answers to several commands, sent together."""
        with self._mapped(str(commands[0][0])):
            pipeline = self._client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            answers: list[Any] = await pipeline.execute()
            return answers

    async def info(self) -> dict[str, str]:
        """What the server says of itself."""
        with self._mapped("INFO"):
            found = await self._client.info()
            return {str(name): str(value) for name, value in found.items()}

    async def config(self) -> dict[str, str]:
        """The server's settings; empty where they may not be asked for."""
        try:
            with self._mapped("CONFIG"):
                found = await self._client.config_get("append*", "maxmemory*")
        except Refused:
            return {}
        return {_text(name): _text(value) for name, value in found.items()}

    async def hear(self, streams: Mapping[str, str]) -> list[str]:
        """Those of the streams that got an entry behind the given one; waits for the first, but not for ever."""
        pause = int(min(self.timeout / 2, 5.0) * 1000)
        heard = await self.ask("XREAD", "COUNT", 1, "BLOCK", pause, "STREAMS", *streams, *streams.values())
        return [(pair[0]).decode() for pair in heard or ()]

    async def aclose(self) -> None:
        self._closed = True
        with contextlib.suppress(foreign.RedisError, OSError, TimeoutError):
            await self._client.aclose()

    @contextlib.contextmanager
    def _mapped(self, doing: str) -> Iterator[None]:
        """Foreign errors end here. A cancellation that the client kept to itself goes on from here."""
        if self._closed:
            raise BrokerError("this broker was closed")
        before = _cancellations()
        try:
            yield
        except (foreign.ConnectionError, foreign.TimeoutError, foreign.ReadOnlyError, OSError, TimeoutError) as error:
            raise BrokerUnavailable(f"Redis at {self._where}, {doing}: {said(error)}") from error
        except foreign.WatchError as error:
            raise Disturbed(f"Redis at {self._where}, {doing}: {said(error)}") from error
        except foreign.RedisError as error:
            kind = BrokerUnavailable if is_passing(str(error)) else Refused
            raise kind(f"Redis at {self._where}, {doing}: {said(error)}") from error
        except RuntimeError as error:  # asyncio, of a connection whose transport is gone
            if asyncio.get_running_loop().is_closed() or self._closed:
                raise BrokerError("this broker was closed") from error
            raise BrokerUnavailable(f"Redis at {self._where}, {doing}: {said(error)}") from error
        if _cancellations() > before:
            raise asyncio.CancelledError
        alive()


def _cancellations() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _as_it_is(response: Any, **_: Any) -> Any:
    """Entries as the server sends them; the driver would make a dict of each."""
    return response


def _text(value: str | bytes | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


def said(error: Exception) -> str:
    return str(error) or type(error).__name__


def is_passing(text: str) -> bool:
    """Whether an error of the server is about the server and not about what was asked."""
    return text.startswith(PASSING)
