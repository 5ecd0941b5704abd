"""Django's middleware of correlation: `posthouse.django.middleware.CorrelationMiddleware`, the first in MIDDLEWARE."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse

from posthouse.edges.correlation import HEADER, Edge, from_environ
from posthouse.seam.current import SCOPE, Current, during

Answer = HttpResponseBase | Awaitable[HttpResponseBase]


class CorrelationMiddleware:
    """As `posthouse.edges.correlation` says, under WSGI and ASGI, with sync and async views. `POSTHOUSE_TRUSTED` in the settings
    lists the addresses of callers whose ids are taken."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Answer]) -> None:
        self._get_response = get_response
        self._edge = Edge("POSTHOUSE_TRUSTED", getattr(settings, "POSTHOUSE_TRUSTED", ()))
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Answer:
        if SCOPE in request.META or SCOPE in getattr(request, "scope", ()):  # another one is around this
            return self._get_response(request)
        here = request.META[SCOPE] = from_environ(self._edge, request.META)
        if self._is_async:
            return self._awaited(request, here)
        with during(here):
            return _echoed(cast("HttpResponseBase", self._get_response(request)), here)

    async def _awaited(self, request: HttpRequest, here: Current) -> HttpResponseBase:
        with during(here):
            return _echoed(await cast("Awaitable[HttpResponseBase]", self._get_response(request)), here)


def _echoed(response: HttpResponseBase, here: Current) -> HttpResponseBase:
    response[HEADER] = str(here.correlation)
    if isinstance(response, StreamingHttpResponse) and getattr(response, "file_to_stream", None) is None:
        parts = response.streaming_content  # made after this, as the server asks for them
        response.streaming_content = _later(parts, here) if isinstance(parts, AsyncIterator) else _each(parts, here)
    return response


def _each(parts: Iterator[bytes], here: Current) -> Iterator[bytes]:
    while True:
        with during(here):
            part = next(parts, None)
        if part is None:
            return
        yield part


async def _later(parts: AsyncIterator[bytes], here: Current) -> AsyncIterator[bytes]:
    while True:
        with during(here):
            part = await anext(parts, None)
        if part is None:
            return
        yield part
