"""Settle: what becomes of an event whose handler failed."""

from __future__ import annotations

import pytest

from posthouse import Event, Policy
from posthouse.errors import DecodeError, StoreError, TransactionClosed
from posthouse.receiving import Executor
from posthouse.receiving.inbound import InboundEvent
from posthouse.receiving.policy import Again, Dead, Quarantine
from posthouse.receiving.settle import ENDED
from posthouse.store import HeldEvent
from tests.unit.receiving.conftest import Bench, handled_by

ERROR = ValueError("torn page")


async def ignore(event: Event[object]) -> None:
    """Handles anything."""


@pytest.fixture
def executor(bench: Bench) -> Executor:
    return bench.executor(handled_by(ignore))


async def held_again(bench: Bench, executor: Executor, inbound: InboundEvent) -> InboundEvent:
    """An event that failed, and whose time has come."""
    await executor.settler.settle(inbound, ERROR, Again(0.0), 1)
    [due] = await bench.store.held.claim_due("books", 10, 60.0)
    return executor.decoder.from_held(due)


async def test_an_event_that_is_tried_again_is_held_until_then_with_its_error(bench: Bench, executor: Executor) -> None:
    [one] = bench.readings(executor, [1])
    await executor.settler.settle(one, ERROR, Again(30.0), 2)
    [held] = await bench.held()
    assert (held.state, held.attempts, held.reason, held.error) == (
        "retrying",
        2,
        "torn page",
        "ValueError: torn page",
    )
    assert held.next_at == pytest.approx(bench.clock.now() + 30.0)
    assert held.fingerprint == "ValueError"
    assert one.event is not None
    assert held.correlation == (one.event.correlation or one.event.id)
    assert await bench.outbox() == []


async def test_an_event_that_fails_in_another_way_has_another_fingerprint(bench: Bench, executor: Executor) -> None:
    again = await held_again(bench, executor, bench.readings(executor, [1])[0])
    await executor.settler.settle(again, KeyError("meter"), Dead("attempts spent"), 2)
    [held] = await bench.held()
    assert (held.state, held.fingerprint) == ("dead", "KeyError")


async def test_a_dead_event_keeps_its_key_waiting_and_leaves_a_dead_letter(bench: Bench, executor: Executor) -> None:
    [one] = bench.readings(executor, [1])
    await executor.settler.settle(one, ERROR, Dead("rejected"), 1)
    assert await bench.states() == [(1, "dead", 1)]
    [letter] = await bench.outbox()
    assert letter.headers["ph-reason"] == "rejected"
    async with bench.store.begin() as tx:
        assert not await executor.claimer.is_next(tx, bench.readings(executor, [2])[0])


async def test_a_policy_may_skip_dead_events(bench: Bench) -> None:
    executor = bench.executor(handled_by(ignore, Policy(on_dead="skip")))
    one, two = bench.readings(executor, [1, 2])
    await executor.settler.settle(one, ERROR, Dead("rejected"), 1)
    assert await bench.states() == [(1, "skipped", 1)]
    async with bench.store.begin() as tx:
        assert await executor.claimer.is_next(tx, two)


async def test_a_quarantined_event_lets_its_key_go_on_without_it(bench: Bench, executor: Executor) -> None:
    one, two = bench.readings(executor, [1, 2])
    await executor.settler.settle(one, ERROR, Quarantine("its key is gone"), 1)
    [held] = await bench.held()
    assert (held.state, held.reason, held.fingerprint) == ("quarantined", "its key is gone", "ValueError")
    async with bench.store.begin() as tx:
        assert await executor.claimer.is_next(tx, two)


async def test_an_event_that_somebody_dealt_with_meanwhile_is_not_held(bench: Bench, executor: Executor) -> None:
    [one] = bench.readings(executor, [1])
    async with bench.store.begin() as tx:
        await executor.claimer.claim(tx, [one])
    await executor.settler.settle(one, ERROR, Again(30.0), 1)
    assert await bench.held() == []


async def test_what_the_store_cannot_keep_is_quarantined_under_its_digest(bench: Bench, executor: Executor) -> None:
    [one] = bench.readings(executor, [1])
    entry = one.entry
    unkept = InboundEvent(
        entry=type(entry)(topic=entry.topic, tenant="\ud800", event_id="e", digest=entry.digest, time=entry.time),
        headers={},
        body=one.body,
        event=one.event,
        handler=one.handler,
    )
    await executor.settler.settle(unkept, ERROR, Again(30.0), 1)
    [held] = await bench.held()
    assert (held.state, held.entry.event_id) == ("quarantined", entry.digest.hex())
    assert held.reason.startswith("it cannot be kept as what it says it is")


async def test_a_held_event_that_fails_again_waits_in_the_same_place(bench: Bench, executor: Executor) -> None:
    again = await held_again(bench, executor, bench.readings(executor, [1])[0])
    await executor.settler.settle(again, DecodeError("unreadable", "cut off"), Again(5.0), 2)
    [held] = await bench.held()
    assert again.held is not None
    assert (held.id, held.state, held.attempts) == (again.held.id, "retrying", 2)
    assert held.reason == "unreadable: cut off"


async def test_a_held_event_may_die_or_be_quarantined(bench: Bench, executor: Executor) -> None:
    again = await held_again(bench, executor, bench.readings(executor, [1])[0])
    await executor.settler.settle(again, ERROR, Quarantine("its key is gone"), 2)
    again = await held_again(bench, executor, bench.readings(executor, [1], meter="m2")[0])
    await executor.settler.settle(again, ERROR, Dead("attempts spent"), 2)
    assert await bench.states() == [(1, "quarantined", 2), (1, "dead", 2)]


async def test_a_held_event_without_a_run_left_is_dead(bench: Bench) -> None:
    executor = bench.executor(handled_by(ignore, Policy(max_attempts=2)))
    again = await held_again(bench, executor, bench.readings(executor, [1])[0])
    held = again.held
    assert isinstance(held, HeldEvent)
    assert not await executor.settler.spent(again, held)
    bench.clock.advance(61)
    [held] = await bench.store.held.claim_due("books", 10, 60.0)
    assert held.attempts == 3
    assert await executor.settler.spent(executor.decoder.from_held(held), held)
    assert await bench.states() == [(1, "dead", 3)]


async def test_events_whose_handler_committed_behind_our_back_are_quarantined(bench: Bench, executor: Executor) -> None:
    events = bench.readings(executor, [1, 2])
    closed = TransactionClosed("it was committed")
    assert not await executor.settler.ended_by_commit(events, closed), "nothing was: they are next"
    async with bench.store.begin() as tx:
        await executor.claimer.claim(tx, events)
    assert await executor.settler.ended_by_commit(events, closed)
    assert {(held.state, held.reason) for held in await bench.held()} == {("quarantined", ENDED)}


async def test_a_held_event_that_was_taken_out_by_such_a_commit_is_quarantined_too_and_its_key_goes_on(
    bench: Bench, executor: Executor
) -> None:
    one, two = bench.readings(executor, [1, 2])
    again = await held_again(bench, executor, one)
    async with bench.store.begin() as tx:
        await executor.claimer.claim(tx, [two])
    async with bench.store.begin() as tx:
        await executor.claimer.claim(tx, [again])
    await executor.settler.settle(again, TransactionClosed("it was committed"), Again(0.0), 2)
    assert await bench.states() == [(2, "retrying", 0), (1, "quarantined", 2)]
    assert (await bench.held())[1].reason == ENDED


async def test_other_errors_do_not_bring_back_what_is_not_held_any_more(bench: Bench, executor: Executor) -> None:
    again = await held_again(bench, executor, bench.readings(executor, [1])[0])
    async with bench.store.begin() as tx:
        await executor.claimer.claim(tx, [again])
    await executor.settler.settle(again, StoreError("no"), Again(0.0), 2)
    assert await bench.held() == []
