"""Shapes: what a handler may ask its transaction to be, and the libraries on which such a transaction is begun."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import asyncpg

from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.errors import comes_from
from posthouse.stores.postgres.shapes.threaded import Posts, Threaded
from posthouse.stores.postgres.shapes.transaction import Line, ShapedTransaction

Library = Literal["asyncpg", "psycopg", "django", "sqlalchemy"]

PLAIN = "sqlalchemy.orm.Session, sqlalchemy.Connection, psycopg.Connection, django.db.backends.base.base.BaseDatabaseWrapper"
ASYNC = "asyncpg.Connection, sqlalchemy.ext.asyncio.AsyncSession, sqlalchemy.ext.asyncio.AsyncConnection"


class Shapes:
    """Begins transactions in the shape that a handler asks for. Of each library that handlers use it keeps as many
    connections as it had transactions open at once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._posts: dict[Library, Posts] = {}
        self._engine: Any = None

    def begin(self, library: Library, tenant: str | None = None) -> ShapedTransaction:
        """A transaction on that library, other than asyncpg."""
        line = self._on_engine() if library == "sqlalchemy" else self._in_thread(library)
        return ShapedTransaction(self._database, line, tenant)

    async def close(self) -> None:
        """Close what is idle; what is in use closes with its transaction."""
        workers = [worker for posts in self._posts.values() for worker in posts.close()]
        self._posts.clear()
        for worker in workers:
            await asyncio.to_thread(worker.join, 1.0)
        if self._engine is not None:
            engine, self._engine = self._engine, None
            await engine.dispose()

    def _in_thread(self, library: Library) -> Line:
        return Threaded(self._posts_of(library), self._database.end_session)

    def _on_engine(self) -> Line:
        from posthouse.stores.postgres.shapes.sqlalchemy import SqlalchemyLine, engine_for

        if self._engine is None:
            self._engine = engine_for(self._database)
        return SqlalchemyLine(self._database, self._engine)

    def _posts_of(self, library: Library) -> Posts:
        if library not in self._posts:
            make: Any
            if library == "django":
                from posthouse.stores.postgres.shapes.django import DjangoLine as make
            else:
                from posthouse.stores.postgres.shapes.psycopg import PsycopgLine as make
            self._posts[library] = Posts(lambda: make(self._database))
        return self._posts[library]


def library_of(shape: type) -> Library | None:
    """The library on which a transaction of this shape is begun; None when no library has it."""
    if shape is not object and issubclass(asyncpg.Connection, shape):
        return "asyncpg"
    if comes_from(shape, "psycopg"):
        from psycopg import Connection

        return "psycopg" if issubclass(Connection, shape) else None
    if comes_from(shape, "django"):
        from django.db.backends.base.base import BaseDatabaseWrapper

        return "django" if issubclass(shape, BaseDatabaseWrapper) else None
    if comes_from(shape, "sqlalchemy"):
        return _of_sqlalchemy(shape)
    return None


def _of_sqlalchemy(shape: type) -> Library | None:
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session

    if issubclass(shape, Session) or shape is Connection:
        return "psycopg"
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    return "sqlalchemy" if issubclass(shape, AsyncSession) or shape is AsyncConnection else None


def refusal(shape: type, *, plain: bool) -> str | None:
    """Why a handler, a `plain` function or an asynchronous one, cannot have this shape; None when it can."""
    name = f"{shape.__module__}.{shape.__qualname__}"
    try:
        library = library_of(shape)
        if library in ("psycopg", "sqlalchemy") and comes_from(shape, "sqlalchemy") and plain:
            import psycopg  # noqa: F401  # SQLAlchemy on it
    except ImportError as error:
        return f"{name} needs {error.name}, which is not installed"
    possible = PLAIN if plain else ASYNC
    if library is None or (library in ("psycopg", "django")) != plain:
        kind = "a plain function" if plain else "an async function"
        return f"{kind} cannot have the transaction as {name}: possible are {possible}"
    return None
