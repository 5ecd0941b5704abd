"""Server-sent events: an interface hears of the facts of a service as soon as they are committed, and sees when its own write has arrived.

A fact is told when its transaction is committed, so whoever asks again then sees the rows that were written with it. A position is
the store's own: no fact is passed over because another one with a higher number was committed before it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Any
from urllib.parse import parse_qs

import msgspec

from posthouse.app import app_of
from posthouse.broker import Delivery
from posthouse.contracts import EventType, event_type_of
from posthouse.edges.broadcast import Broadcast, Item, Limits, Message, Page, Receive, Send
from posthouse.edges.receipts import Receipt, progress
from posthouse.errors import ConfigurationError, DecodeError, FrameRefused, PosthouseError
from posthouse.events import METADATA_LIMIT, Event
from posthouse.opened import Opened
from posthouse.options import Count, Seconds, SomeSeconds, checked
from posthouse.processes.projection import Projection
from posthouse.redaction import words_of
from posthouse.seam.frames import frame_of
from posthouse.seam.inward import open_data, open_frame, open_payload
from posthouse.seam.seals import Arrival
from posthouse.service import Service
from posthouse.store import OutboxRow

log = logging.getLogger("posthouse.sse")

Scope = MutableMapping[str, Any]
Tenant = Callable[[Scope], Awaitable[str | None] | str | None]
"""Whose events a request may hear, by who is logged in; None: nobody's."""
Show = Callable[[Event[Any]], object]
"""What an interface is shown of an event; None: nothing but that it happened."""

SSE = "sse"
"""Who reads the outbox, in the figures."""
BATCH = 200
ASKED_AGAIN = 0.2
"""Seconds between two looks whether a write has arrived."""
LONGEST = 20_000
"""Characters of a position or a receipt that is looked at."""


@checked
def sse_endpoint(
    service: Service,
    *,
    events: Sequence[type],
    tenant: Callable[..., Any],
    show: Callable[..., Any] | None = None,
    reads: Sequence[Projection] = (),
    clients: Count = 1000,
    heartbeat: SomeSeconds = 15.0,
    patience: SomeSeconds = 20.0,
    backlog: Count = 262_144,
    lifetime: SomeSeconds = 900.0,
    recheck: SomeSeconds = 5.0,
    retry: Seconds = 2.0,
    reach: Count = 10_000,
) -> SseEndpoint:
    """An ASGI application that tells browsers of these events of a service; mount it where their pages listen.

    `tenant` is yours: it gets the ASGI scope of the request and returns whose events this person may hear, None for a 401. Nothing
    in the request says so. Told is which event happened to which key, and what `show` makes of it, a value that can be written as
    JSON; without one no payload leaves. `reads`: the read models whose progress may be asked for, with `?receipt=`.

    More than `clients` at a time are asked to come later. One that takes nothing for `patience` seconds, or lets more than `backlog`
    bytes wait, is ended and resumes; each is ended after `lifetime` seconds. `tenant` is asked again before anything is told, though not
    more often than every `recheck` seconds: who is not logged in any more hears no more. Where more than `reach` events of anybody's lie between, a
    page is told to fetch its data anew instead. ConfigurationError with every problem.
    """
    problems = [
        f"{one.__name__} is an event of another service, not of {service.name}: hear what {service.name} itself says, as by model.publish(…)"
        for one in events
        if event_type_of(one).external
    ]
    if not events:
        problems.append("events=[] tells nobody anything: name the events that pages hear of")
    if not app_of(service).opened.settings.outbox_retention:
        problems.append("outbox_retention=0 keeps nothing that a page could resume from: leave it out, it is a day")
    if problems:
        raise ConfigurationError(*problems)
    limits = Limits(
        clients=clients,
        heartbeat=heartbeat,
        patience=patience,
        backlog=backlog,
        lifetime=lifetime,
        retry=retry,
        recheck=recheck,
    )
    types: dict[str, EventType[Any]] = {event_type_of(one).name: event_type_of(one) for one in events}
    return SseEndpoint(service, Facts(service, types, show, reach), tenant, reads, limits)


class Facts:
    """The facts of a service as they are committed, as a feed: an audience is a tenant."""

    def __init__(self, service: Service, types: Mapping[str, EventType[Any]], show: Show | None, reach: int) -> None:
        self._service = service
        self._types = types
        self._topics = sorted({kind.topic for kind in types.values()})
        self._show = show
        self._reach = reach
        self._seen = 0

    async def read(self, after: str, audiences: Collection[str], *, upto: str = "") -> Page:
        """As `Feed.read`."""
        opened = app_of(self._service).opened
        await opened.open()
        alone = next(iter(audiences)) if len(audiences) == 1 else None
        found = await opened.ports.store.outbox.tail(
            after, upto=upto, topics=self._topics, tenant=alone, limit=BATCH, reach=self._reach
        )
        items = [
            Item(position, told, row.tenant)
            for row, position in zip(found.rows, found.positions, strict=True)
            if row.tenant in audiences and (told := await self._told(row)) is not None
        ]
        return Page(found.position, items, found.more, found.gone)

    async def wait(self, seconds: float) -> None:
        """As `Feed.wait`."""
        self._seen = await app_of(self._service).store.changed(self._seen, seconds)

    async def _told(self, row: OutboxRow) -> bytes | None:
        """What is said of a row; None when it is no event that is told of. One that cannot be read, or is not as it was signed where
        that is required, is counted and passed over: what is wrong with a row ends nobody's feed."""
        opened = app_of(self._service).opened
        try:
            event = self._proved(opened, row)
            kind = self._types.get(event.type)
        except Exception as error:
            short = error.reason if isinstance(error, DecodeError | FrameRefused) else "unreadable"
            opened.seam.counting.counter("schema_failures_total", self._service.name, SSE, short).value += 1
            log.error("%s: pages hear nothing of %s in %s: %s", SSE, row.event_id, row.topic, words_of(error))
            return None
        if kind is None:
            return None
        told: dict[str, object] = {"id": event.id, "type": event.type, "key": event.key, "time": event.time}
        if self._show is not None:
            try:
                whole = open_payload(opened.guards[self._service.name], kind, (), await open_data(opened.seam, event))
                if (shown := self._show(whole)) is not None:
                    told["data"] = msgspec.to_builtins(shown)
            except Exception:
                log.exception(
                    "%s: what is shown of a %s could not be made; pages hear that it happened",
                    self._service.name,
                    event.type,
                )
        return msgspec.json.encode(told)

    def _proved(self, opened: Opened, row: OutboxRow) -> Event[bytes]:
        """The event of a row, as a consumer gets it: what lies in the store is proved by the keys as they are now."""
        now = opened.clock.now()
        delivery = Delivery(frame=frame_of(row), position=row.id, stored_at=now)
        event = open_frame(opened.seam, SSE, delivery, opened.settings.limit + METADATA_LIMIT)
        kind = self._types.get(event.type)
        own = row.topic if kind is None else kind.topic
        wrong = (row.topic, row.tenant, row.event_id) != (own, event.tenant, event.id)
        if wrong and opened.seam.seals is not None:
            why = "its row is of another topic, tenant or id than the event in it"
            opened.seam.seals.refuse_changed(Arrival(own, now), why)
        return event


class SseEndpoint:
    """What `sse_endpoint` makes."""

    def __init__(
        self, service: Service, facts: Facts, tenant: Tenant, reads: Sequence[Projection], limits: Limits
    ) -> None:
        self._service = service
        self._tenant = tenant
        self._reads = reads
        self._limits = limits
        self._broadcast = Broadcast(facts, limits)
        self._asking = 0

    @property
    def listeners(self) -> int:
        """How many connections there are."""
        return self._broadcast.listeners

    async def aclose(self) -> None:
        """End every connection: for servers other than uvicorn, before they wait for answers to end."""
        await self._broadcast.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["method"] != "GET":
            await _answer(send, 405, {"error": "ask with GET"}, (b"allow", b"GET"))
        elif (tenant := await self._whose(scope)) is None:
            await _answer(send, 401, {"error": "log in first"})
        else:
            asked = parse_qs(scope["query_string"].decode("latin-1"))
            if "receipt" in asked:
                await self._arrived(tenant, asked["receipt"][0], asked.get("wait", ["0"])[0], receive, send)
            else:
                given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"last-event-id"]
                after = (given or asked.get("after") or [""])[0][:LONGEST]

                async def still() -> bool:
                    return await self._is_still(scope, tenant)

                await self._broadcast.serve(tenant, after, receive, send, still=still)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Served by itself; nothing is begun before somebody listens."""
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await self.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def _is_still(self, scope: Scope, tenant: str) -> bool:
        try:
            return await self._whose(scope) == tenant
        except Exception:
            log.exception("%s: whose events a page may hear cannot be said: it hears no more", self._service.name)
            return False

    async def _whose(self, scope: Scope) -> str | None:
        found = self._tenant(scope)
        tenant: object = await found if inspect.isawaitable(found) else found
        if tenant is None or (isinstance(tenant, str) and tenant):
            return tenant
        raise ConfigurationError(f"sse_endpoint(tenant=…) said {tenant!r}: return a tenant's name, or None for a 401")

    async def _arrived(self, tenant: str, text: str, wait: str, receive: Receive, send: Send) -> None:
        """Whether the read models have what a write returned: processing, held, or applied."""
        receipt = Receipt.of(text[:LONGEST])
        if receipt is None or not self._reads:
            await _answer(send, 400, {"error": "that is no receipt of a write that is read here"})
            return
        if self._asking >= self._limits.clients:
            await _answer(send, 503, {"error": "busy"}, (b"retry-after", b"5"))
            return
        self._asking += 1
        leaving = asyncio.create_task(_left(receive))
        until = asyncio.get_running_loop().time() + min(_seconds(wait), 25.0)
        try:
            while True:
                state = await progress(app_of(self._service), self._reads, tenant, receipt)
                if state != "processing" or leaving.done() or asyncio.get_running_loop().time() >= until:
                    break
                await asyncio.wait([leaving], timeout=ASKED_AGAIN)
            await _answer(send, 200, {"state": state})
        except ConfigurationError as error:
            await _answer(send, 400, {"error": words_of(error)})
        except PosthouseError as error:
            log.warning("%s: whether a write has arrived cannot be said: %s", self._service.name, words_of(error))
            await _answer(send, 503, {"error": "not now"}, (b"retry-after", b"2"))
        finally:
            self._asking -= 1
            leaving.cancel()


def _seconds(text: str) -> float:
    return float(text) if text.isdecimal() and len(text) < 5 else 0.0


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _answer(send: Send, status: int, body: object, *headers: tuple[bytes, bytes]) -> None:
    text = msgspec.json.encode(body)
    every = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), *headers]
    message: Message = {"type": "http.response.start", "status": status, "headers": every}
    await send(message)
    await send({"type": "http.response.body", "body": text})
