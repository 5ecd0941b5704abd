"""The way to AWS: one client for each kind of call, and the one place where its errors end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar

import aiohttp
import msgspec
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import BotoCoreError, ClientError
from botocore.loaders import create_loader

from posthouse.errors import BrokerError, BrokerUnavailable
from posthouse.pulse import alive

Role = Literal["sns", "sqs", "poll", "sts"]
"""Polls have a client of their own: they may be silent for longer, and must not take the connections of the others."""
CONNECTIONS = 64
MISSING = ("NotFound", "NonExistentQueue", "QueueDoesNotExist")
"""How the codes end that say: no such topic, no such queue."""
BUSY = ("Throttl", "TooManyRequests", "RequestLimit", "SlowDown", "OverLimit", "RequestTimeout", "RequestExpired")
"""What codes contain that say: not now."""
Answer = TypeVar("Answer")


class Refused(BrokerUnavailable):
    """AWS answered that it has done nothing of the call, and will not as things are. `code` is its own word."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class Missing(Refused):
    """The topic or the queue does not exist."""


class Client:
    """Clients that are made when first used. `driver` goes to `create_client` as it is."""

    def __init__(
        self, region: str, *, endpoint: str | None, timeout: float, poll: int, driver: Mapping[str, object]
    ) -> None:
        self.region = region
        self._options: dict[str, object] = {"region_name": region, "endpoint_url": endpoint, **driver}
        self._timeout = timeout
        self._poll = poll
        self._clients: dict[Role, Any] = {}  # the driver has no types
        self._opening = asyncio.Lock()
        self._stack = contextlib.AsyncExitStack()
        self._session: Any = None
        self._closed = False

    async def call(self, role: Role, operation: str, answer: type[Answer], **given: object) -> Answer:
        """One request, never repeated here. Raises Missing, Refused, or BrokerUnavailable when nothing is known."""
        with mapped(operation):
            client = self._clients.get(role) or await self._open(role)
            found = await getattr(client, operation)(**given)
            alive()
            return msgspec.convert(found, answer, strict=False)

    async def aclose(self) -> None:
        self._closed = True
        self._clients.clear()
        await self._stack.aclose()

    async def _open(self, role: Role) -> Any:
        async with self._opening:
            if self._closed:
                raise BrokerError("this broker was closed")
            if role not in self._clients:
                self._session = self._session or _session()
                config = AioConfig(
                    connect_timeout=self._timeout,
                    read_timeout=self._timeout + (self._poll if role == "poll" else 0),
                    max_pool_connections=CONNECTIONS,
                    retries={"total_max_attempts": 1},  # the relay and the consumer try again
                )
                theirs = self._options.get("config")
                options = {**self._options, "config": config.merge(theirs) if theirs is not None else config}
                service = "sqs" if role == "poll" else role
                client = self._session.create_client(service, **options)
                self._clients[role] = await self._stack.enter_async_context(client)
            return self._clients[role]


def _session() -> Any:
    session = get_session()
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    return session


@functools.cache
def _loader(path: str | None) -> Any:
    """What the driver knows about AWS: large files, read once in a process and not once for each broker."""
    return create_loader(path)


@contextlib.contextmanager
def mapped(doing: str) -> Iterator[None]:
    """Foreign errors end here."""
    try:
        yield
    except ClientError as error:
        raise _answered(doing, error) from error
    except (BotoCoreError, aiohttp.ClientError, msgspec.ValidationError, TimeoutError, OSError) as error:
        raise BrokerUnavailable(f"AWS, {doing}: {str(error) or type(error).__name__}") from error


def _answered(doing: str, error: ClientError) -> BrokerUnavailable:
    answer = error.response
    code = str(answer.get("Error", {}).get("Code", ""))
    words = f"AWS, {doing}: {code}: {answer.get('Error', {}).get('Message', '')}"
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code.endswith(MISSING):
        return Missing(code, words)
    if not 400 <= status < 500 or any(word in code for word in BUSY):
        return BrokerUnavailable(words)
    return Refused(code, words)
