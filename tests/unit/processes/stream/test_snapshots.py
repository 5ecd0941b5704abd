"""Snapshots are a cache: what is loaded with them is what is loaded without."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from posthouse import App, Payload, Service, Tx
from posthouse.app import app_of
from posthouse.processes import Aggregate, Loaded
from posthouse.processes.stream.snapshots import Snapshots
from posthouse.store.streams import Snapshot, Stream
from tests.unit.processes.stream.folios import Billing, Charged, Folio, charging, opening

F1 = Stream("t1", "folio", "f1")


async def kept(service: Service, tx: Tx) -> Snapshot | None:
    return await app_of(service).store.streams.snapshot(tx.transaction, F1)


def _all_of(charges: list[Charged], folio: Folio) -> list[Charged]:
    return charges


async def test_a_thousand_events_load_alike_with_snapshots_without_and_after_all_were_deleted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}?synchronous=NORMAL"
    billing = Billing(store=url, snapshot_every=100)
    await billing.folios.execute("f1", opening, tenant="t1")
    for number in range(333):
        charges = [Charged("f1", number + i) for i in range(3)]
        await billing.folios.execute("f1", partial(_all_of, charges), tenant="t1")
    async with billing.service.transaction("t1") as tx:
        with_snapshots = await billing.folios.load(tx, "f1")
        snapshot = await kept(billing.service, tx)
    assert snapshot is not None
    assert 900 <= snapshot.version <= 1000
    assert await app_of(billing.service).store.streams.drop_snapshots("folio") == 1
    async with billing.service.transaction("t1") as tx:
        assert await kept(billing.service, tx) is None
        assert await billing.folios.load(tx, "f1") == with_snapshots
        await billing.folios.decide(tx, "f1", charging(1))
    await billing.service.aclose()
    without = Billing(store=url)
    async with without.service.transaction("t1") as tx:
        loaded = await without.folios.load(tx, "f1")
    await without.service.aclose()
    assert with_snapshots.version == 1000
    before = with_snapshots.state
    assert loaded == Loaded(Folio(before.guest, before.cents + 1, (*before.charges, 1), open=True), 1001)


async def test_a_snapshot_is_really_used() -> None:
    billing = Billing(snapshot_every=2)
    await billing.folios.execute("f1", lambda folio: [Charged("f1", 1)] * 2, tenant="t1")
    async with billing.service.transaction("t1") as tx:
        snapshot = await kept(billing.service, tx)
        assert snapshot is not None
        forged = msgspec.structs.replace(snapshot, version=2, state=snapshot.state.replace(b'"cents":2', b'"cents":9'))
        await tx.execute("UPDATE posthouse_snapshot SET state = ?", (forged.state,))
        assert (await billing.folios.load(tx, "f1")).state.cents == 9
    await billing.service.aclose()


@pytest.mark.parametrize("each", [1, 2, 3, 7])
async def test_one_is_taken_whenever_a_stream_passes_another_so_many_versions(each: int) -> None:
    billing = Billing(snapshot_every=3)
    taken = set()
    for start in range(0, 14, each):
        async with billing.service.transaction("t1") as tx:
            await billing.folios.append(tx, "f1", [Charged("f1", 1)] * each, expected=start)
            if (snapshot := await kept(billing.service, tx)) is not None:
                taken.add(snapshot.version)
                assert (await billing.folios.load(tx, "f1")).version == start + each
    passed = {start + each for start in range(0, 14, each) if (start + each) // 3 > start // 3}
    assert taken == passed
    await billing.service.aclose()


async def test_one_is_rolled_back_with_its_transaction() -> None:
    billing = Billing(snapshot_every=1)
    with contextlib.suppress(ZeroDivisionError):
        async with billing.service.transaction("t1") as tx:
            await billing.folios.decide(tx, "f1", opening)
            assert await kept(billing.service, tx) is not None
            raise ZeroDivisionError
    async with billing.service.transaction("t1") as tx:
        assert await kept(billing.service, tx) is None
    await billing.service.aclose()


# Whom it is good for.


class Plain(Payload):
    cents: int = 0


class Renamed(Payload):
    pence: int = 0


class Widened(Payload):
    cents: int = 0
    count: int = 0


def shape_of(state: type, revision: int = 1) -> str:
    taken = Snapshots("folio", state, 10, revision).taken(state(), 10)
    assert taken is not None
    return taken.shape


def test_a_state_with_other_fields_or_another_revision_does_not_trust_it() -> None:
    snapshots = Snapshots("folio", Plain, 10, 1)
    snapshot = snapshots.taken(Plain(5), 10)
    assert snapshot is not None
    assert snapshots.state(snapshot) == Plain(5)
    for other in (Snapshots("folio", Renamed, 10, 1), Snapshots("folio", Widened, 10, 1)):
        assert other.state(snapshot) is None
    assert Snapshots("folio", Plain, 10, 2).state(snapshot) is None
    assert Snapshots("folio", Plain, 99, 1).state(snapshot) == Plain(5)


class Line(Payload):
    cents: int = 0


class Bill(Payload):
    lines: tuple[Line, ...] = ()


class OtherLine(Payload):
    cents: str = ""


class OtherBill(Payload):
    lines: tuple[OtherLine, ...] = ()


def test_a_field_of_another_type_inside_another_class_makes_another_shape() -> None:
    assert shape_of(Bill) != shape_of(OtherBill)


def test_bytes_that_cannot_be_read_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    snapshots = Snapshots("folio", Plain, 10, 1)
    with caplog.at_level(logging.WARNING, "posthouse.streams"):
        assert snapshots.state(Snapshot(10, shape_of(Plain), b'{"cents": "many"}')) is None
    assert "folio: a snapshot is passed over" in caplog.text


def test_a_state_that_reads_back_otherwise_is_not_kept_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    @dataclasses.dataclass
    class Loose:
        things: Any = ()  # what a hasty author writes

    snapshots = Snapshots("folio", Loose, 10, 1)
    with caplog.at_level(logging.WARNING, "posthouse.streams"):
        assert snapshots.taken(Loose((1, 2)), 10) is None
        assert snapshots.taken(Loose({1, 2}), 20) is None
        assert snapshots.taken(Loose([1, 2]), 30) is not None
    assert [record.getMessage() for record in caplog.records] == [
        "folio: no snapshot is taken of its state: it reads back as another one: annotate its fields exactly, and let the "
        "class compare by value"
    ]


async def test_a_new_release_with_another_state_loads_from_the_events(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    old = Billing(store=url, snapshot_every=2)
    await old.folios.execute("f1", lambda folio: [Charged("f1", 5)] * 4, tenant="t1")
    await old.service.aclose()

    class Count(Payload):
        charges: int = 0

    service = Service("billing")
    App(service, store=url, broker="memory://")
    service.event("folio.charged.v1", key="folio_id")(Charged)
    counts: Aggregate[Count, Charged] = service.aggregate(
        "folio",
        initial=Count,
        evolve=lambda count, event: Count(count.charges + 1),
        events=(Charged,),
        snapshot_every=2,
    )
    async with service.transaction("t1") as tx:
        assert await counts.load(tx, "f1") == Loaded(Count(4), 4)
    await counts.execute("f1", lambda count: [Charged("f1", 5)] * 2, tenant="t1")
    async with service.transaction("t1") as tx:
        assert await counts.load(tx, "f1") == Loaded(Count(6), 6)
        snapshot = await kept(service, tx)
    assert snapshot is not None
    assert (snapshot.version, snapshot.shape) == (6, shape_of(Count))
    await service.aclose()
