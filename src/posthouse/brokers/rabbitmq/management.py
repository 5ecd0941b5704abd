"""RabbitMQ's management API, where there is one: it lists what AMQP only answers for by name. It is asked, never told."""

from __future__ import annotations

import asyncio
import base64
import ssl
from typing import TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import Request, urlopen

import msgspec

from posthouse.errors import BrokerError, BrokerUnavailable
from posthouse.events.limits import UNREADABLE

Answer = TypeVar("Answer")
QUEUES = "queues/{vhost}?columns=name,durable,arguments,policy,effective_policy_definition"
"""Without figures: they are seconds old. So are policies: one that was just set shows a little later."""


class Exchange(msgspec.Struct):
    name: str
    type: str
    durable: bool = True
    arguments: dict[str, object] = {}


class Queue(msgspec.Struct):
    name: str
    durable: bool = True
    arguments: dict[str, object] = {}
    policy: str | None = None
    effective_policy_definition: object = None
    """Of the policy and an operator's policy together; an empty list where there is none."""


class Binding(msgspec.Struct):
    source: str
    destination: str
    routing_key: str
    destination_type: str = "queue"


class Permission(msgspec.Struct):
    """Of a user in a virtual host: regular expressions."""

    write: str = ""
    read: str = ""


class Management:
    """`url` is `http://host:15672`; without a user it takes that of `broker`, the URL of AMQP, which also names the virtual
    host."""

    def __init__(self, url: str, broker: str, *, timeout: float, tls: ssl.SSLContext | None = None) -> None:
        parts, amqp = urlsplit(url), urlsplit(broker)
        who = parts if parts.username else amqp
        word = f"{unquote(who.username or 'guest')}:{unquote(who.password or 'guest')}"
        self._word = base64.b64encode(word.encode()).decode()
        self._base = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}/api/"
        self._vhost = unquote(amqp.path[1:]) or "/"
        self._account = unquote(amqp.username or "guest")
        self._timeout = timeout
        self._tls = tls if parts.scheme == "https" else None

    async def exchanges(self) -> list[Exchange]:
        return await self._ask("exchanges/{vhost}", list[Exchange])

    async def queues(self) -> list[Queue]:
        return await self._ask(QUEUES, list[Queue])

    async def bindings(self) -> list[Binding]:
        return await self._ask("bindings/{vhost}", list[Binding])

    async def permission(self) -> Permission:
        """What the account of AMQP may do, whoever asks."""
        return await self._ask("permissions/{vhost}/{account}", Permission)

    async def _ask(self, path: str, kind: type[Answer]) -> Answer:
        url = self._base + path.format(vhost=quote(self._vhost, safe=""), account=quote(self._account, safe=""))
        request = Request(url, headers={"Authorization": f"Basic {self._word}", "Accept": "application/json"})
        try:
            return msgspec.json.decode(await asyncio.to_thread(self._read, request), type=kind)
        except HTTPError as error:
            error.close()
            if error.code >= 500:
                raise BrokerUnavailable(f"RabbitMQ's management, {url}: {error}") from error
            raise BrokerError(
                f"RabbitMQ's management refuses {url}: {error}; its user needs the tag `management`, and a right there"
            ) from error
        except (URLError, OSError, TimeoutError) as error:
            raise BrokerUnavailable(f"RabbitMQ's management, {url}: {error}") from error
        except UNREADABLE as error:
            raise BrokerError(f"{url} does not answer as RabbitMQ's management does: {error}") from error

    def _read(self, request: Request) -> bytes:
        with urlopen(request, timeout=self._timeout, context=self._tls) as answer:
            return bytes(answer.read())
