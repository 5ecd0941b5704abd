"""ASGI: the same pages inside a web application: `web.mount("/posthouse", pages(app))` serves `/posthouse/metrics` and the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from urllib.parse import parse_qsl

from posthouse.app import App
from posthouse.watch.asking import Asked
from posthouse.watch.beat import Seen
from posthouse.watch.http import METHODS, Answer, Request, said
from posthouse.watch.idle import Idle
from posthouse.watch.pages import Pages
from posthouse.watch.process import samples as process_samples
from posthouse.watch.scale import Scaling
from posthouse.watch.serving import prefix_of
from posthouse.watch.standing import Standing

Scope = MutableMapping[str, object]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]


def pages(*apps: App, prefix: str | None = None) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """An ASGI application with /metrics, /healthz, /readyz and /scale of these Apps, which run on the same event loop. `prefix` is
    that of `posthouse run`. Whoever reaches it can read it: put it behind what you have for that."""
    return _Mounted(apps, prefix_of(prefix))


class _Mounted:
    def __init__(self, apps: tuple[App, ...], prefix: str) -> None:
        self._apps = apps
        self._prefix = prefix
        self._made: tuple[asyncio.AbstractEventLoop, Pages, Idle] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"the pages of Posthouse are served over http, not {scope['type']}")
        answer = await self._answer(scope)
        headers = {"content-type": answer.content_type, "cache-control": "no-store", **answer.headers}
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": raw})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})

    async def _answer(self, scope: Scope) -> Answer:
        if scope["method"] not in METHODS:
            return said(405, f"{scope['method']} is not taken here: GET and HEAD are", Allow=", ".join(METHODS))
        pages, idle = self._pages()
        request = _request(scope)
        if request.path == "/readyz":
            await idle.look()
        return await pages.answer(request)

    def _pages(self) -> tuple[Pages, Idle]:
        loop = asyncio.get_running_loop()
        if self._made is None or self._made[0] is not loop:
            idle = Idle(self._apps, loop)
            made = Pages(
                seen=lambda: Seen(0.0, idle.health()),
                waits=str,
                process=lambda: process_samples(self._apps),
                standing=Asked(Standing(self._apps).samples, loop),
                scaling=Scaling(self._apps),
                prefix=self._prefix,
            )
            self._made = (loop, made, idle)
        return self._made[1:]


def _request(scope: Scope) -> Request:
    path, root, headers, query = (scope.get(name) for name in ("path", "root_path", "headers", "query_string"))
    assert isinstance(path, str)
    assert isinstance(headers, list | tuple)
    return Request(
        path.removeprefix(root) if isinstance(root, str) else path,
        dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)) if isinstance(query, bytes) else {},
        {name.decode("latin-1"): value.decode("latin-1") for name, value in headers},
        str(scope["method"]),
    )
