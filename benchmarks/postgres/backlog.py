"""A backlog in the outbox, and how our relay drains it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from benchmarks.byhand import TOPIC, envelope
from benchmarks.postgres.server import run
from benchmarks.postgres.shop import orders_on
from benchmarks.postgres.sink import NowhereBroker
from benchmarks.shop import TENANT, OrderPlaced
from posthouse.app import app_of
from posthouse.store import OutboxRow
from posthouse.stores.postgres import PostgresStore

HEADERS = {"content-type": "application/cloudevents+json"}
AT_ONCE = 1_000
FROM_THE_BEGINNING = """
DELETE FROM posthouse.member;
UPDATE posthouse.shard SET s1 = '1:1:', backlog = NULL, floor = 0, owner = NULL, until = 0, epoch = epoch + 1;
DELETE FROM posthouse.backlog;
"""
PATIENCE = 300.0
"""Seconds after which a drain that has not come to its end is given up."""


async def fill(url: str, count: int, *, keys: int) -> None:
    """So many events of about 1 KiB in the outbox, a thousand in each transaction."""
    store = PostgresStore(url, writers=2)

    async def share(first: int) -> None:
        for begin in range(first, count, 2 * AT_ONCE):
            async with store.begin() as tx:
                await store.outbox.append(tx, rows(begin, min(count, begin + AT_ONCE), keys))

    await asyncio.gather(share(0), share(AT_ONCE))
    await store.aclose()


def rows(first: int, after: int, keys: int) -> Sequence[OutboxRow]:
    """Rows for events of `keys` keys in turn."""
    return [_row(number, f"o{number % keys}") for number in range(first, after)]


def _row(number: int, key: str) -> OutboxRow:
    event_id, body = envelope(OrderPlaced(order_id=key, total_cents=number))
    return OutboxRow(topic=TOPIC, tenant=TENANT, event_id=event_id, body=body, headers=HEADERS, key=key)


async def drained(url: str, count: int) -> float:
    """The seconds that our relay takes to send everything nowhere, from a first lease to the last settle."""
    sink = NowhereBroker(count)
    orders = orders_on(url, sink)
    relay = (await app_of(orders).opened.prepare()).relay
    began = time.perf_counter()
    async with asyncio.timeout(PATIENCE):
        await relay.run(sink.done)
    took = time.perf_counter() - began
    await orders.aclose()
    if sink.left:
        raise RuntimeError(f"the relay sent {count - sink.left:,} of {count:,} events")
    return took


async def rewind(url: str) -> None:
    """As if nothing had been sent: the cursors stand where they stood at first."""
    await run(url, FROM_THE_BEGINNING)
