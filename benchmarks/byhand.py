"""The limit: the same statements on the same driver in plain loops. No retries, no leases, no validation."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from zlib import crc32

import msgspec
import uuid_utils

from benchmarks.shop import BUSINESS, CREATE, TENANT, OrderPlaced, placed
from posthouse.brokers.embedded import schema
from posthouse.local.sqlite import Synchronous, connect
from posthouse.store import shard_of
from posthouse.store.inbox import drawn_at
from posthouse.stores.sqlite import SqliteStore, append, database, inbox, outbox

TOPIC = "shop.orders.order"
GROUP = "billing"
SHARDS = 16
PARTITIONS = 8
HEADERS = '{"content-type":"application/cloudevents+json"}'
DIGEST = bytes(16)
BATCH = 200


class Envelope(msgspec.Struct):
    """What a careful producer would send, and no more than a consumer needs is read."""

    id: str
    time: str
    subject: str
    tenantid: str
    data: OrderPlaced
    correlationid: str = ""
    partitionkey: str = ""
    sequence: str | msgspec.UnsetType = msgspec.UNSET
    specversion: str = "1.0"
    source: str = "/shop/orders"
    type: str = "shop.orders.order.placed.v1"
    datacontenttype: str = "application/json"
    dataschema: str = "schemas://orders/order/placed/v1#sha256-" + "0" * 64
    producerservice: str = "orders"
    producerinstance: str = "by-hand"


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Envelope).decode

Frame = tuple[int, int, float, str, str, bytes, bytes]
"""A row of the log's READ: number, offset, stored at, id, key, headers, body."""


def opened(path: Path, synchronous: Synchronous = "FULL") -> sqlite3.Connection:
    """A connection as ours, with SQLite's own checkpoints."""
    connection = connect(path, synchronous=synchronous)
    connection.execute("PRAGMA wal_autocheckpoint=1000")
    return connection


async def made_store(path: Path) -> sqlite3.Connection:
    """A file with the store's tables and the business table."""
    store = SqliteStore(path)
    await store.upgrade()
    await store.aclose()
    connection = opened(path)
    connection.execute(CREATE)
    connection.execute(inbox.REGISTER, (GROUP, TOPIC, False))
    return connection


def made_log(path: Path) -> sqlite3.Connection:
    """A file with the log's tables and one topic."""
    connection = opened(path)
    connection.execute("BEGIN IMMEDIATE")
    schema.prepare(connection, path)
    connection.execute(schema.ADD_TOPIC, (TOPIC, PARTITIONS))
    connection.executemany(schema.ADD_HEAD, [(1, partition) for partition in range(PARTITIONS)])
    connection.execute("COMMIT")
    return connection


# The way out.


def publish(store: sqlite3.Connection, numbers: Sequence[int], *, at_once: int = 1) -> None:
    """A business row and a keyed event for each number, `at_once` in each transaction."""
    for first in range(0, len(numbers), at_once):
        store.execute("BEGIN IMMEDIATE")
        for number in numbers[first : first + at_once]:
            add_order(store, number)
        store.execute("COMMIT")


def add_order(store: sqlite3.Connection, number: int) -> None:
    """One business row and its event."""
    payload = placed(number)
    key = payload.order_id
    store.execute(BUSINESS, (key, payload.total_cents))
    [(sequence,)] = store.execute(append.NEXT_NUMBER, (TOPIC, TENANT, key)).fetchall()
    event_id, body = envelope(payload)
    row = (shard_of(TENANT, key, SHARDS), TOPIC, TENANT, key, sequence, event_id, HEADERS, body, time.time())
    store.execute(append.ADD, row)


def envelope(payload: OrderPlaced) -> tuple[str, bytes]:
    """An id and the bytes of one event."""
    event_id = str(uuid_utils.uuid7())
    event = Envelope(
        id=event_id,
        time=datetime.now(UTC).isoformat(),
        subject=payload.order_id,
        tenantid=TENANT,
        data=payload,
        correlationid=str(uuid_utils.uuid7()),
        partitionkey=f"{TENANT}:{payload.order_id}",
    )
    return event_id, encode(event)


def relay(store: sqlite3.Connection, log: sqlite3.Connection, *, batch: int = 500) -> None:
    """Every row of the outbox into the log; where it stands, nobody notes."""
    cursor, shards = 0, (1 << SHARDS) - 1
    numbers: Counter[int] = Counter()
    while rows := store.execute(outbox.SCAN, (cursor, 1 << 62, shards, batch)).fetchall():
        cursor = rows[-1][0]
        now = time.time()
        frames = []
        for _, _, tenant, key, _, _, event_id, headers, body, _ in rows:
            line = f"{tenant}:{key}"
            partition = crc32(line.encode()) % PARTITIONS
            numbers[partition] += 1
            frames.append((1, partition, numbers[partition], now, event_id, line, headers, body))
        log.execute("BEGIN IMMEDIATE")
        log.executemany(schema.ADD_FRAME, frames)
        log.execute("COMMIT")


# The way in.

Apply = Callable[[sqlite3.Connection, Sequence[bytes]], None]
ACK = "UPDATE cursors SET acked = ? WHERE grp = ? AND topic = ? AND partition = ?"
"""Nobody else is there, so no fence is needed."""


def consume(store: sqlite3.Connection, log: sqlite3.Connection, apply: Apply) -> None:
    """Every frame of the log, in batches; after each the cursor moves."""
    log.execute(schema.ADD_GROUP, (GROUP,))
    log.execute(schema.ADD_CURSORS, (GROUP, 1))
    for partition, last, bodies in batches(log):
        apply(store, bodies)
        log.execute("BEGIN IMMEDIATE")
        log.execute(ACK, (last, GROUP, 1, partition))
        log.execute("COMMIT")


def batches(log: sqlite3.Connection) -> Iterator[tuple[int, int, list[bytes]]]:
    """Partition by partition: its number, the last number read, the bodies."""
    for partition, stored in log.execute(schema.HEADS, (1,)).fetchall():
        for first in range(1, stored + 1, BATCH):
            last = min(first + BATCH - 1, stored)
            frames: list[Frame] = log.execute(schema.READ, (1, partition, first, last)).fetchall()
            yield partition, last, [frame[6] for frame in frames]


def apply_each(store: sqlite3.Connection, bodies: Sequence[bytes]) -> None:
    """One transaction for each event."""
    for body in bodies:
        store.execute("BEGIN IMMEDIATE")
        _apply_ordered(store, decode(body))
        _commit(store, 1)


def apply_grouped(store: sqlite3.Connection, bodies: Sequence[bytes]) -> None:
    """One transaction for a hundred, a statement for each."""
    for first in range(0, len(bodies), 100):
        store.execute("BEGIN IMMEDIATE")
        group = bodies[first : first + 100]
        for body in group:
            _apply_ordered(store, decode(body))
        _commit(store, len(group))


def apply_list(store: sqlite3.Connection, bodies: Sequence[bytes]) -> None:
    """One transaction for a hundred, with one bulk write of each kind."""
    for first in range(0, len(bodies), 100):
        events = [decode(body) for body in bodies[first : first + 100]]
        store.execute("BEGIN IMMEDIATE")
        claimed = store.executemany(inbox.CLAIM_ORDERED, map(_head, events)).rowcount
        _refuse_unless(claimed == len(events))
        store.executemany(BUSINESS, [(event.data.order_id, event.data.total_cents) for event in events])
        _commit(store, len(events))


def apply_unordered(store: sqlite3.Connection, bodies: Sequence[bytes]) -> None:
    """One transaction for each event, with an inbox row."""
    for body in bodies:
        event = decode(body)
        now = time.time()
        store.execute("BEGIN IMMEDIATE")
        row = (GROUP, event.tenantid, event.id, TOPIC, DIGEST, now, now, "applied")
        _refuse_unless(store.execute(inbox.CLAIM_UNORDERED, row).rowcount == 1)
        store.execute(BUSINESS, (event.data.order_id, event.data.total_cents))
        _commit(store, 1)


def _apply_ordered(store: sqlite3.Connection, event: Envelope) -> None:
    _refuse_unless(store.execute(inbox.CLAIM_ORDERED, _head(event)).rowcount == 1)
    store.execute(BUSINESS, (event.data.order_id, event.data.total_cents))


def _commit(store: sqlite3.Connection, applied: int) -> None:
    store.execute(database.COUNT, (GROUP, TOPIC, applied, 0))
    store.execute("COMMIT")


def _head(event: Envelope) -> tuple[object, ...]:
    return (
        GROUP,
        TOPIC,
        event.tenantid,
        event.subject,
        int(event.sequence or 0),
        1,
        event.id,
        DIGEST,
        drawn_at(event.id),
    )


def _refuse_unless(fine: bool) -> None:
    if not fine:
        raise RuntimeError("an event was not the next of its key: the log that is read was not made by this run")


APPLIERS: dict[str, Apply] = {
    "single": apply_each,
    "unordered": apply_unordered,
    "grouped": apply_grouped,
    "list": apply_list,
}


# From one commit to the end of the handler.


def chain(producer: sqlite3.Connection, log: sqlite3.Connection, consumer: sqlite3.Connection, number: int) -> float:
    """The seconds between the producer's commit and the handler's write, with nothing in between that could be left
    out: one durable insert into the log, one claim, one business row."""
    producer.execute("BEGIN IMMEDIATE")
    add_order(producer, number)
    producer.execute("COMMIT")
    committed = time.perf_counter()
    event_id, topic, tenant, key, sequence, body = producer.execute(NEWEST).fetchone()
    line = f"{tenant}:{key}"
    log.execute("BEGIN IMMEDIATE")
    log.execute(schema.ADD_FRAME, (1, 0, number, time.time(), event_id, line, HEADERS, body))
    log.execute("COMMIT")
    event = decode(log.execute(schema.READ, (1, 0, number, number)).fetchone()[6])
    consumer.execute("BEGIN IMMEDIATE")
    head = (GROUP, topic, tenant, key, sequence, 1, event_id, DIGEST, drawn_at(event_id))
    _refuse_unless(consumer.execute(inbox.CLAIM_ORDERED, head).rowcount == 1)
    consumer.execute(BUSINESS, (event.data.order_id, event.data.total_cents))
    handled = time.perf_counter()
    consumer.execute("COMMIT")
    return handled - committed


# The newest row of the outbox.
NEWEST = "SELECT event_id, topic, tenant, key, sequence, body FROM posthouse_outbox ORDER BY id DESC LIMIT 1"
