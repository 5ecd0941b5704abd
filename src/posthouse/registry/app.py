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
from posthouse.registry import refusal
from posthouse.registry.door import Door, OpenDoor
from posthouse.registry.formats import known_formats
from posthouse.registry.ledger import Ledger
from posthouse.registry.questions import QUESTIONS, Asked, Question
from posthouse.registry.refusal import Refusal
from posthouse.registry.registry import Registry

log = logging.getLogger("posthouse.registry")

JSON = "application/vnd.schemaregistry.v1+json"
MOST_BYTES = 2 * 1024 * 1024
PATIENCE = 30.0


def registry_app(
    ledger: Ledger,
    *,
    door: Door | None = None,
    opened: bool = False,
    most_bytes: int = MOST_BYTES,
    patience: float = PATIENCE,
) -> ASGIApp:
    """The application. It opens the ledger when the server starts and closes it when the server ends, unless whoever made
    it has `opened` it, and closes it.

    Without a `door` everybody may do everything. A body of more than `most_bytes` is refused, and a request that takes more
    than `patience` seconds is given up.
    """
    registry = Registry(ledger, known_formats())
    desk = _Desk(registry, door or OpenDoor(), most_bytes, patience)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        if opened:
            yield
            return
        await ledger.open()
        try:
            yield
        finally:
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

    def __init__(self, registry: Registry, door: Door, most_bytes: int, patience: float) -> None:
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
                return _refused(refusal.timed_out(self._patience))
            except Refusal as refused:
                return _refused(refused)
            except StoreError as error:
                log.warning("the registry's store failed: %s", error)
                return _refused(refusal.store_failed(str(error)))
            except PosthouseError as error:
                log.error("a request failed: %s", error)
                return _refused(Refusal(500, 500, "the registry is not set up rightly; its log says more"))

        return endpoint

    async def _answer(self, question: Question, request: Request) -> Response:
        role = await self._door.role_of(request.headers.get("authorization", ""))
        path = {name: unquote(value) for name, value in request.path_params.items()}
        asked = Asked(path, dict(request.query_params))
        needed = question.needs(asked)
        if role < needed:
            raise refusal.not_your_role(needed.name.lower())
        if question.method in ("POST", "PUT"):
            asked = msgspec.structs.replace(asked, body=await self._body(request))
        answer = await question.answer(self._registry, asked)
        if isinstance(answer, str):
            return Response(answer, media_type=JSON)
        return Response(msgspec.json.encode(answer), media_type=JSON)

    async def _body(self, request: Request) -> bytes:
        said = request.headers.get("content-length", "")
        if said.isdigit() and int(said) > self._most_bytes:
            raise refusal.too_large(self._most_bytes)
        parts = bytearray()
        try:
            async for part in request.stream():
                parts += part
                if len(parts) > self._most_bytes:
                    raise refusal.too_large(self._most_bytes)
        except ClientDisconnect as error:
            raise refusal.bad_request("the request ended too soon") from error
        return bytes(parts)


def _refused(refused: Refusal) -> Response:
    headers = {"WWW-Authenticate": 'Basic realm="posthouse registry", charset="UTF-8"'} if refused.status == 401 else {}
    if refused.status == 413:
        headers["Connection"] = "close"
    body = msgspec.json.encode({"error_code": refused.code, "message": str(refused)})
    return Response(body, refused.status, media_type=JSON, headers=headers)


async def _no_such_path(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    return _refused(Refusal(status, status, f"HTTP {status}: there is no {request.method} {request.url.path[:200]}"))


async def _broken(request: Request, error: Exception) -> Response:
    return _refused(Refusal(500, 500, "Internal Server Error"))
