"""The registry over HTTP: Confluent's paths, bodies and numbers, on any ASGI server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import unquote

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from posthouse.errors import PosthouseError, StoreError
from posthouse.governance.registry import refusal
from posthouse.governance.registry.door import Door, OpenDoor
from posthouse.governance.registry.formats import known_formats
from posthouse.governance.registry.judge import Judge, ThreadJudge
from posthouse.governance.registry.ledger import Ledger
from posthouse.governance.registry.questions import QUESTIONS, Asked, Question
from posthouse.governance.registry.refusal import Refusal
from posthouse.governance.registry.registry import Registry
from posthouse.governance.registry.strangers import JSON, check_body_kind, check_sender, chosen_kind
from posthouse.governance.registry.users import Role
from posthouse.governance.registry.workers import WorkerJudge

log = logging.getLogger("posthouse.governance.registry")

MOST_BYTES = 2 * 1024 * 1024
PATIENCE = 30.0
BODY_PATIENCE = 10.0
"""Seconds for the body of a request."""


def registry_app(
    ledger: Ledger,
    *,
    door: Door | None = None,
    judge: Judge | None = None,
    opened: bool = False,
    loopback: bool = False,
    most_bytes: int = MOST_BYTES,
    patience: float = PATIENCE,
) -> ASGIApp:
    """The application. It opens the ledger when the server starts and closes it when the server ends, unless whoever made
    it has `opened` it, and closes it.

    Without a `door` everybody may do everything; say `loopback` where only this machine reaches it, and names of others are
    refused, so that no web page asks in its reader's place. Schemas are read and compared by `judge`: without one, in
    processes of their own if the application opens the ledger, else in threads. A body of more than `most_bytes` is
    refused, and a request that takes more than `patience` seconds is given up.
    """
    formats = known_formats()
    chosen = judge or (ThreadJudge(formats) if opened else WorkerJudge(patience=patience / 2))
    registry = Registry(ledger, formats, chosen)
    desk = _Desk(registry, door or OpenDoor(), most_bytes, patience, loopback=loopback)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        if opened:
            yield
            return
        await ledger.open()
        try:
            yield
        finally:
            await chosen.aclose()
            await ledger.aclose()

    routes = [Route(question.path, desk.answering(question), methods=[question.method]) for question in QUESTIONS]
    app = Starlette(
        routes=routes, lifespan=lifespan, exception_handlers={404: _no_such_path, 405: _no_such_path, 500: _broken}
    )
    app.router.redirect_slashes = False
    return _RawPaths(app)


class _RawPaths:
    """Routes by the path as it was sent: a subject may have a slash in it, which is %2F there."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("raw_path"):
            path = scope["raw_path"].decode("latin-1").partition("?")[0]
            scope = {**scope, "path": path.rstrip("/") or "/"}
        await self._app(scope, receive, send)


class _Desk:
    """Takes a request, asks who it is from, bounds it, and words the answer."""

    def __init__(self, registry: Registry, door: Door, most_bytes: int, patience: float, *, loopback: bool) -> None:
        self._loopback = loopback
        self._registry = registry
        self._door = door
        self._most_bytes = most_bytes
        self._patience = patience

    def answering(self, question: Question) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint of a question."""

        async def endpoint(request: Request) -> Response:
            try:
                async with asyncio.timeout(self._patience):
                    return await self._answer(question, request)
            except TimeoutError:
                refused = refusal.timed_out(self._patience)
            except Refusal as error:
                refused = error
            except StoreError as error:
                log.warning("the registry's store failed: %s", error)
                refused = refusal.store_failed(str(error))
            except PosthouseError as error:
                log.error("a request failed: %s", error)
                refused = Refusal(500, 500, "the registry is not set up rightly; its log says more")
            return _refused(refused, chosen_kind(request.headers.get("accept", "")) or JSON, self._door.challenge)

        return endpoint

    async def _answer(self, question: Question, request: Request) -> Response:
        check_sender(request.headers, loopback=self._loopback)
        kind = chosen_kind(request.headers.get("accept", ""))
        if kind is None:
            raise refusal.not_acceptable(request.headers.get("accept", ""))
        guest = await self._door.let_in(request.scope)
        path = {name: unquote(value) for name, value in request.path_params.items()}
        asked = Asked(path, dict(request.query_params))
        needed = question.needs(asked)
        if guest.role < needed:
            log.warning("registry refused: %s, %s %r", guest.name, question.method, request.url.path[:200])
            raise refusal.not_your_role(needed.name.lower())
        if question.method in ("POST", "PUT"):
            check_body_kind(request.headers)
            asked = msgspec.structs.replace(asked, body=await self._body(request))
        answer = await question.answer(self._registry, asked)
        if needed > Role.READ:
            log.info("registry changed: %s, %s %r", guest.name, question.method, request.url.path[:200])
        if isinstance(answer, str):
            return Response(answer, media_type=kind)
        return Response(msgspec.json.encode(answer), media_type=kind)

    async def _body(self, request: Request) -> bytes:
        said = request.headers.get("content-length", "")
        if said.isdigit() and int(said) > self._most_bytes:
            raise refusal.too_large(self._most_bytes)
        parts = bytearray()
        try:
            async with asyncio.timeout(min(BODY_PATIENCE, self._patience)):
                async for part in request.stream():
                    parts += part
                    if len(parts) > self._most_bytes:
                        raise refusal.too_large(self._most_bytes)
        except TimeoutError as error:
            raise refusal.too_slow() from error
        except ClientDisconnect as error:
            raise refusal.bad_request("the request ended too soon") from error
        return bytes(parts)


def _refused(refused: Refusal, kind: str = JSON, challenge: str = "") -> Response:
    headers = {"WWW-Authenticate": challenge} if refused.status == 401 else {}
    if refused.status in (408, 413, 415):
        headers["Connection"] = "close"
    body = msgspec.json.encode({"error_code": refused.code, "message": str(refused)})
    return Response(body, refused.status, media_type=kind, headers=headers)


async def _no_such_path(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    return _refused(Refusal(status, status, f"HTTP {status}: there is no {request.method} {request.url.path[:200]}"))


async def _broken(request: Request, error: Exception) -> Response:
    return _refused(Refusal(500, 500, "Internal Server Error"))
