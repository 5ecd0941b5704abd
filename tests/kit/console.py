"""The console asked as its interface asks it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from posthouse.app import app_of
from posthouse.cli.target import services_of
from posthouse.console.access.who import Who
from posthouse.console.application import application
from posthouse.console.asking import Ask, Page
from posthouse.console.estate import Estate
from posthouse.console.pages import TABLES

ADMIN = Who(name="ada", roles=frozenset(("admin",)), payloads=True)


def unguarded(estate: Estate, tables: Mapping[str, Page] = TABLES) -> ASGIApp:
    """The application as the guard lets an admin in, unless somebody outside of it says who asks."""
    inner = application(estate, tables)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope.setdefault("state", {}).setdefault("who", ADMIN)
        await inner(scope, receive, send)

    return app


class Asking:
    """Pages by their path, as data that was JSON on the way, and the problems that came along."""

    def __init__(self, estate: Estate, who: Who = ADMIN) -> None:
        self.estate, self.who = estate, who
        self.problems: list[str] = []

    async def get(self, path: str, query: Mapping[str, str] | None = None, **parts: str) -> Any:
        await self.estate.load()
        page: Page = TABLES[path]
        ask = Ask(estate=self.estate, who=self.who, path=parts, query=query or {})
        data = msgspec.json.decode(msgspec.json.encode(await page(ask)))
        self.problems = [problem.service for problem in ask.problems]
        return data


@contextlib.asynccontextmanager
async def troubled_estate() -> AsyncIterator[Asking]:
    """Over `app` of tests.kit.troubled, which lies in the working directory."""
    sys.modules.pop("app", None)
    estate = Estate(app_of(services_of("app")[0]))
    try:
        yield Asking(estate)
    finally:
        await estate.aclose()
        sys.modules.pop("app", None)
