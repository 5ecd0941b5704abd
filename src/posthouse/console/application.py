"""Application: the console as one ASGI application, to be served alone or mounted under any path of another."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from posthouse.app import App
from posthouse.console.access.access import Access
from posthouse.console.access.guard import Guard
from posthouse.console.access.who import Who
from posthouse.console.acting.running import Runner
from posthouse.console.acting.table import LARGEST, pressed
from posthouse.console.asking import Ask, Page, Refusal, refuse_nul
from posthouse.console.dispatch import Paths, parts_of
from posthouse.console.estate import Estate
from posthouse.console.interface import Static, index
from posthouse.console.live import Live
from posthouse.console.pages import TABLES
from posthouse.errors import ConfigurationError
from posthouse.redaction import without_carried
from posthouse.service import Service
from posthouse.store.actions import Action

log = logging.getLogger("posthouse.console")


def console(*apps_or_services: App | Service, access: Access) -> Guard:
    """The console over some services, an ASGI application to be mounted in another: `app.mount("/posthouse", console(orders,
    access=Access(who=…)))`. `access` says how it knows who asks."""
    if access.way == "token":
        raise ConfigurationError(
            "console(access=Access()): a one-time token is for `posthouse console`, which prints it. In your own application"
            " say Access(who=…), a function from the ASGI scope to Who, or Access(oidc=…) or Access(proxy=…)"
        )
    return guarded(Estate(*apps_or_services), access)


def guarded(estate: Estate, access: Access, announce: Callable[[str], None] | None = None) -> Guard:
    """The console over an estate, for those whom `access` lets in. `announce` is told of every new one-time token."""

    async def note(verb: str, by: str, target: str) -> None:
        """In the log of every store that there is: each is asked on its own who came."""
        action = Action(verb=verb, by=f"{by} (console)", target=target)

        async def write(app: App) -> None:
            async with app.store.begin() as tx:
                await app.actions.note(tx, action)

        for problem in (await estate.each(write)).problems:
            log.warning("%s by %s is not in the operators' log of %s: %s", verb, by, problem.service, problem.what)

    inner = application(estate)
    return Guard(inner, access=access, note=note, announce=announce, ending=inner.state.live.aclose)


def application(estate: Estate, tables: Mapping[str, Page] = TABLES) -> Starlette:
    """The console over an estate, for a guard that says who asks: without one nobody is answered. Stores are looked at when somebody asks, as an application that is mounted is not told of
    its start; none is made by that."""

    runner = Runner(estate)
    live = Live(estate, who_of)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        runner.start()
        yield
        await runner.aclose()
        await live.aclose()
        await estate.aclose()

    app = Starlette(
        routes=[
            Route("/api/live", live, methods=["GET"]),
            Route("/api/{path:path}", partial(_answer, estate, Paths(tables)), methods=["GET"]),
            Route("/api/acts/{name}", partial(_act, estate), methods=["POST"]),
            Mount("/static", Static()),
            Route("/{path:path}", index, methods=["GET"]),
        ],
        middleware=[Middleware(_Awake, runner=runner), Middleware(GZipMiddleware, minimum_size=1_000)],
        exception_handlers={Refusal: _refused, HTTPException: _unfit},
        lifespan=lifespan,
    )
    app.state.live = live
    return app


class _Awake:
    """Takes jobs up at whatever is asked first: what is mounted is not told of its start, and may have been ended within a job."""

    def __init__(self, app: ASGIApp, runner: Runner) -> None:
        self._app, self._runner = app, runner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._runner.start()
        await self._app(scope, receive, send)


async def _answer(estate: Estate, paths: Paths, request: Request) -> Response:
    page, path = paths.find(parts_of(request.scope))
    who = who_of(request)
    try:
        await estate.load()
        ask = Ask(estate=estate, who=who, path=path, query=request.query_params)
        refuse_nul({**ask.query, **ask.path})
        data = await page(ask)
        problems = dict.fromkeys([*estate.problems, *ask.problems])
        return as_json({"data": data, "problems": [*problems], "at": datetime.now(UTC)})
    except Refusal:
        raise
    except Exception as error:
        return failed(request, error)


async def _act(estate: Estate, request: Request) -> Response:
    who = who_of(request)
    try:
        await estate.load()
        done = await pressed(estate, who, request.path_params["name"], await _body(request))
        return as_json({"data": done, "problems": [], "at": datetime.now(UTC)})
    except Refusal:
        raise
    except Exception as error:
        return failed(request, error)


def who_of(request: Request) -> Who:
    """Who asks, as the guard found it. Raises Refusal where it found nobody: a stranger whom it let through because it and the routes
    disagree on what a path is, or no guard at all."""
    who: Who | None = getattr(request.state, "who", None)
    if who is None:
        raise Refusal(401, "You are not signed in.", "Sign in, and this is asked again.")
    return who


async def _body(request: Request) -> bytes:
    """No more of it than an act may say."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST:
            raise Refusal(413, "The request is too large.")
    return bytes(body)


def as_json(value: object, status: int = 200) -> Response:
    """An answer, which nobody keeps."""
    return Response(
        without_carried(msgspec.json.encode(value).decode()),
        status,
        {"cache-control": "no-store"},
        media_type="application/json; charset=utf-8",
    )


def _error(status: int, message: str, hint: str = "") -> Response:
    return as_json({"error": {"message": message, "hint": hint}}, status)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return _error(error.status, error.message, error.hint)


async def _unfit(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        answer = _error(405, f"{request.method} is not for {request.url.path}.", "Nothing was changed.")
    else:
        answer = _error(error.status_code, error.detail)
    answer.headers.update(error.headers or {})
    return answer


def failed(request: Request, error: Exception) -> Response:
    """What went wrong is in the log, never in the answer: it may hold what this person may not see."""
    log.exception("%s %s failed", request.method, request.url.path)
    return _error(
        500,
        f"The console could not answer this ({type(error).__name__}).",
        "Its log has the whole story. The other pages work.",
    )
