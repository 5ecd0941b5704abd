"""The libraries that users have: each is a module and a line, and a new one needs no more."""

from __future__ import annotations

import importlib
import sqlite3
import sys
import types
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError
from posthouse.store import OutboxRow, Parameters, Rows
from posthouse.store.savepoints import Detach, Savepoints
from posthouse.stores import sessions
from posthouse.stores.sessions import LIBRARIES, Kind, Library, Session, module_of, session_of, shape_of
from posthouse.stores.sessions.sqlite3 import Sqlite3Session
from posthouse.stores.sqlite import SqliteStore
from posthouse.testing.store_contract.steps import append_now, drain

OF_THE_STORE = ("asyncpg", "sqlite3")
"""Drivers that a store itself uses: a handler gets the connection of the store's own transaction."""

SHAPES = [(shape.kind, shape.name, shape.on) for library in LIBRARIES for shape in library.shapes]


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.package)
def test_a_library_of_the_table_has_a_module_that_joins(library: Library) -> None:
    assert module_of(library.package).join(object()) is None
    assert library.kinds


@pytest.mark.parametrize(("kind", "name", "on"), SHAPES, ids=[f"{name} on {kind}" for kind, name, _ in SHAPES])
def test_a_shape_of_the_table_is_had_by_its_name(kind: Kind, name: str, on: str) -> None:
    module, _, cls = name.rpartition(".")
    found = shape_of(getattr(importlib.import_module(module), cls), kind)
    assert found is not None
    assert (found.name, found.on) == (name, on)
    assert on in OF_THE_STORE or hasattr(module_of(on), "handlers")


def test_what_is_of_no_library_is_refused_with_all_that_is() -> None:
    with pytest.raises(ConfigurationError, match=r"builtins\.dict: supported on SQLite are sqlite3\.Connection, aio"):
        session_of({}, "SQLite")
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(ConfigurationError, match="PostgreSQL are"):
        session_of(connection, "PostgreSQL")


class ToySession(Session):
    """A library that is a thin layer around sqlite3."""

    async def attend(self, savepoints: Savepoints) -> Detach:
        return await Sqlite3Session(self.theirs.inner).attend(savepoints)

    async def refuse_autocommit(self, kind: Kind) -> None:
        await Sqlite3Session(self.theirs.inner).refuse_autocommit(kind)

    async def run(self, sql: str, parameters: Parameters) -> Rows:
        return await Sqlite3Session(self.theirs.inner).run(sql, parameters)


class ToyConnection:
    def __init__(self, path: Path) -> None:
        self.inner = sqlite3.connect(path)


async def test_another_library_is_one_module_and_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("posthouse.stores.sessions.toydb")
    module.join = lambda theirs: ToySession(theirs) if isinstance(theirs, ToyConnection) else None
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(ToyConnection, "__module__", "toydb.connections")
    line = Library("toydb", "toydb's Connection", ("SQLite",))
    monkeypatch.setattr(sessions, "LIBRARIES", (*LIBRARIES, line))

    store = SqliteStore(tmp_path / "shop.db", clock=SystemClock())
    await store.upgrade()
    theirs = ToyConnection(tmp_path / "shop.db")
    append_now(store, theirs, [OutboxRow(topic="orders", tenant="t1", event_id="e1", body=b"{}")])
    theirs.inner.rollback()
    append_now(store, theirs, [OutboxRow(topic="orders", tenant="t1", event_id="e2", body=b"{}")])
    theirs.inner.commit()
    theirs.inner.close()
    assert [row.event_id for row in await drain(store)] == ["e2"]
    await store.aclose()
