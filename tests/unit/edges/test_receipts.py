"""Receipts: a page learns whether a read model has what its write said."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posthouse import App, Event, Model, Payload, Policy, Service
from posthouse.edges.receipts import Receipt, Written, progress, saying
from posthouse.errors import ConfigurationError, TransactionClosed
from posthouse.processes.projection import Projection
from tests.kit.waiting import eventually


class Rooms:
    """A service with a read model that cannot take one room."""

    def __init__(self, folder: Path) -> None:
        self.service = rooms = Service("rooms", namespace="hotel")
        self.app = App(rooms, store=f"sqlite:///{folder}/rooms.db", broker=f"memory://{folder.name}")

        @rooms.event("room.marked.v1", key="room")
        class Marked(Payload):
            room: str

        @rooms.event("bell.rung.v1")
        class Rung(Payload):
            loud: bool = True

        @rooms.event("door.opened.v1", key="door")
        class Opened(Payload):
            door: str

        self.marked, self.rung, self.opened = Marked, Rung, Opened
        self.board: Projection = rooms.projection("board")

        @self.board.setup
        async def tables(model: Model) -> None:
            await model.execute(f"CREATE TABLE {model.table('room')} (room TEXT)")

        @self.board.on(Marked, policy=Policy(max_attempts=1))
        async def mark(event: Event[Marked], model: Model) -> None:
            if event.data.room == "bad":
                raise ValueError("there is no such room")

        @self.board.on(Rung)
        async def ring(event: Event[Rung], model: Model) -> None: ...

    async def receipt(self, *facts: object) -> Receipt:
        async with self.service.transaction("t1") as tx:
            for fact in facts:
                tx.publish(fact)
            said = saying(tx)
        found = Receipt.of(await said.receipt())
        assert found is not None
        return found

    async def progress(self, receipt: Receipt, tenant: str = "t1") -> str:
        return await progress(self.app, [self.board], tenant, receipt)


@pytest.fixture
async def rooms(tmp_path: Path) -> AsyncIterator[Rooms]:
    rooms = Rooms(tmp_path)
    yield rooms
    await rooms.app.aclose()


async def test_a_write_is_processing_then_applied(rooms: Rooms) -> None:
    receipt = await rooms.receipt(rooms.marked(room="12"), rooms.marked(room="13"), rooms.rung())
    assert await rooms.progress(receipt) == "processing"
    async with rooms.app.running():
        await eventually(lambda: rooms.progress(receipt), right=lambda state: state == "applied")
    assert await rooms.progress(receipt, "t2") == "processing", "another tenant has no such write"


async def test_the_receipt_of_the_first_write_says_nothing_of_the_second(rooms: Rooms) -> None:
    first = await rooms.receipt(rooms.marked(room="12"))
    async with rooms.app.running():
        await eventually(lambda: rooms.progress(first), right=lambda state: state == "applied")
    second = await rooms.receipt(rooms.marked(room="12"))
    assert (await rooms.progress(first), await rooms.progress(second)) == ("applied", "processing")


async def test_what_cannot_be_applied_is_held(rooms: Rooms) -> None:
    receipt = await rooms.receipt(rooms.marked(room="bad"))
    behind = await rooms.receipt(rooms.marked(room="bad"))
    async with rooms.app.running():
        for one in (receipt, behind):
            await eventually(lambda: rooms.progress(one), right=lambda state: state == "held")  # noqa: B023  # awaited here


async def test_what_no_read_model_reads_is_refused(rooms: Rooms) -> None:
    receipt = await rooms.receipt(rooms.opened(door="d1"))
    with pytest.raises(ConfigurationError, match="no read model"):
        await rooms.progress(receipt)


async def test_a_receipt_is_had_behind_the_block_alone(rooms: Rooms) -> None:
    async with rooms.service.transaction("t1") as tx:
        with pytest.raises(ConfigurationError, match="behind the last publish"):
            saying(tx)
        tx.publish(rooms.marked(room="12"))
        said = saying(tx)
        with pytest.raises(TransactionClosed, match="still open"):
            await said.receipt()
        tx.publish(rooms.rung(), idempotency_key="once")
        with pytest.raises(ConfigurationError, match="idempotency key"):
            saying(tx)


def test_a_receipt_is_text_and_other_texts_are_none() -> None:
    receipt = Receipt((Written("hotel.rooms.room", "e1", "12", 2**60, 3),))
    assert Receipt.of(str(receipt)) == receipt
    for odd in ("", "x", "é", "W10", "W1tdXQ", "e30", str(receipt)[:-4], str(Receipt((receipt.facts[0],) * 101))):
        assert Receipt.of(odd) is None
