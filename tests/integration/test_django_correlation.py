"""Django's middleware of correlation, with sync and async views, in its sync and async handlers."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path

import tests.integration.django_site  # noqa: F401  # sets Django up
from posthouse.edges.correlation import headers
from posthouse.errors import ConfigurationError
from posthouse.seam import NOTHING, Current, current
from posthouse.watch.logs import JsonLines

HEADER = "X-Correlation-ID"
NAME = "posthouse.django.middleware.CorrelationMiddleware"

seen: list[Current] = []
carried: list[dict[str, str]] = []
log = logging.getLogger("site.views")


def look() -> HttpResponse:
    seen.append(current())
    carried.append(headers())
    log.warning("looked")
    return HttpResponse("ok")


def plain(request: HttpRequest) -> HttpResponse:
    return look()


async def asynchronous(request: HttpRequest) -> HttpResponse:
    return look()


def fails(request: HttpRequest) -> HttpResponse:
    seen.append(current())
    raise ValueError("no")


def stream(request: HttpRequest) -> StreamingHttpResponse:
    seen.append(current())
    return StreamingHttpResponse(iter(["x", "y"]))


def parts(request: HttpRequest) -> StreamingHttpResponse:
    def made() -> Iterator[str]:
        for _ in range(2):
            yield str(current().correlation)

    return StreamingHttpResponse(made())


async def asynchronous_parts(request: HttpRequest) -> StreamingHttpResponse:
    async def made() -> AsyncIterator[str]:
        for _ in range(2):
            yield str(current().correlation)

    return StreamingHttpResponse(made())


urlpatterns = [
    path("plain", plain),
    path("asynchronous", asynchronous),
    path("fails", fails),
    path("stream", stream),
    path("parts", parts),
    path("asynchronous_parts", asynchronous_parts),
]


@pytest.fixture(autouse=True)
def site() -> Iterator[None]:
    seen.clear()
    carried.clear()
    with override_settings(ROOT_URLCONF=sys.modules[__name__], MIDDLEWARE=[NAME, NAME], ALLOWED_HOSTS=["*"]):
        yield


async def answer(way: str, page: str, given: Mapping[str, str] | None = None) -> Any:
    if way == "wsgi":
        return await asyncio.to_thread(_get, page, given)
    return await AsyncClient(raise_request_exception=False).get(f"/{page}", headers=given)


def _get(page: str, given: Mapping[str, str] | None) -> Any:
    return Client(raise_request_exception=False).get(f"/{page}", headers=given)


@pytest.mark.parametrize("way", ["wsgi", "asgi"])
@pytest.mark.parametrize("page", ["plain", "asynchronous", "stream", "fails"])
@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_the_id_is_in_the_answer_and_current_in_the_view(way: str, page: str) -> None:
    found = await answer(way, page, {HEADER: "mine"})
    (here,) = seen
    assert uuid.UUID(here.correlation).version == 7
    assert found.headers[HEADER] == here.correlation
    assert here.outer_correlation == "mine"
    assert found.status_code == (500 if page == "fails" else 200)
    assert current() is NOTHING


@pytest.mark.parametrize("way", ["wsgi", "asgi"])
@pytest.mark.parametrize("page", ["plain", "asynchronous"])
async def test_a_line_and_a_call_of_a_view_have_the_id(way: str, page: str) -> None:
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(JsonLines())
    log.addHandler(handler)
    try:
        id = (await answer(way, page)).headers[HEADER]
    finally:
        log.removeHandler(handler)
    assert json.loads(lines.getvalue())["correlation"] == id
    assert carried == [{HEADER: id}]


@pytest.mark.parametrize("way", ["wsgi", "asgi"])
async def test_callers_in_the_settings_choose_it(way: str) -> None:
    with override_settings(POSTHOUSE_TRUSTED=["127.0.0.1"]):
        assert (await answer(way, "plain", {HEADER: "order-17"})).headers[HEADER] == "order-17"


async def test_a_setting_that_means_nothing_is_refused() -> None:
    with (
        override_settings(POSTHOUSE_TRUSTED="127.0.0.1"),
        pytest.raises(ConfigurationError, match=r"POSTHOUSE_TRUSTED is '127.0.0.1'.*write \['127.0.0.1'\]"),
    ):
        await answer("wsgi", "plain")


@pytest.mark.parametrize(("way", "page"), [("wsgi", "parts"), ("asgi", "asynchronous_parts")])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_what_is_streamed_after_the_view_belongs_to_the_request(way: str, page: str) -> None:
    found = await answer(way, page)
    content = found.streaming_content
    body = b"".join(content) if way == "wsgi" else b"".join([part async for part in content])
    assert body.decode() == found.headers[HEADER] * 2
    assert current() is NOTHING


@pytest.mark.parametrize("way", ["wsgi", "asgi"])
async def test_a_line_that_django_logs_after_the_middleware_has_the_id(way: str) -> None:
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("django.request")
    logger.addHandler(handler)
    try:
        found = await answer(way, "missing")
    finally:
        logger.removeHandler(handler)
    assert found.status_code == 404
    assert json.loads(lines.getvalue())["correlation"] == found.headers[HEADER]
