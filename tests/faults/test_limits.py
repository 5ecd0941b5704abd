"""Limits of an event are never wider than what every store can keep: compared with the columns, and tried with the longest."""

from __future__ import annotations

import random
import string
from collections.abc import AsyncIterator

import pytest

from posthouse.clock import SystemClock, new_id
from posthouse.errors import DecodeError, EventError, ValueRefused
from posthouse.events import CODECS, Actor, Event
from posthouse.events.limits import MAX_BYTES, MAX_LINEAGE, MAX_SEQUENCE
from posthouse.events.subject import MAX_LENGTH
from posthouse.receiving.fact import fact_of
from posthouse.receiving.fingerprint import LONGEST as LONGEST_FINGERPRINT
from posthouse.store import HeldEvent, InboxEntry, OutboxRow, Store, Timer
from posthouse.store.sagas import LONGEST_INDEXED, SagaRow
from posthouse.stores import open_store

INDEX_ROW = 2704
"""Bytes of the largest row that a B-tree of PostgreSQL takes; its header and the lengths of its columns are in them."""
NAMES = 256
"""Bytes of names that a developer gives: consumers, sagas, aggregates, projections, services and the roles of version usage."""
COLUMNS = {
    "tenant": MAX_BYTES["tenant"],
    "key": MAX_BYTES["key"],
    "stream": MAX_BYTES["key"],
    "event_id": MAX_LENGTH + 1 + MAX_BYTES["dualof"],
    "idempotency_key": MAX_BYTES["idempotency_key"] + 1 + MAX_LENGTH,
    "topic": MAX_LENGTH + len(".dlq"),
    "subject": MAX_LENGTH,
    "correlation": max(MAX_BYTES["correlation"], MAX_BYTES["id"]),
    "fingerprint": 4 * LONGEST_FINGERPRINT,
    **dict.fromkeys(
        (
            "consumer",
            "aggregate",
            "projection",
            "party",
            "role",
            "saga",
            "state",
            "status",
            "owner",
            "parent_saga",
            "field",
            "service",
            "kind",
            "name",
        ),
        NAMES,
    ),
    "value": 4 * LONGEST_INDEXED,
    "job": 36,
    "replay": 36 + 1 + MAX_LENGTH,
}
"""How long a text in a column can be. An id is also remembered with `#` and a digest, or as a fact: that is the longest.
Of an indexed field 255 characters are kept, or a digest. What begins no story has its id as its correlation."""
OTHERS = {("tally", "topic"): max(COLUMNS["topic"], COLUMNS["fingerprint"])}
"""Columns in which there is something else than their name says."""
GIVEN = {
    ("migration", "name"),
    ("timer", "name"),
    ("schedule", "name"),
    ("saga", "id"),
    ("saga", "parent_id"),
    ("member", "owner"),
    ("shard", "owner"),
    ("worker", "id"),
    ("action", "id"),
    ("job", "id"),
    ("replay_grant", "id"),
    ("archive_plan", "id"),
}
"""Named by the code that runs in the user's own transaction, which hears of it at once; and ids of our own."""

INDEXES = """
SELECT t.relname, i.relname, array_agg(a.attname ORDER BY k.place), array_agg(format_type(a.atttypid, NULL) ORDER BY k.place)
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
    JOIN pg_namespace n ON n.oid = t.relnamespace AND n.nspname = 'posthouse'
    JOIN LATERAL unnest(x.indkey) WITH ORDINALITY AS k (number, place) ON true
    JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.number
GROUP BY 1, 2
"""
INTEGERS = """
SELECT table_name, column_name, data_type FROM information_schema.columns
WHERE table_schema = 'posthouse' AND column_name IN ('sequence', 'lineage')
"""


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else "sqlite://"
    store = open_store(url, clock=SystemClock())
    await store.upgrade()
    yield store
    await store.aclose()


def longest(size: int, seed: str = "") -> str:
    """Random, so that nothing can press it together."""
    return "".join(random.Random(f"{size}{seed}").choices(string.ascii_letters + string.digits, k=size))


async def test_no_limit_is_wider_than_any_index_or_column_of_postgresql(postgres_url: str) -> None:
    store = open_store(postgres_url, clock=SystemClock())
    await store.upgrade()
    async with store.begin() as tx:
        indexes, integers = await tx.execute(INDEXES), await tx.execute(INTEGERS)
    await store.aclose()
    looked_at = 0
    for table, index, columns, types in indexes:
        assert isinstance(columns, list)
        assert isinstance(types, list)
        if any((table, column) in GIVEN for column in columns):
            continue
        size = 16 + sum(
            OTHERS.get((str(table), column), COLUMNS[column]) + 4 if type == "text" else 8
            for column, type in zip(columns, types, strict=True)
        )
        assert size <= INDEX_ROW, f"{index} of {table} may have to hold {size} bytes"
        looked_at += 1
    assert looked_at >= 20
    widest = {"bigint": 2**63 - 1, "integer": 2**31 - 1}
    limits = {"sequence": MAX_SEQUENCE + 1, "lineage": MAX_LINEAGE}
    found = [(name, widest[str(kind)]) for _, name, kind in integers]
    assert len(found) >= 6
    assert all(limits[str(name)] <= most for name, most in found)


async def test_the_longest_of_everything_is_kept_by_every_store(store: Store) -> None:
    consumer, topic = longest(NAMES, "consumer"), longest(MAX_LENGTH, "topic")
    ordered = InboxEntry(
        topic=topic, tenant=longest(MAX_BYTES["tenant"], "t"), event_id=longest(MAX_BYTES["id"], "i"), digest=b"d" * 16,
        time=-6e10, key=longest(MAX_BYTES["key"], "k"), sequence=MAX_SEQUENCE, lineage=MAX_LINEAGE,
    )  # fmt: skip
    alone = InboxEntry(
        topic=topic, tenant=ordered.tenant, event_id=f"{ordered.event_id}#{'0' * 32}", digest=b"d", time=3e11
    )
    await store.inbox.register(consumer, topic, True)
    async with store.begin() as tx:
        assert list(await store.inbox.claim(tx, consumer, [ordered, alone])) == [True, True]
    async with store.begin() as tx:
        assert await store.inbox.position_of(tx, consumer, ordered) is not None
        assert not await store.held.promote(tx, consumer, ordered)
        for entry in (ordered, alone):
            held = HeldEvent(
                consumer=f"{consumer[1:]}h", entry=entry, state="retrying", body=b"", after=0.0,
                fingerprint="".join(chr(0x10000 + ord(letter)) for letter in longest(LONGEST_FINGERPRINT, "f")),
                correlation=longest(COLUMNS["correlation"], "c"),
            )  # fmt: skip
            assert await store.held.hold(tx, held)
        saga = SagaRow(
            saga=longest(NAMES, "saga"), tenant=ordered.tenant, id=longest(MAX_BYTES["id"], "saga"),
            state=b"{}", correlation=longest(COLUMNS["correlation"], "c"),
        )  # fmt: skip
        assert await store.sagas.add(tx, saga)
        row = OutboxRow(
            topic=topic, tenant=ordered.tenant, event_id=ordered.event_id, body=b"{}", key=ordered.key,
            idempotency_key=f"{longest(MAX_BYTES['idempotency_key'])} {longest(MAX_LENGTH)}",
        )  # fmt: skip
        await store.outbox.append(tx, [row])
        await store.timers.set(tx, Timer(name=ordered.event_id, due_at=1.0, after=0.0, row=row))
    assert await store.timers.fire(10) == 1


def said(**more: object) -> Event[bytes]:
    return Event(**{"id": "1", "type": "shop.order.placed.v1", "source": "/shop", "data": b"{}", "time": "", **more})  # type: ignore[arg-type]


FIELDS = [field for field in MAX_BYTES if field not in ("actor", "dualof", "timer", "region", "person")]


@pytest.mark.parametrize("wire", CODECS)
@pytest.mark.parametrize("field", FIELDS)
def test_a_text_is_as_long_as_its_limit_and_no_longer_in_every_format(wire: str, field: str) -> None:
    codec, limit = CODECS[wire], MAX_BYTES[field]
    fits = said(**{field: "x" * (limit - 20) + "é" * 10})
    encoded = codec.encode(fits)
    assert codec.decode(*encoded) == fits
    with pytest.raises(EventError, match=field):
        codec.encode(said(**{field: "x" * (limit - 19) + "é" * 10}))


@pytest.mark.parametrize("wire", CODECS)
def test_what_is_longer_than_it_may_be_cannot_be_read_in_any_format(wire: str) -> None:
    codec = CODECS[wire]
    marker = "a" * 250
    headers, body = codec.encode(said(id=marker, tenant="t"))
    longer = {name: value.replace(marker, marker + "a" * 7) for name, value in headers.items()}
    with pytest.raises(DecodeError, match="too_long"):
        codec.decode(longer, body.replace(marker.encode(), marker.encode() + b"a" * 7))


@pytest.mark.parametrize("wire", CODECS)
@pytest.mark.parametrize("event", [
    said(actor=Actor(kind="user", id="x" * 257)), said(extensions={"dualof": "x" * 257}), said(lineage=2**31),
    said(key="k", sequence=2**63 - 1),
])  # fmt: skip
def test_what_no_store_keeps_cannot_be_said_in_any_format(wire: str, event: Event[bytes]) -> None:
    with pytest.raises(EventError):
        CODECS[wire].encode(event)


def test_the_longest_fact_is_remembered_in_less_than_an_index_takes() -> None:
    event = said(type=f"{longest(MAX_LENGTH - 3)}.v1", extensions={"dualof": longest(MAX_BYTES["dualof"])})
    fact = fact_of(event, InboxEntry(topic="t", tenant="t", event_id="1", digest=b"", time=0.0))
    assert fact is not None
    assert len(fact.entry.event_id) <= COLUMNS["event_id"]


@pytest.mark.parametrize("wrong", ["a\0b", "half \ud800", longest(60_000)])
async def test_a_value_that_a_store_cannot_keep_is_refused_as_such(store: Store, wrong: str) -> None:
    entry = InboxEntry(topic="t", tenant="t1", event_id=wrong, digest=b"", time=SystemClock().now())
    held = HeldEvent(consumer="c", entry=entry, state="quarantined", body=b"", after=0.0)
    if store.embedded and "\ud800" not in wrong:
        return  # SQLite keeps any text that is one, of any length
    with pytest.raises(ValueRefused):
        async with store.begin() as tx:
            await store.held.hold(tx, held)


async def test_a_number_that_a_store_cannot_keep_is_refused_as_such(store: Store) -> None:
    entry = InboxEntry(topic="t", tenant="t1", event_id=new_id(), digest=b"", time=1.0, key="k", sequence=2**63)
    held = HeldEvent(consumer="c", entry=entry, state="retrying", body=b"", after=0.0)
    with pytest.raises(ValueRefused):
        async with store.begin() as tx:
            await store.held.hold(tx, held)
