"""Correlation: one id for a request, in its answer, in the events that it publishes, in its log lines, in the calls that it makes.

Whoever chooses the id of a request chooses the correlation of its events, and that tells the attempts of a saga apart and says which
story an event is in. So nobody is trusted with it by default: each request gets an id of its own, and what came is kept for the log.
Callers at the addresses in `trusted` choose it: your own services, or a proxy that removes these headers from what comes from outside.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import ipaddress
import re
import sys
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Protocol
from urllib.parse import quote

import msgspec

from posthouse.clock import new_id
from posthouse.errors import ConfigurationError, EventError
from posthouse.events import Actor
from posthouse.events.limits import MAX_BYTES
from posthouse.events.trace import TraceContext, trace_id_to_uuid
from posthouse.options import checked
from posthouse.seam.context import EventContext
from posthouse.seam.current import SCOPE, Current, current, during, span_here

HEADER = "X-Correlation-ID"
LONGEST = MAX_BYTES["correlation"]

Trusted = Sequence[str] | Literal["all"]
"""Addresses and networks of callers, or everybody: see this module."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

Environ = dict[str, Any]
WsgiApp = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
"""As `wsgiref.types.WSGIApplication`."""

_SOUND = re.compile(rf"[A-Za-z0-9._~:/@+=|-]{{1,{LONGEST}}}")
_NAME = HEADER.lower().encode()
_NOTE = "correlation "

_POOLS = ("anyio", "asyncio", "concurrent", "starlette", "threading")
"""Packages whose frames run what threads are given."""

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Edge:
    """Where requests come in: what is current during one."""

    def __init__(self, option: str, trusted: Trusted) -> None:
        if isinstance(trusted, str) and trusted != "all":
            raise ConfigurationError(
                f"{option} is {trusted!r}, and should be 'all' or a list of addresses: write [{trusted!r}]"
            )
        networks, problems = list[_Network](), list[str]()
        for text in () if isinstance(trusted, str) else trusted:
            try:
                networks.append(ipaddress.ip_network(text))
            except ValueError as error:
                problems.append(f"{option} has {text!r}: {error}: write an address, or a network as '10.0.0.0/8'")
        if problems:
            raise ConfigurationError(*problems)
        self._networks = networks
        self._all = trusted == "all"

    def enter(
        self, peer: str, correlations: Sequence[str], traceparents: Sequence[str], tracestates: Sequence[str]
    ) -> Current:
        """What a request from this address is about. An id that is too long, has other characters or comes twice counts as
        none, and so does a trace that breaks the W3C's rules: a request never fails for it."""
        given = correlations[0] if len(correlations) == 1 and _SOUND.fullmatch(correlations[0]) else None
        state = ",".join(tracestates) or None
        trace = TraceContext.parse(traceparents[0], state) if len(traceparents) == 1 else None
        named = given or (None if trace is None else trace_id_to_uuid(trace.trace_id))
        if not self._trusts(peer):
            return Current(correlation=new_id(), outer_correlation=named)
        return Current(
            correlation=named or new_id(),
            traceparent=None if trace is None else trace.traceparent,
            tracestate=None if trace is None else trace.tracestate,
        )

    def _trusts(self, peer: str) -> bool:
        if self._all or not self._networks:
            return self._all
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._networks)


class AsgiCorrelation:
    """ASGI middleware: `app.add_middleware(AsgiCorrelation)` in FastAPI and Starlette, `AsgiCorrelation(app)` around any other.
    Only requests are touched; a websocket and the lifespan pass."""

    @checked
    def __init__(self, app: Callable[..., Any], *, trusted: Trusted = ()) -> None:
        self._app: AsgiApp = app
        self._edge = Edge("AsgiCorrelation: trusted", trusted)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or SCOPE in scope:
            await self._app(scope, receive, send)
            return
        here = self._enter(scope)
        scope[SCOPE] = here
        alone, started = "app" not in scope, False  # a framework above answers for what is raised below

        async def answer(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = _echoed(message.get("headers", ()), here)
            await send(message)

        with during(here):
            try:
                await self._app(scope, receive, answer)
            except Exception as error:
                _note(error, here)
                if alone and not started:
                    await _fail(answer)
                raise

    def _enter(self, scope: MutableMapping[str, Any]) -> Current:
        found: dict[bytes, list[str]] = {_NAME: [], b"traceparent": [], b"tracestate": []}
        for name, value in scope["headers"]:
            if (values := found.get(name.lower())) is not None:
                values.append(value.decode("latin-1"))
        client = scope.get("client") or ("",)
        return self._edge.enter(str(client[0]), *found.values())


class WsgiCorrelation:
    """WSGI middleware: `app.wsgi_app = WsgiCorrelation(app.wsgi_app)` in Flask, `application = WsgiCorrelation(application)` around any
    other. What the application does while its answer is streamed still belongs to the request."""

    @checked
    def __init__(self, app: Callable[..., Any], *, trusted: Trusted = ()) -> None:
        self._app: WsgiApp = app
        self._edge = Edge("WsgiCorrelation: trusted", trusted)

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        if SCOPE in environ:
            return self._app(environ, start_response)
        around = current()  # mounted in an ASGI application, it is a part of that request
        inside = around.correlation is not None and not around.consumer
        here = environ[SCOPE] = around if inside else from_environ(self._edge, environ)

        def start(status: str, headers: Iterable[tuple[str, str]], *exc_info: Any) -> Any:
            kept = [(name, value) for name, value in headers if name.lower() != HEADER.lower()]
            return start_response(status, [*kept, (HEADER, here.correlation)], *exc_info)

        context = contextvars.copy_context()
        context.run(during(here).__enter__)  # for good: the copy is this request's own
        try:
            body = context.run(self._app, environ, start)
        except Exception as error:
            _note(error, here)
            raise
        whole = isinstance(body, list | tuple) or _is_file(environ, body)
        return body if whole else _Body(body, context, here)


class _Body:
    """A streamed answer, each part made in the context of its request."""

    def __init__(self, body: Iterable[bytes], context: contextvars.Context, here: Current) -> None:
        self._body = body
        self._context = context
        self._here = here
        self._parts: Iterator[bytes] | None = None

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            if self._parts is None:
                self._parts = self._context.run(iter, self._body)
            return self._context.run(next, self._parts)
        except StopIteration:
            raise
        except Exception as error:
            _note(error, self._here)
            raise

    def close(self) -> None:
        if (close := getattr(self._body, "close", None)) is not None:
            self._context.run(close)


def from_environ(edge: Edge, environ: MutableMapping[str, Any]) -> Current:
    """What a request is about, from a WSGI environment or Django's `request.META`. Headers that came twice are joined by commas
    there, which no id has."""

    def values(name: str) -> list[str]:
        return [environ[name]] if environ.get(name) else []

    return edge.enter(
        str(environ.get("REMOTE_ADDR", "")),
        values("HTTP_X_CORRELATION_ID"),
        values("HTTP_TRACEPARENT"),
        values("HTTP_TRACESTATE"),
    )


@contextmanager
def correlated(
    correlation: str | None = None,
    *,
    tenant: str | None = None,
    actor: Actor | None = None,
    offline_replay: bool | None = None,
) -> Iterator[str]:
    """Around work that is no request and no handler, such as a script or a job: what it publishes, logs and calls has this
    correlation, that of the block around it, or a new one, which the block is given. In a request it says whose everything is
    that names no tenant, and who caused it: your code knows, from whoever logged in; headers are never believed.
    `offline_replay`: what is said in the block was done on a device that was offline, and is told now; its facts carry that.

    Refused in a plain generator that a thread pool steps through, as FastAPI does with a dependency that is no `async def`: the
    block would be around nothing, and what the request publishes nobody's."""
    if _is_stepped_by_a_pool():
        raise EventError(
            "correlated() in a plain generator that a thread pool runs step by step, as a FastAPI dependency: what it says"
            " reaches no code outside of it, and events would have the wrong tenant. Write `async def` instead of `def`"
        )
    here = current()
    correlation = correlation or here.correlation or new_id()
    EventContext(
        tenant="-" if tenant is None else tenant, correlation=correlation, actor=actor
    )  # or it says what is wrong
    with during(
        msgspec.structs.replace(
            here,
            correlation=correlation,
            tenant=here.tenant if tenant is None else tenant,
            actor=here.actor if actor is None else actor,
            offline_replay=here.offline_replay if offline_replay is None else bool(offline_replay),
        )
    ):
        yield correlation


def headers() -> dict[str, str]:
    """What a call to another service carries, of the request or the event in hand; empty where there is neither. An id that no
    header can say is percent-encoded."""
    here, span = current(), span_here()  # where there is a span, the call is below it
    found = {"traceparent": here.traceparent, "tracestate": here.tracestate}
    if span is not None:
        found = {"traceparent": span.traceparent, "tracestate": span.tracestate}
    if here.correlation:
        sound = _SOUND.fullmatch(here.correlation)
        found[HEADER] = here.correlation if sound else quote(here.correlation, safe="", errors="replace")[:LONGEST]
    return {name: value for name, value in found.items() if value}


class Outgoing(Protocol):
    """A request of httpx."""

    @property
    def headers(self) -> MutableMapping[str, str]: ...


def carry(request: Outgoing) -> Awaitable[None]:
    """A hook for clients of httpx, synchronous or not: `httpx.AsyncClient(event_hooks={"request": [carry]})`. Headers that the
    caller has set stay."""
    new = headers()
    if "traceparent" in request.headers:  # the state belongs to the trace
        new.pop("tracestate", None)
    for name, value in new.items():
        request.headers.setdefault(name, value)
    return _DONE


class _Done:
    """Awaited by an AsyncClient, and ignored by a Client."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


_DONE = _Done()


def _echoed(given: Iterable[tuple[bytes, bytes]], here: Current) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in given if name.lower() != _NAME]
    return [*kept, (_NAME, (here.correlation or "").encode())]


async def _fail(answer: Send) -> None:
    await answer(
        {"type": "http.response.start", "status": 500, "headers": [(b"content-type", b"text/plain; charset=utf-8")]}
    )
    await answer({"type": "http.response.body", "body": b"Internal Server Error"})


def _note(error: BaseException, here: Current) -> None:
    """Servers log what was raised outside of the request: so the error itself says whose it is."""
    with contextlib.suppress(Exception):  # an error that takes no notes is raised as it is
        notes = getattr(error, "__notes__", ())
        error.__notes__ = [note for note in notes if not note.startswith(_NOTE)]  # the same object may be raised again
        error.add_note(f"{_NOTE}{here.correlation}")


def _is_stepped_by_a_pool() -> bool:
    """Whether the block of `correlated` stands in a generator that a thread's own loop has called: each step of it has a context
    that is gone after the step."""
    frame = sys._getframe(2).f_back  # beyond the block and its __enter__
    stepped = False
    while frame is not None and (
        frame.f_code.co_flags & inspect.CO_GENERATOR or frame.f_code.co_name in ("__enter__", "enter_context")
    ):
        stepped = True
        frame = frame.f_back
    module = "" if frame is None else str(frame.f_globals.get("__name__", ""))
    return stepped and module.partition(".")[0] in _POOLS


def _is_file(environ: Environ, body: object) -> bool:
    """Whether the server sends it by itself; nothing of the application runs meanwhile."""
    wrapper = environ.get("wsgi.file_wrapper")
    return isinstance(wrapper, type) and isinstance(body, wrapper)
