"""Correlation at the edge: each request has one id, which strangers cannot choose, in its answer, events and calls."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import subprocess
import sys
import threading
import uuid
import wsgiref.util
import wsgiref.validate
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import httpx
import pytest
from fastapi import BackgroundTasks, Depends, FastAPI
from fastapi.responses import PlainTextResponse, StreamingResponse
from flask import Flask, Response
from opentelemetry.sdk.trace import TracerProvider
from starlette.applications import Starlette
from starlette.routing import Mount

from posthouse import Actor, Event, Payload, Service
from posthouse.edges.correlation import AsgiCorrelation, WsgiCorrelation, carry, correlated, headers
from posthouse.errors import ConfigurationError, EventError
from posthouse.seam import NOTHING, Current, current, during
from posthouse.testing import Harness

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
HEADER = "X-Correlation-ID"
Headers = list[tuple[str, str]]


async def says_what_is_current(scope: Any, receive: Any, send: Any) -> None:
    here = current()
    text = "|".join(
        str(one or "") for one in (here.correlation, here.traceparent, here.tracestate, here.outer_correlation)
    )
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": text.encode()})


def wsgi_says_what_is_current(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    here = current()
    text = "|".join(
        str(one or "") for one in (here.correlation, here.traceparent, here.tracestate, here.outer_correlation)
    )
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [text.encode()]


async def over_asgi(trusted: Any, given: Headers, peer: str) -> httpx.Response:
    transport = httpx.ASGITransport(AsgiCorrelation(says_what_is_current, trusted=trusted), client=(peer, 1))
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in given]
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        return await client.get("/", headers=encoded)


async def over_wsgi(trusted: Any, given: Headers, peer: str) -> httpx.Response:
    """As servers do: a header that comes twice is joined by a comma."""
    inner = wsgiref.validate.validator(wsgi_says_what_is_current)
    app = wsgiref.validate.validator(WsgiCorrelation(inner, trusted=trusted))
    environ: dict[str, Any] = {"REMOTE_ADDR": peer, "QUERY_STRING": ""}
    wsgiref.util.setup_testing_defaults(environ)
    for name, value in given:
        key = f"HTTP_{name.upper().replace('-', '_')}"
        environ[key] = f"{environ[key]},{value}" if key in environ else value
    started: list[Headers] = []

    def start_response(status: str, answered: Headers, exc_info: object = None) -> Any:
        started.append(answered)
        return _nothing

    body = app(environ, start_response)
    text = b"".join(body)
    body.close()  # type: ignore[attr-defined]
    return httpx.Response(200, headers=started[0], content=text)


OVER = pytest.mark.parametrize("over", [over_asgi, over_wsgi])
Over = Callable[[Any, Headers, str], Any]


@OVER
async def test_a_trusted_caller_chooses_the_id_and_the_trace(over: Over) -> None:
    given = [(HEADER, "order-17"), ("traceparent", PARENT), ("tracestate", "a=1")]
    answer = await over(["10.0.0.0/8"], given, "10.1.2.3")
    assert answer.headers.get_list(HEADER) == ["order-17"]
    assert answer.text == f"order-17|{PARENT}|a=1|"


@OVER
async def test_without_an_id_the_trace_gives_it_so_that_both_find_the_same_story(over: Over) -> None:
    answer = await over("all", [("traceparent", PARENT)], "10.1.2.3")
    assert answer.headers[HEADER] == str(uuid.UUID(TRACE))


@OVER
async def test_a_stranger_gets_an_id_of_our_own_and_his_is_kept_for_the_log(over: Over) -> None:
    answer = await over(["10.0.0.0/8", "::1"], [(HEADER, "order-17"), ("traceparent", PARENT)], "203.0.113.9")
    made = answer.headers[HEADER]
    assert uuid.UUID(made).version == 7
    assert answer.text == f"{made}|||order-17"


@OVER
async def test_nobody_is_trusted_by_default(over: Over) -> None:
    answer = await over((), [(HEADER, "order-17")], "127.0.0.1")
    assert answer.headers[HEADER] != "order-17"


@OVER
@pytest.mark.parametrize(
    "given",
    [
        [],
        [(HEADER, "")],
        [(HEADER, "x" * 257)],
        [(HEADER, "two words")],
        [(HEADER, "a,b")],
        [(HEADER, "a"), (HEADER, "b")],
        [(HEADER, "<script>")],
        [(HEADER, 'x" level="error')],
        [(HEADER, "caf\u00e9")],
        [("traceparent", "00-" + "0" * 32 + "-00f067aa0ba902b7-01")],
        [("traceparent", PARENT.upper())],
        [("traceparent", PARENT + "-more")],
        [("traceparent", PARENT), ("traceparent", PARENT)],
    ],
)
async def test_what_is_no_id_is_replaced_and_fails_nothing(over: Over, given: Headers) -> None:
    answer = await over("all", given, "10.1.2.3")
    made = answer.headers[HEADER]
    assert uuid.UUID(made).version == 7
    assert answer.text == f"{made}|||"


@OVER
async def test_a_bad_trace_state_is_dropped_alone(over: Over) -> None:
    given = [("traceparent", PARENT), ("tracestate", "=;")]
    assert (await over("all", given, "10.1.2.3")).text == f"{uuid.UUID(TRACE)}|{PARENT}||"


async def test_line_breaks_in_a_header_are_no_id() -> None:
    """No client sends them; a server that lets them in does not bring them further."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "headers": [(b"x-correlation-id", b"a\r\nSet-Cookie: x=1")], "client": None}
    await AsgiCorrelation(says_what_is_current, trusted="all")(scope, _nothing, send)
    (echoed,) = sent[0]["headers"]
    assert uuid.UUID(echoed[1].decode()).version == 7


@pytest.mark.parametrize("peer", ["::ffff:10.1.2.3", "10.1.2.3"])
async def test_an_address_is_known_in_both_spellings(peer: str) -> None:
    assert (await over_asgi(["10.0.0.0/8"], [(HEADER, "a")], peer)).headers[HEADER] == "a"


@pytest.mark.parametrize("peer", ["testclient", "", "unix:", "fe80::1%eth0"])
async def test_a_peer_that_is_no_address_of_the_list_is_a_stranger(peer: str) -> None:
    assert (await over_asgi(["10.0.0.0/8"], [(HEADER, "a")], peer)).headers[HEADER] != "a"


async def test_websockets_and_the_lifespan_pass() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope, current()))

    for scope in ({"type": "lifespan"}, {"type": "websocket", "headers": []}):
        await AsgiCorrelation(app)(scope, _nothing, _nothing)
    assert seen == [({"type": "lifespan"}, NOTHING), ({"type": "websocket", "headers": []}, NOTHING)]


def api_of(seen: list[Current]) -> FastAPI:
    api = FastAPI()

    @api.get("/async")
    async def asynchronous() -> str:
        seen.append(current())
        return "ok"

    @api.get("/thread")
    def in_a_thread() -> str:
        seen.append(current())
        return "ok"

    @api.get("/stream")
    async def stream() -> StreamingResponse:
        async def parts() -> AsyncIterator[str]:
            for _ in range(3):
                seen.append(current())
                yield "x"

        return StreamingResponse(parts())

    @api.get("/background")
    async def background(tasks: BackgroundTasks) -> str:
        tasks.add_task(lambda: seen.append(current()))
        return "ok"

    @api.get("/fails")
    async def fails() -> None:
        raise ValueError("no")

    return api


@pytest.mark.parametrize("path", ["/async", "/thread", "/stream", "/background"])
async def test_fastapi_has_it_in_views_threads_streams_and_background_tasks(path: str) -> None:
    seen: list[Current] = []
    api = api_of(seen)
    api.add_middleware(AsgiCorrelation)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://shop") as client:
        answer = await client.get(path)
    assert {here.correlation for here in seen} == {answer.headers[HEADER]}
    assert seen
    assert current() is NOTHING


async def test_mounted_twice_it_is_one_request_with_one_id() -> None:
    seen: list[Current] = []
    inner = api_of(seen)
    inner.add_middleware(AsgiCorrelation, trusted="all")
    outer = AsgiCorrelation(Starlette(routes=[Mount("/inner", AsgiCorrelation(inner))]))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(outer), base_url="http://shop") as client:
        answer = await client.get("/inner/async", headers={HEADER: "mine"})
    assert answer.headers.get_list(HEADER) == [seen[0].correlation]
    assert seen[0].outer_correlation == "mine"  # the outer one decides whom it trusts


async def test_an_error_that_nobody_handles_is_answered_with_the_id_and_names_it() -> None:
    app = AsgiCorrelation(api_of([]))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        answer = await client.get("/fails")
        assert answer.status_code == 500
        assert uuid.UUID(answer.headers[HEADER]).version == 7
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        with pytest.raises(ValueError, match="no") as raised:
            await client.get("/fails")
    assert len(raised.value.__notes__) == 1
    assert raised.value.__notes__[0].startswith("correlation ")


async def test_an_application_that_raises_before_it_answers_is_answered_for() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("no")

    transport = httpx.ASGITransport(AsgiCorrelation(app), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        answer = await client.get("/")
    assert (answer.status_code, answer.text) == (500, "Internal Server Error")
    assert uuid.UUID(answer.headers[HEADER]).version == 7


async def test_inside_of_a_framework_its_own_answer_to_errors_stays() -> None:
    api = api_of([])
    api.add_middleware(AsgiCorrelation)

    @api.exception_handler(Exception)
    async def answer_it(request: Any, error: Exception) -> PlainTextResponse:
        return PlainTextResponse("our page", status_code=500)

    transport = httpx.ASGITransport(api, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        assert (await client.get("/fails")).text == "our page"


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int


async def test_an_error_that_takes_no_note_is_raised_as_it_is() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise Frozen(7)

    with pytest.raises(Frozen):
        await AsgiCorrelation(app)({"type": "http", "headers": []}, _nothing, _nothing)


async def test_an_error_that_many_requests_raise_has_the_note_of_the_last() -> None:
    error = ValueError("no")
    error.add_note("mine")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        error.add_note("between")
        raise error

    transport = httpx.ASGITransport(AsgiCorrelation(app, trusted="all"))
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        for id in ("r1", "r2"):
            with pytest.raises(ValueError, match="no"):
                await client.get("/", headers={HEADER: id})
    assert error.__notes__ == ["mine", "between", "between", "correlation r2"]


# A tenant that would not reach what is published.


def plain_dependency() -> Iterator[None]:
    with correlated(tenant="t1"):
        yield


async def asynchronous_dependency() -> AsyncIterator[None]:
    with correlated(tenant="t1"):
        yield


@pytest.mark.parametrize("middleware", [True, False])
@pytest.mark.parametrize("view", ["plain", "asynchronous"])
async def test_a_tenant_that_a_thread_says_for_others_is_refused(middleware: bool, view: str) -> None:
    seen: list[Current] = []
    api = FastAPI()
    if middleware:
        api.add_middleware(AsgiCorrelation)

    @api.get("/refused/asynchronous", dependencies=[Depends(plain_dependency)])
    @api.get("/asynchronous", dependencies=[Depends(asynchronous_dependency)])
    async def asynchronous() -> None:
        seen.append(current())

    @api.get("/refused/plain", dependencies=[Depends(plain_dependency)])
    @api.get("/plain", dependencies=[Depends(asynchronous_dependency)])
    def plain() -> None:
        with plain_block():
            seen.append(current())

    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://shop") as client:
        with pytest.raises(EventError, match="Write `async def` instead of `def`"):
            await client.get(f"/refused/{view}")
        assert seen == []
        assert (await client.get(f"/{view}")).status_code == 200
    assert [here.tenant for here in seen] == ["t1"]


@contextlib.contextmanager
def plain_block() -> Iterator[None]:
    with correlated():
        yield


async def test_a_tenant_of_a_body_that_threads_make_part_by_part_is_refused() -> None:
    api = FastAPI()

    @api.get("/")
    def view() -> StreamingResponse:
        def parts() -> Iterator[str]:
            with correlated(tenant="t1"):
                yield "x"
                yield str(current().tenant)

        return StreamingResponse(parts())

    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://shop") as client:
        with pytest.raises(EventError, match="async def"):
            await client.get("/")


async def test_plain_functions_and_their_blocks_may_say_a_tenant_in_a_thread() -> None:
    def work() -> str | None:
        with plain_block(), correlated(tenant="t1"):
            return current().tenant

    assert await asyncio.to_thread(work) == "t1"


async def test_a_wsgi_application_inside_of_an_asgi_one_has_its_request_and_tenant() -> None:
    seen: list[Current] = []

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        with correlated(tenant="t1"):
            await asyncio.to_thread(WsgiCorrelation(inner), {}, lambda *_: None)
        await says_what_is_current(scope, receive, send)

    def inner(environ: dict[str, Any], start_response: Any) -> Any:
        seen.append(current())
        start_response("200 OK", [])
        return []

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(AsgiCorrelation(outer, trusted="all")), base_url="http://shop"
    ) as client:
        await client.get("/", headers={HEADER: "r1"})
    assert [(here.correlation, here.tenant) for here in seen] == [("r1", "t1")]


def flask_of(seen: list[Current]) -> Flask:
    app = Flask("shop")
    app.wsgi_app = WsgiCorrelation(app.wsgi_app)  # type: ignore[method-assign]

    @app.get("/plain")
    def plain() -> str:
        seen.append(current())
        return "ok"

    @app.get("/stream")
    def stream() -> Response:
        def parts() -> Iterator[str]:
            for _ in range(3):
                seen.append(current())
                yield "x"

        return Response(parts())

    @app.get("/fails")
    def fails() -> str:
        raise ValueError("no")

    return app


@pytest.mark.parametrize(("path", "status"), [("/plain", 200), ("/stream", 200), ("/fails", 500), ("/none", 404)])
def test_flask_has_it_in_views_streams_and_errors(path: str, status: int) -> None:
    seen: list[Current] = []
    with flask_of(seen).test_client() as client:
        answer = client.get(path)
        body = answer.data
    assert (answer.status_code, len(answer.headers.getlist(HEADER))) == (status, 1)
    assert body
    assert {here.correlation for here in seen} <= {answer.headers[HEADER]}
    assert bool(seen) is (status == 200)
    assert current() is NOTHING


def test_a_file_is_left_to_the_server_and_a_list_keeps_its_length() -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Any:
        start_response("200 OK", [])
        return wsgiref.util.FileWrapper(io.BytesIO(b"x")) if environ.get("file") else [b"x"]

    def called(**more: Any) -> Any:
        environ: dict[str, Any] = {"wsgi.file_wrapper": wsgiref.util.FileWrapper, **more}
        return WsgiCorrelation(app)(environ, lambda *_: None)

    assert isinstance(called(file=True), wsgiref.util.FileWrapper)
    assert called() == [b"x"]


def test_a_streamed_answer_is_closed_in_the_context_of_its_request() -> None:
    closed: list[Current] = []

    class Body:
        def __iter__(self) -> Iterator[bytes]:
            yield b"x"

        def close(self) -> None:
            closed.append(current())

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        start_response("200 OK", [])
        return Body()

    body: Any = WsgiCorrelation(app)({}, lambda *_: None)
    assert list(body) == [b"x"]
    body.close()
    assert closed[0].correlation


def test_requests_in_threads_have_ids_of_their_own() -> None:
    seen: list[Current] = []
    app = flask_of(seen)
    barrier = threading.Barrier(8)

    @app.before_request
    def meet() -> None:
        barrier.wait(5)

    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(app.test_client().get("/plain").headers[HEADER])) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 8
    assert {here.correlation for here in seen} == set(found)


@pytest.mark.parametrize("middleware", [AsgiCorrelation, WsgiCorrelation])
def test_a_list_of_callers_that_means_nothing_is_refused(middleware: type[AsgiCorrelation | WsgiCorrelation]) -> None:
    name = middleware.__name__
    with pytest.raises(ConfigurationError, match=rf"{name}: trusted has '10.0.0.1/8': .*host bits"):
        middleware(says_what_is_current, trusted=["10.0.0.1/8", "10.0.0.0/8"])
    with pytest.raises(ConfigurationError, match="trusted"):
        middleware(says_what_is_current, trusted="10.0.0.0/8")


# Calls to others.


async def test_calls_carry_what_is_current_and_never_overwrite_what_the_caller_has_set() -> None:
    def echo(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=dict(request.headers))

    hooks: dict[str, list[Any]] = {"request": [carry]}
    with (
        during(Current(correlation="r1", traceparent=PARENT, tracestate="a=1")),
        httpx.Client(transport=httpx.MockTransport(echo), event_hooks=hooks) as client,
    ):
        async with httpx.AsyncClient(transport=httpx.MockTransport(echo), event_hooks=hooks) as asynchronous:
            for answer in (client.get("http://x"), await asynchronous.get("http://x")):  # noqa: ASYNC212  # nothing waits
                got = answer.json()
                assert (got["x-correlation-id"], got["traceparent"], got["tracestate"]) == ("r1", PARENT, "a=1")
            own = client.get("http://x", headers={HEADER: "mine", "traceparent": PARENT[:-1] + "0"}).json()  # noqa: ASYNC212
    assert (own["x-correlation-id"], own["traceparent"]) == ("mine", PARENT[:-1] + "0")
    assert "tracestate" not in own  # of another trace


def test_where_a_span_is_current_a_call_is_below_it() -> None:
    tracer = TracerProvider().get_tracer("test")
    with during(Current(correlation="r1", traceparent=PARENT)), tracer.start_as_current_span("x") as span:
        made = span.get_span_context()
        assert headers() == {
            HEADER: "r1",
            "traceparent": f"00-{made.trace_id:032x}-{made.span_id:016x}-{int(made.trace_flags):02x}",
        }


def test_where_nothing_is_current_nothing_is_carried() -> None:
    assert headers() == {}
    request = httpx.Request("GET", "http://x")
    before = dict(request.headers)
    carry(request)
    assert dict(request.headers) == before


def test_an_id_that_no_header_can_say_is_encoded() -> None:
    with during(Current(correlation="a\r\nSet-Cookie: x=1 \u2713")):
        assert headers() == {HEADER: "a%0D%0ASet-Cookie%3A%20x%3D1%20%E2%9C%93"}


async def test_calls_of_a_handler_carry_the_correlation_of_its_event() -> None:
    shop, carried = Service("shop"), list[dict[str, str]]()

    @shop.event("order.placed.v1", key="order")
    class Placed(Payload):
        order: str

    @shop.on(Placed)
    async def asynchronous(event: Event[Placed]) -> None:
        carried.append(headers())

    @shop.on(Placed, consumer="plain")
    def plain(event: Event[Placed]) -> None:
        carried.append(headers())

    async with Harness(shop) as harness:
        await harness.publish(Placed(order="o1"), correlation="r1")
        await harness.settled()
    assert carried == [{HEADER: "r1"}, {HEADER: "r1"}]


# Work that is no request.


def test_a_script_has_a_correlation_of_its_own_or_the_one_that_it_says() -> None:
    with correlated("nightly-1") as first:
        with correlated(tenant="t1", actor=Actor(kind="user", id="u1")) as second:
            assert (current().tenant, current().actor) == ("t1", Actor(kind="user", id="u1"))
        assert current().tenant is None
    with correlated() as third:
        assert uuid.UUID(third).version == 7
    assert (first, second) == ("nightly-1", "nightly-1")


@pytest.mark.parametrize(
    "wrong", [{"correlation": "x" * 257}, {"tenant": ""}, {"actor": "u1"}, {"correlation": "a\x00"}]
)
def test_what_no_event_could_carry_is_refused_where_it_is_said(wrong: dict[str, Any]) -> None:
    with pytest.raises(EventError), correlated(**wrong):
        pass


def test_the_edge_imports_no_framework_and_no_client() -> None:
    code = "import sys, posthouse.edges.correlation; print(*{'starlette', 'httpx', 'flask', 'django', 'opentelemetry'} & sys.modules.keys())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""


async def _nothing(*_: object) -> Any:
    await asyncio.sleep(0)
