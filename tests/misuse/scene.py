"""Where mistakes are made: an empty folder with one service, and everything that a newcomer has imported."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import datetime
import inspect
import math
import os
import shlex
import sqlite3
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from typer.testing import CliRunner

import posthouse
from posthouse import testing
from posthouse.app import app_of
from posthouse.cli import app as cli
from posthouse.edges.correlation import AsgiCorrelation, correlated
from posthouse.edges.receipts import saying
from posthouse.edges.sse import sse_endpoint
from posthouse.errors import PosthouseError
from posthouse.testing.chaos import Chaos
from posthouse.watch.logs import configure

SHOP = """
from posthouse import App, Event, Payload, Service, Tx

orders = Service("orders")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str
    total: float | None = None


@orders.on(OrderPlaced)
async def invoice(event: Event[OrderPlaced], tx: Tx) -> None: ...


app = App(orders, store="sqlite:///shop.db", broker="embedded:///log.db")
number = 5
"""


PLAIN = """
from posthouse import Service

orders = Service("orders")
"""


class Mistake(NamedTuple):
    """What is done, as it is written, and a part of the sentence that answers it."""

    name: str
    code: str
    sentence: str


class Answer(NamedTuple):
    """What came of it. `kind` is the class of the error, or the exit code of a command."""

    kind: str
    text: str
    ours: bool
    left: list[str]
    """Files that are there afterwards and were not before, and facts and rows that were kept."""


def answer_to(code: str, folder: Path) -> Answer:
    """Make a mistake in a folder of its own. Lines that begin with `$` set the environment."""
    lines = code.splitlines()
    environ = dict(line[1:].split("=", 1) for line in lines if line.startswith("$"))
    code = "\n".join(line for line in lines if not line.startswith("$"))
    with _inside(folder, environ):
        before = _files(folder)
        answer = _command(code) if code.startswith("posthouse ") else asyncio.run(_statements(code))
        return answer._replace(left=[*sorted(_files(folder) - before), *answer.left])


def _command(line: str) -> Answer:
    result = CliRunner().invoke(cli, shlex.split(line)[1:], env={"COLUMNS": "250"})
    for name in ("shop", "broken", "empty", "plain"):  # the next one has others of these names
        sys.modules.pop(name, None)
    ours = result.exit_code != 0 and (result.exception is None or isinstance(result.exception, SystemExit))
    text = _unboxed(result.output) if ours else f"{result.output}\n{result.exception!r}"
    return Answer(f"exit {result.exit_code}", text.strip(), ours and "Traceback" not in text, [])


def _unboxed(output: str) -> str:
    """What a command said, without the box and the usage around it."""
    lines = (line.strip("│╭╰─╮╯ ") for line in output.splitlines())
    return " ".join(
        " ".join(line.split()) for line in lines if line and not line.startswith(("Usage:", "Try '", "Error"))
    )


async def _statements(code: str) -> Answer:
    names = namespace()
    orders = names["orders"]
    try:
        async with asyncio.timeout(5):
            found = eval(_compiled(code), names)
            if inspect.isawaitable(found):
                await found
    except Exception as error:
        return Answer(type(error).__name__, str(error), isinstance(error, PosthouseError), await _kept(orders))
    finally:
        await orders.aclose()
    return Answer("nothing", "", False, [])


def _compiled(code: str) -> CodeType:
    made: CodeType = compile(code, "<mistake>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return made


async def _kept(service: posthouse.Service) -> list[str]:
    """What of the mistake is in the store: facts, timers, and tables that are not ours."""
    host = app_of(service)
    try:
        if await host.store.pending_migrations():
            return []
    except PosthouseError:
        return []
    async with host.store.begin() as tx:
        tables = [str(name) for (name,) in await tx.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        theirs = [name for name in tables if not name.startswith(("posthouse_", "sqlite_"))]
    counts = await host.store.counts()
    return [
        *theirs,
        *(f"{count} of {topic}" for topic, count in counts.committed.items()),
        *["a timer"] * counts.timers,
    ]


def namespace() -> dict[str, Any]:
    """What a newcomer has imported and declared."""
    orders = posthouse.Service("orders")

    @orders.event("order.placed.v1", key="order_id")
    class OrderPlaced(posthouse.Payload):
        order_id: str
        total: float | None = None
        more: Any = None

    @orders.event("order.paid.v1", key="order_id")
    class OrderPaid(posthouse.Payload):
        order_id: str

    class Plain:
        """Declared by nobody."""

    posthouse.App(orders, store="sqlite://", broker="memory://")
    return {
        **{name: getattr(posthouse, name) for name in posthouse.__all__},
        "orders": orders, "OrderPlaced": OrderPlaced, "OrderPaid": OrderPaid, "Plain": Plain, "Chaos": Chaos,
        "Harness": testing.Harness, "timedelta": datetime.timedelta, "datetime": datetime.datetime, "UTC": datetime.UTC, "date": datetime.date, "math": math, "uuid": uuid,
        "Path": Path, "sqlite3": sqlite3, "dataclasses": dataclasses, "os": os, "posthouse": posthouse, "asyncio": asyncio,
        "AsgiCorrelation": AsgiCorrelation, "correlated": correlated, "configure": configure,
        "sse_endpoint": sse_endpoint, "saying": saying,
    }  # fmt: skip


@contextmanager
def _inside(folder: Path, environ: dict[str, str]) -> Iterator[None]:
    (folder / "shop.py").write_text(SHOP, encoding="utf-8")
    (folder / "broken.py").write_text("import orderz\n", encoding="utf-8")
    (folder / "empty.py").write_text("", encoding="utf-8")
    (folder / "plain.py").write_text(PLAIN, encoding="utf-8")
    here, before, path = Path.cwd(), dict(os.environ), list(sys.path)
    os.chdir(folder)
    os.environ.update(environ)
    try:
        yield
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(before)
        sys.path[:] = path


def _files(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if "__pycache__" not in str(file)}
