"""The steps of a fact that wait for the flush: the places of a quota, an encryption, a claim check and a signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from posthouse import App, Payload, Service
from posthouse.clock import ManualClock
from posthouse.errors import EventTooLarge
from posthouse.events import STRUCTURED, Codec, Encoded, Event, Producer, decode_any
from posthouse.seam import EnvelopeBuilder, EventContext, OutwardStep, Seam
from posthouse.seam.outward import FLUSH
from posthouse.store import Transaction
from posthouse.stores.sqlite import SqliteStore

plant = Service("plant")
T1 = EventContext(tenant="t1")


@plant.event("thing.made.v1", key="key")
class ThingMade(Payload):
    key: str
    text: str = ""


accounts = Service("accounts")


@accounts.event("account.paid.v1", key="key")
class Paid(Payload):
    key: str
    amount: int


def added(total: int, paid: Paid) -> int:
    return total + paid.amount


account = accounts.aggregate("account", initial=int, evolve=added, events=(Paid,))


def builder(seam: Seam, limit: int = 100_000) -> EnvelopeBuilder:
    return EnvelopeBuilder(Producer(service="plant"), "/plant", STRUCTURED, ManualClock(), limit, seam=seam)


def marking(mark: str) -> OutwardStep:
    """A step that writes its mark behind those of the steps before it."""

    async def step(transaction: Transaction, events: Sequence[Event[bytes]]) -> Sequence[Event[bytes]]:
        return [
            msgspec.structs.replace(event, extensions={"marks": f"{event.extensions.get('marks', '')}{mark}"})
            for event in events
        ]

    return step


async def without_text(transaction: Transaction, events: Sequence[Event[bytes]]) -> Sequence[Event[bytes]]:
    """A claim check in short: large data stays behind."""
    return [msgspec.structs.replace(event, data=b'{"key":"k"}') for event in events]


def in_sqlite() -> SqliteStore:
    return SqliteStore(":memory:", clock=ManualClock())


async def test_steps_are_taken_in_their_order_and_the_row_has_what_the_last_one_made() -> None:
    seam = Seam(sign=marking("s"), encrypt=marking("e"), quota=marking("q"), claim_check=marking("c"))
    made = builder(seam)
    rows = [*made.build(ThingMade(key="a"), T1), *made.build(ThingMade(key="b"), T1, idempotency_key="i")]
    assert [row.body for row in rows] == [b"", b""], "it has no bytes before its last step"
    store = in_sqlite()
    await store.upgrade()
    async with store.begin() as transaction:
        done = await made.finish(transaction, rows)
    events = [decode_any(row.headers, row.body) for row in done]
    assert [event.extensions for event in events] == [{"marks": "qecs"}] * 2
    assert [(row.key, row.event_id, row.idempotency_key, row.numbered) for row in done] == [
        (row.key, row.event_id, row.idempotency_key, True) for row in rows
    ]
    assert [(figure.name, figure.count) for figure in seam.timing.figures()] == [(FLUSH, 1), ("plant.thing.made.v1", 2)]
    await store.aclose()


async def test_what_is_finished_already_is_left_alone() -> None:
    store = in_sqlite()
    await store.upgrade()
    plain, marked = builder(Seam()), builder(Seam(sign=marking("s")))
    rows = [*plain.build(ThingMade(key="a"), T1), *marked.build(ThingMade(key="b"), T1)]
    async with store.begin() as transaction:
        done = await marked.finish(transaction, rows)
        assert done[0] is rows[0]
        assert decode_any(done[1].headers, done[1].body).extensions == {"marks": "s"}
        assert await marked.finish(transaction, done) == done
        assert await plain.finish(transaction, rows) is rows, "without such steps nothing is looked at"
    await store.aclose()


async def test_a_step_is_not_asked_about_nothing() -> None:
    asked: list[int] = []

    async def quota(transaction: Transaction, events: Sequence[Event[bytes]]) -> Sequence[Event[bytes]]:
        asked.append(len(events))
        return events

    app = App(accounts, store="sqlite://", broker="memory://", seam=Seam(quota=quota))
    await account.execute("a1", lambda total: [Paid(key="a1", amount=1), Paid(key="a1", amount=2)])
    assert asked == [1, 1]
    await app.aclose()


class Headlong(Codec):
    """A codec of others, which writes headers without a bound."""

    name = "headlong"
    content_type = ""

    def encode(self, event: Event[bytes]) -> Encoded:
        return Encoded({**STRUCTURED.encode(event).headers, "x": "x" * 20_000}, b"{}")

    def decode(self, headers: Mapping[str, str], body: bytes) -> Event[bytes]:
        raise NotImplementedError

    def stamp(
        self,
        headers: Mapping[str, str],
        body: bytes,
        sequence: int | None,
        lineage: int = 1,
        outbox_id: str | None = None,
    ) -> Encoded:
        raise NotImplementedError


def test_what_a_codec_of_others_writes_is_always_measured() -> None:
    made = EnvelopeBuilder(Producer(service="plant"), "/plant", Headlong(), ManualClock(), 15_000)
    with pytest.raises(EventTooLarge):
        made.build(ThingMade(key="a"), T1)


async def test_a_claim_check_lets_pass_what_would_be_too_large_and_the_row_is_measured_after_it() -> None:
    store = in_sqlite()
    await store.upgrade()
    large = ThingMade(key="k", text="x" * 5000)
    with pytest.raises(EventTooLarge):
        builder(Seam(), limit=2000).build(large, T1)
    checked = builder(Seam(claim_check=without_text), limit=2000)
    signed = builder(Seam(claim_check=without_text, sign=marking("s" * 3000)), limit=2000)
    async with store.begin() as transaction:
        (row,) = await checked.finish(transaction, checked.build(large, T1))
        assert decode_any(row.headers, row.body).data == b'{"key":"k"}'
        with pytest.raises(EventTooLarge, match=r"plant\.thing\.made\.v1"):
            await signed.finish(transaction, signed.build(large, T1))
    await store.aclose()
