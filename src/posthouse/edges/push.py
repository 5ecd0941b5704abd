"""Push: Google Pub/Sub posts an event, and gets 204 once its effect is committed or it is safely held.

Anything but a 2xx means to the service: not now, bring it again. So nothing is lost by a refusal; what can never be
applied is held like an event that was pulled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from posthouse.app import app_of
from posthouse.broker import Delivery
from posthouse.errors import ConfigurationError, PosthouseError
from posthouse.events.limits import UNREADABLE
from posthouse.receiving import Consumer
from posthouse.service import Service

try:
    from posthouse.brokers.pubsub.messages import frame_from
    from posthouse.edges.keys import GOOGLE, KeySet, KeysUnavailable
    from posthouse.edges.oidc import NotWelcome, Refused, Sender
except ImportError as error:
    raise ImportError(
        f"a push endpoint needs google-cloud-pubsub and pyjwt: pip install 'posthouse[push]' ({error})"
    ) from error

log = logging.getLogger("posthouse.push")

Message = MutableMapping[str, object]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

LARGEST = 16 * 1024 * 1024
"""Bytes of a request: the largest message of Pub/Sub as text, with everything around it."""


class PubSubMessage(msgspec.Struct, frozen=True, rename="camel"):
    """As Google writes it; `data` is base64."""

    message_id: str
    publish_time: datetime
    data: bytes = b""
    attributes: dict[str, str] = {}
    ordering_key: str = ""


class Wrapped(msgspec.Struct, frozen=True, rename="camel"):
    """The body of a push. `delivery_attempt` is 0 where the subscription counts no deliveries."""

    message: PubSubMessage
    subscription: str
    delivery_attempt: int = 0


class Answer(NamedTuple):
    """A status and a constant text: who is refused learns nothing from it."""

    status: int
    text: str = ""
    headers: Sequence[tuple[bytes, bytes]] = ()


LATER = ((b"retry-after", b"1"),)
DONE = Answer(204)
NO_PUSH = Answer(400, "not a push of Pub/Sub")
NO_TOKEN = Answer(401, "no token that can be believed", ((b"www-authenticate", b"Bearer"),))
OTHER_ACCOUNT = Answer(403, "not for this account")
UNKNOWN = Answer(404, "no such subscription here")
ONLY_POST = Answer(405, "post it", ((b"allow", b"POST"),))
TOO_SLOW = Answer(408, "too slow", ((b"connection", b"close"),))
TOO_LARGE = Answer(413, "too large")
BUSY = Answer(429, "busy", LATER)
FAILED = Answer(500, "failed")
NOT_NOW = Answer(503, "not now", LATER)


class Place(NamedTuple):
    """What a subscription stands for."""

    group: str
    topic: str


class Ready(NamedTuple):
    """A service that was opened: its consumers by name, and how many of its transactions may run at a time."""

    consumers: Mapping[str, Consumer]
    turns: asyncio.Semaphore


def push_endpoint(
    service: Service,
    *,
    audience: str,
    service_account: str,
    project: str | None = None,
    keys_url: str = GOOGLE,
    at_once: int = 100,
    patience: float = 30.0,
) -> PushEndpoint:
    """An ASGI application for the push subscriptions of a service; mount it where they push to.

    A request needs a token of Google that was made out to `audience` for `service_account`; both must be as the
    subscription has them. `project` is that of the broker's URL unless it is given. More than `at_once` requests at a
    time are sent away with 429, and come again; so does one whose body takes more than `patience` seconds. Mounted in another application, that one runs the service
    (`service.running()`); served by itself, the endpoint does. Raises ConfigurationError with every problem.
    """
    url = urlsplit(app_of(service).opened.ports.broker_url)
    found = project or (url.netloc if url.scheme == "pubsub" else "")
    problems = []
    if not found:
        problems.append(
            f"{service.name} runs on {app_of(service).opened.ports.broker_url}: say project=…, that of the push subscriptions"
        )
    if not audience:
        problems.append("audience is empty: it is the endpoint's URL unless the subscription says otherwise")
    if "@" not in service_account:
        problems.append(f"service_account={service_account!r} is no e-mail address of an account")
    if at_once < 1:
        problems.append(f"at_once={at_once} lets nothing in")
    if problems:
        raise ConfigurationError(*problems)
    keys = KeySet(keys_url, app_of(service).clock)
    sender = Sender(audience=audience, account=service_account, keys=keys, clock=app_of(service).clock)
    return PushEndpoint(service, sender, project=found, at_once=at_once, patience=patience)


class PushEndpoint:
    """What `push_endpoint` makes."""

    def __init__(self, service: Service, sender: Sender, *, project: str, at_once: int, patience: float) -> None:
        self._service = service
        self._patience = patience
        self._sender = sender
        self._project = project
        self._at_once = at_once
        self._inside = 0
        self._ready: Ready | None = None
        self._preparing = asyncio.Lock()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            answer = await self._answer(scope, receive)
            length = [(b"content-length", b"%d" % len(answer.text))] if answer.text else []
            headers = [*length, *answer.headers]
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            await send({"type": "http.response.body", "body": answer.text.encode()})
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Message, receive: Receive) -> Answer:
        """The sender is known before a byte of the body is read."""
        if scope["method"] != "POST":
            return ONLY_POST
        refusal = await self._refusal(scope)
        if refusal is not None:
            return refusal
        if self._inside >= self._at_once:
            return BUSY
        self._inside += 1
        try:
            try:
                async with asyncio.timeout(self._patience):
                    body = await _body(receive)
            except TimeoutError:
                return TOO_SLOW
            return TOO_LARGE if body is None else await self._take(body)
        finally:
            self._inside -= 1

    async def _refusal(self, scope: Message) -> Answer | None:
        headers = scope["headers"]
        token = _bearer(headers) if isinstance(headers, Iterable) else None
        if token is None:
            return NO_TOKEN
        try:
            await self._sender.check(token)
        except KeysUnavailable as error:
            log.warning("%s: a push has to wait: %s", self._service.name, error)
            return NOT_NOW
        except Refused as error:
            log.warning("%s: a push was refused, its token is not good: %s", self._service.name, error)
            return OTHER_ACCOUNT if isinstance(error, NotWelcome) else NO_TOKEN
        return None

    async def _take(self, body: bytes) -> Answer:
        try:
            wrapped = msgspec.json.decode(body, type=Wrapped)
        except UNREADABLE as error:
            log.warning("%s: a push was refused, it is not wrapped as Pub/Sub does it: %s", self._service.name, error)
            return NO_PUSH
        place = self._place(wrapped.subscription)
        if place is None:
            log.warning("%s: a push of %s was refused: it is not ours", self._service.name, wrapped.subscription[:300])
            return UNKNOWN
        return await self._apply(place, wrapped)

    async def _apply(self, place: Place, wrapped: Wrapped) -> Answer:
        """Returning from the consumer means: committed."""
        try:
            ready = await self._prepared()
            projections = app_of(self._service).opened.projections
            consumer = ready.consumers.get(place.group) or await projections.taker(place.group)
            if consumer is None:
                log.info(
                    "%s: a push to %s has to wait: nobody here feeds that generation", self._service.name, place.group
                )
                return NOT_NOW
            async with ready.turns:
                await consumer.take(_delivery(place.topic, wrapped))
        except PosthouseError as error:
            self._ready = None  # it may have been closed: look again
            log.warning("%s: a push to %s has to wait: %s", self._service.name, place.group, error)
            return NOT_NOW
        except Exception:
            self._ready = None
            log.exception("%s: a push to %s failed", self._service.name, place.group)
            return FAILED
        return DONE

    async def _prepared(self) -> Ready:
        if self._ready is None:
            async with self._preparing:
                if self._ready is None:
                    runtime = await app_of(self._service).opened.prepare()
                    turns = asyncio.Semaphore(runtime.store.writers)
                    self._ready = Ready({consumer.name: consumer for consumer in runtime.consumers}, turns)
        return self._ready

    def _place(self, subscription: str) -> Place | None:
        """What a subscription stands for, by its full name; also one of a read model whose generation is not known here yet.
        The token is not bound to the body: this is."""
        opened = app_of(self._service).opened
        groups = {**opened.topology().groups, **opened.projections.group_of(subscription.rsplit("/", 1)[-1])}
        return {
            f"projects/{self._project}/subscriptions/{group}.{topic}.sub": Place(group, topic)
            for group, topics in groups.items()
            for topic in topics
        }.get(subscription)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Served by itself: the service runs as long as the server does. Where its App runs already, for another endpoint or
        for the application around both, that one runs it for all."""
        await receive()
        phase = "startup"
        app = app_of(self._service)
        try:
            async with nullcontext() if app.opened.runs else app.running():
                await send({"type": "lifespan.startup.complete"})
                await receive()
                phase = "shutdown"
        except PosthouseError as error:
            await send({"type": f"lifespan.{phase}.failed", "message": str(error)})
            return
        await send({"type": "lifespan.shutdown.complete"})


def _delivery(topic: str, wrapped: Wrapped) -> Delivery:
    message = wrapped.message
    stored_at = message.publish_time.timestamp()
    return Delivery(
        frame=frame_from(
            topic,
            message.data,
            attributes=message.attributes,
            ordering_key=message.ordering_key,
            message_id=message.message_id,
        ),
        position=round(stored_at * 1_000_000),
        stored_at=stored_at,
        redelivered=wrapped.delivery_attempt != 1,
    )


def _bearer(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The one token of the request; two are none."""
    said = [value for name, value in headers if name.lower() == b"authorization"]
    if len(said) != 1:
        return None
    kind, _, token = said[0].partition(b" ")
    return token.strip().decode("latin-1") if kind.lower() == b"bearer" and token.strip() else None


async def _body(receive: Receive) -> bytes | None:
    """None when it is longer than any push can be."""
    body = bytearray()
    while True:
        message = await receive()
        part = message.get("body", b"")
        if message["type"] == "http.disconnect" or not isinstance(part, bytes):
            return b""
        body += part
        if len(body) > LARGEST:
            return None
        if not message.get("more_body", False):
            return bytes(body)
