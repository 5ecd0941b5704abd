"""Handlers that take several events at once: runs of one key in their order, keys in fair turns, and what a failure costs."""

from __future__ import annotations

import pytest

from posthouse import Event, Payload, Policy, Service, Tx
from posthouse.app import app_of
from posthouse.testing import Harness

meters = Service("meters", namespace="grid")
books = Service("books", namespace="grid")
ledger = Service("ledger", namespace="grid")

lists: list[list[tuple[str, int]]] = []
broken: set[tuple[str, int]] = set()


@meters.event("meter.read.v1", key="meter")
class MeterRead(Payload):
    meter: str
    value: int


@ledger.event("entry.written.v1", key="meter")
class EntryWritten(Payload):
    meter: str
    value: int


@books.setup
async def book(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS reading (meter TEXT, value INTEGER)")


@ledger.setup
async def entries(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS entry (meter TEXT, value INTEGER)")


@books.on(MeterRead, policy=Policy(group_size=50))
async def note_all(events: list[Event[MeterRead]], tx: Tx) -> None:
    lists.append([(event.data.meter, event.data.value) for event in events])
    for event in events:
        await tx.execute("INSERT INTO reading VALUES (?, ?)", (event.data.meter, event.data.value))
        if (event.data.meter, event.data.value) in broken:
            raise RuntimeError("torn page")


@ledger.on(MeterRead, policy=Policy(grouped=True))
async def enter(event: Event[MeterRead], tx: Tx) -> EntryWritten:
    await tx.execute("INSERT INTO entry VALUES (?, ?)", (event.data.meter, event.data.value))
    return EntryWritten(meter=event.data.meter, value=event.data.value)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    lists.clear()
    broken.clear()


async def read(values: dict[str, int]) -> None:
    """So many readings of each meter, in one transaction."""
    async with meters.transaction("t1") as tx:
        for value in range(max(values.values())):
            for meter, count in values.items():
                if value < count:
                    tx.publish(MeterRead(meter=meter, value=value))


async def written(service: Service, table: str) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    async with app_of(service).store.begin() as tx:
        for meter, value in await tx.execute(f"SELECT meter, value FROM {table} ORDER BY rowid"):
            found.setdefault(str(meter), []).append(value)
    return found


async def test_a_list_holds_many_events_of_one_key_in_their_order() -> None:
    async with Harness(meters, books) as harness:
        await read({"m1": 120})
        await harness.settled()
        assert await written(books, "reading") == {"m1": list(range(120))}
    assert max(map(len, lists)) == 50


async def test_a_list_takes_every_key_once_before_it_takes_more_of_one() -> None:
    async with Harness(meters, books) as harness:
        await read({"m1": 60, "m2": 1, "m3": 1})
        await harness.settled()
    first = lists[0]
    assert [meter for meter, _ in first].count("m1") == 48
    assert first[-2:] == [("m2", 0), ("m3", 0)]


async def test_a_failure_in_a_run_holds_that_event_and_those_behind_it_and_nothing_else() -> None:
    broken.add(("m1", 2))
    async with Harness(meters, books) as harness:
        await read({"m1": 5, "m2": 5})
        await harness.settled()
        assert await written(books, "reading") == {"m1": [0, 1], "m2": [0, 1, 2, 3, 4]}
        held = await harness.held(books)
        assert [(event.entry.sequence, event.state, event.attempts) for event in held] == [
            (3, "retrying", 1),
            (4, "blocked", 0),
            (5, "blocked", 0),
        ]
        broken.clear()
        await harness.advance(3600)
        assert (await written(books, "reading"))["m1"] == [0, 1, 2, 3, 4]


async def test_what_a_group_says_goes_out_in_the_order_of_its_keys() -> None:
    async with Harness(meters, ledger) as harness:
        await read({"m1": 40, "m2": 40})
        await harness.settled()
        said: dict[str, list[int]] = {}
        for event in await harness.published(EntryWritten):
            said.setdefault(event.data.meter, []).append(event.data.value)
        assert said == await written(ledger, "entry") == {"m1": list(range(40)), "m2": list(range(40))}


async def test_a_second_delivery_of_a_run_changes_nothing() -> None:
    async with Harness(meters, books) as harness:
        await read({"m1": 30, "m2": 3})
        await harness.assert_replay_safe()
        assert await written(books, "reading") == {"m1": list(range(30)), "m2": [0, 1, 2]}
