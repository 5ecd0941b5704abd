"""Sagas that one release started and another one ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from posthouse import App, Event, Payload, Policy, Service, Settings
from posthouse.app import app_of
from posthouse.clock import ManualClock
from posthouse.errors import ContractError
from posthouse.processes import Saga, Turn, deadline, on, starts, step, undo
from posthouse.store import HeldFilter
from posthouse.store.sagas import SagaFilter, SagaRow
from posthouse.testing import rehost
from posthouse.watch.status import drained

OUTSIDE = Service("till")


@OUTSIDE.event("paid.v1", key="order_id")
class Paid(Payload):
    order_id: str


@OUTSIDE.event("lost.v1", key="order_id")
class Lost(Payload):
    order_id: str


class First(Saga):
    order_id: str

    @starts
    def begin(self, turn: Turn) -> None:
        turn.set(self.slow)

    @step(Paid)
    def paid(self, event: Event[Paid], turn: Turn) -> None: ...

    @on(Lost)
    def lost(self, event: Event[Lost], turn: Turn) -> None:
        turn.compensate("lost")

    @deadline(10.0)
    def slow(self, turn: Turn) -> None:
        turn.compensate("slow")


class Grown(First):
    """Gained fields, one nested, and an undo."""

    currency: str = "EUR"
    lines: list[tuple[str, int]] = msgspec.field(default_factory=list)

    @undo(First.begin)
    def back(self, turn: Turn) -> None:
        self.lines.append((self.currency, 1))


class Demanding(First):
    """Gained a field without a default: a mistake."""

    currency: str


class Renamed(Saga):
    """Lost a step and a deadline, by their names."""

    order_id: str

    @starts
    def start_now(self, turn: Turn) -> None: ...

    @on(Lost)
    def lost(self, event: Event[Lost], turn: Turn) -> None:
        turn.compensate("lost")


class Till:
    """Releases of one service, one after the other, on the same files, or the same database, and clock."""

    def __init__(self, folder: Path, store: str = "") -> None:
        self.clock = ManualClock()
        self._store, self._broker = (
            store or f"sqlite:///{folder}/store.db",
            f"embedded:///{folder}/log.db?single_host=true",
        )
        self._outside = Service("till")
        App(self._outside, store=f"sqlite:///{folder}/till.db", broker=self._broker, clock=self.clock)

    def release(self, cls: type[Saga]) -> Service:
        service = Service("shop")
        settings = Settings(saga_misfits="start")  # what becomes of those that a start would refuse
        App(service, store=self._store, broker=self._broker, clock=self.clock, settings=settings)
        service.saga("order", correlate="order_id", policy=Policy(max_attempts=1))(cls)
        return service

    async def say(self, payload: object) -> None:
        rehost(OUTSIDE, store=app_of(self._outside).store, broker=app_of(self._outside).broker, clock=self.clock)
        async with OUTSIDE.transaction("t1") as tx:
            tx.publish(payload)
        async with self._outside.running():
            await drained(self._outside)


@pytest.fixture
async def till(tmp_path: Path) -> AsyncIterator[Till]:
    yield Till(tmp_path)
    await OUTSIDE.aclose()


async def started(till: Till) -> None:
    service = till.release(First)
    async with service.running(), service.transaction("t1") as tx:
        await service.start_saga(tx, First(order_id="7"))


async def after(till: Till, cls: type[Saga], payload: object) -> tuple[SagaRow, list[str]]:
    """Let a release take an event; the row, and the errors of what it holds."""
    await till.say(payload)
    service = till.release(cls)
    async with service.running():
        await drained(service)
        (row,) = await app_of(service).store.sagas.find(SagaFilter())
        held = await app_of(service).store.held.find(HeldFilter())
    return row, [one.error for one in held]


async def test_a_state_that_gained_fields_is_read_with_their_defaults(till: Till) -> None:
    await started(till)
    row, held = await after(till, Grown, Lost(order_id="7"))
    assert (row.status, held) == ("compensated", [])
    assert row.state == b'{"order_id":"7","currency":"EUR","lines":[["EUR",1]]}'


async def test_a_state_that_cannot_be_read_is_held_with_a_word_on_it(till: Till) -> None:
    await started(till)
    row, held = await after(till, Demanding, Paid(order_id="7"))
    assert (row.status, row.turn) == ("running", 1)
    assert len(held) == 1
    assert "the stored state of order 7 does not fit Demanding any more" in held[0]


async def test_a_step_that_is_not_declared_any_more_is_never_passed_over_in_silence(till: Till) -> None:
    await started(till)
    row, held = await after(till, Renamed, Lost(order_id="7"))
    assert (row.status, row.steps, held) == ("compensation_failed", ("begin",), [])
    assert row.undoing is not None
    assert row.undoing.error == "the step 'begin' was done by another release: it is not declared any more"


async def test_a_deadline_that_is_not_declared_any_more_is_held_with_a_word_on_it(till: Till) -> None:
    await started(till)
    till.clock.advance(10.0)
    service = till.release(Renamed)
    async with service.running():
        await until_held(service)
        (held,) = await app_of(service).store.held.find(HeldFilter())
    assert "the deadline 'slow' was armed by another release" in held.error


async def until_held(service: Service) -> None:
    """The store's timers and the relay run by themselves: wait for what they lead to, in turns of the loop."""
    while not await app_of(service).store.held.find(HeldFilter()):
        await drained(service)


def test_unreadable_states_raise_a_contract_error(till: Till) -> None:
    of = till.release(First).declared.saga_types["order"]
    with pytest.raises(ContractError):
        of.decode(b"[]", "7")
