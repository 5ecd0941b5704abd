"""Reading the books afterwards: the services' stores, as their owner could with any SQL client. No code of a service, and none
of the library, is in between."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import msgspec

with suppress(ImportError):  # where there is no PostgreSQL, nobody needs it
    import asyncpg

Row = tuple[Any, ...]

DEAD_LETTERS = ".dlq"
"""How the topics of events end that were set aside."""


class Reader(Protocol):
    """SQL on the store of one service. The statements are plain enough for every database."""

    def rows(self, service: str, sql: str) -> Sequence[Row]: ...

    def tables(self, name: str) -> str:
        """What a table of the library is called there."""
        ...


class Files:
    """Stores that are SQLite files in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def rows(self, service: str, sql: str) -> Sequence[Row]:
        with closing(sqlite3.connect(f"file:{self._folder / service}.db?mode=ro", uri=True)) as connection:
            return connection.execute(sql).fetchall()

    def tables(self, name: str) -> str:
        return f"posthouse_{name}"


class Databases:
    """Stores that are PostgreSQL databases; `{service}` in the URL stands for the name. Not for use on an event loop."""

    def __init__(self, url: str) -> None:
        self._url = url.partition("?")[0]

    def rows(self, service: str, sql: str) -> Sequence[Row]:
        return asyncio.run(self._fetched(self._url.format(service=service), sql))

    async def _fetched(self, url: str, sql: str) -> Sequence[Row]:
        connection = await asyncpg.connect(url)
        try:
            return [tuple(record) for record in await connection.fetch(sql)]
        finally:
            await connection.close()

    def tables(self, name: str) -> str:
        return f"posthouse.{name}"


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One row that went out, as the trigger saw it."""

    service: str
    line: int
    id: str
    type: str
    topic: str
    tenant: str
    key: str | None
    sequence: int | None
    at: datetime
    data: dict[str, Any]


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """One row that a handler's transaction left."""

    consumer: str
    line: int
    id: str
    key: str | None
    sequence: int | None
    tenant: str


class Books:
    """Everything that was said and applied."""

    def __init__(self, reader: Reader, services: Sequence[str]) -> None:
        self._reader = reader
        self.services = services

    def rows(self, service: str, sql: str) -> Sequence[Row]:
        return self._reader.rows(service, sql)

    def library(self, name: str) -> str:
        """What a table of the library is called here."""
        return self._reader.tables(name)

    @cached_property
    def facts(self) -> Sequence[Fact]:
        """All of them, those of one service in the order in which they were said."""
        return [fact for service in self.services for fact in self._said(service)]

    @cached_property
    def applied(self) -> Sequence[Applied]:
        """All of them, those of one service in the order in which they were applied."""
        return [row for service in self.services for row in self._applied(service)]

    def of(self, subject: str) -> Sequence[Fact]:
        """Facts of one subject, without namespace: `payment.intent.captured.v1`."""
        return self._by_type.get(f"melmastoon.{subject}", ())

    @cached_property
    def _by_type(self) -> Mapping[str, Sequence[Fact]]:
        found: dict[str, list[Fact]] = {}
        for fact in self.facts:
            found.setdefault(fact.type, []).append(fact)
        return found

    def _said(self, service: str) -> Iterator[Fact]:
        sql = "SELECT line, topic, tenant, key, sequence, event_id, body FROM witness_said ORDER BY line"
        for line, topic, tenant, key, sequence, event_id, body in self.rows(service, sql):
            if topic.endswith(DEAD_LETTERS):
                continue  # what somebody else said, or nobody
            envelope = json.loads(bytes(body))
            version = envelope["eventVersion"]
            yield Fact(
                service=service,
                line=line,
                id=event_id,
                type=f"{envelope['eventType']}.v{version}",
                topic=topic,
                tenant=tenant,
                key=key,
                sequence=sequence,
                at=datetime.fromisoformat(envelope["occurredAt"]),
                data=envelope["payload"],
            )

    def _applied(self, service: str) -> Iterator[Applied]:
        sql = "SELECT line, consumer, event_id, key, sequence, tenant FROM witness_applied ORDER BY line"
        for line, consumer, event_id, key, sequence, tenant in self.rows(service, sql):
            yield Applied(consumer=consumer, line=line, id=event_id, key=key, sequence=sequence, tenant=tenant)
