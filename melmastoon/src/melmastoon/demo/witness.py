"""The witness: writes down, in the services' own transactions, what was said and what was applied.

It knows nothing of outboxes, inboxes or brokers. A row in `said` is written by the database itself (a trigger) with the row
that is to go out, and a row in `applied` by the handler's own transaction. Neither table has a key: whatever happens twice
stands there twice. So afterwards it can be told what was lost, applied twice or out of order, without asking the library."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, cast
from weakref import WeakSet

from melmastoon.tables import run
from posthouse import Event, Service, Tx
from posthouse.receiving import Handler

SAID_SQLITE = (
    """CREATE TABLE IF NOT EXISTS witness_said (
        line INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT, tenant TEXT, key TEXT, sequence INTEGER, event_id TEXT, body BLOB)""",
    """CREATE TRIGGER IF NOT EXISTS witness_says AFTER INSERT ON posthouse_outbox BEGIN
        INSERT INTO witness_said (topic, tenant, key, sequence, event_id, body)
        VALUES (new.topic, new.tenant, new.key, new.sequence, new.event_id, new.body);
    END""",
    """CREATE TABLE IF NOT EXISTS witness_applied (
        line INTEGER PRIMARY KEY AUTOINCREMENT, consumer TEXT, tenant TEXT, type TEXT, key TEXT, sequence INTEGER, event_id TEXT)""",
)

SAID_POSTGRES = (
    """CREATE TABLE IF NOT EXISTS witness_said (
        line BIGINT GENERATED ALWAYS AS IDENTITY, topic TEXT, tenant TEXT, key TEXT, sequence BIGINT, event_id TEXT, body BYTEA)""",
    """CREATE OR REPLACE FUNCTION witness_says() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.witness_said (topic, tenant, key, sequence, event_id, body)
        VALUES (new.topic, new.tenant, new.key, new.sequence, new.event_id, new.body);
        RETURN NULL;
    END $$""",
    """CREATE OR REPLACE TRIGGER witness_says AFTER INSERT ON posthouse.outbox
        FOR EACH ROW EXECUTE FUNCTION witness_says()""",
    """CREATE TABLE IF NOT EXISTS witness_applied (
        line BIGINT GENERATED ALWAYS AS IDENTITY, consumer TEXT, tenant TEXT, type TEXT, key TEXT, sequence BIGINT, event_id TEXT)""",
)

APPLIED = "INSERT INTO witness_applied (consumer, tenant, type, key, sequence, event_id) VALUES (?, ?, ?, ?, ?, ?)"

_watched_already: WeakSet[Service] = WeakSet()


def watch(service: Service) -> None:
    """Let the witness look over the shoulder of every handler of a service. Idempotent."""
    if service in _watched_already:
        return
    _watched_already.add(service)
    service.setup(_tables)
    for consumer, handlers in service.declared.consumers.items():
        service.declared.consumers[consumer] = {name: _watched(consumer, handler) for name, handler in handlers.items()}


async def _tables(tx: Tx) -> None:
    for statement in SAID_SQLITE if isinstance(tx.connection, sqlite3.Connection) else SAID_POSTGRES:
        await tx.execute(statement)


def _watched(consumer: str, handler: Handler) -> Handler:
    inner = cast("Callable[..., Awaitable[object]]", handler.function)
    takes_tx = handler.shape is not None
    if handler.threaded or handler.view is not None:
        raise TypeError(f"{handler.name} does not take a Tx: the witness cannot write in its transaction")

    async def function(given: Event[Any] | list[Event[Any]], tx: Tx, *answer: object) -> object:
        for event in given if isinstance(given, list) else (given,):
            key = (event.key, event.sequence, event.id)
            await run(tx, APPLIED, consumer, event.tenant, event.type, *key)
        return await (inner(given, tx, *answer) if takes_tx else inner(given))

    return dataclasses.replace(handler, function=function, shape=Tx)
