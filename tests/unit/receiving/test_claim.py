"""Order and claim: what is run, and what is held, quarantined or dropped instead."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec
import pytest

from posthouse import Event, Policy
from posthouse.errors import ConfigurationError, DecodeError
from posthouse.receiving import Executor
from posthouse.receiving.claim import FORGOTTEN, Claimed, Claimer, Hold, dispose, in_line
from posthouse.receiving.inbound import InboundEvent
from posthouse.receiving.order import OrderDecision
from posthouse.receiving.policy import Quarantine
from tests.unit.receiving.conftest import Bench, NoteTaken, handled_by


async def ignore(event: Event[object]) -> None:
    """Handles anything."""


@pytest.fixture
def executor(bench: Bench) -> Executor:
    return bench.executor(handled_by(ignore, Policy(gap_deadline=5.0)))


async def claim(claimer: Claimer, events: Sequence[InboundEvent]) -> Claimed:
    async with claimer.store.begin() as tx:
        return await claimer.claim(tx, events)


def numbers(events: Sequence[InboundEvent]) -> list[int | None]:
    return [inbound.entry.sequence for inbound in events]


def test_what_is_done_with_an_event_follows_from_where_it_stands(bench: Bench, executor: Executor) -> None:
    [inbound] = bench.readings(executor, [4])
    again = msgspec.structs.replace(inbound, redelivered=True)
    reason = "number 4 came, and numbers 2 to 3 have not"
    assert dispose(OrderDecision.NEXT, inbound) == "run"
    assert dispose(OrderDecision.DUPLICATE, inbound) == "drop"
    assert dispose(OrderDecision.GAP, inbound, reached=1) == Hold("gap", reason, after=5.0)
    assert dispose(OrderDecision.BLOCKED, inbound) == Hold("blocked", "an earlier event of its key is held")
    assert "applied again" in str(dispose(OrderDecision.BLOCKED, inbound, replayed=True))
    assert isinstance(dispose(OrderDecision.FORK, inbound), Quarantine)
    assert dispose(OrderDecision.NEXT, inbound, forgotten=True) == Quarantine(FORGOTTEN)
    assert dispose(OrderDecision.NEXT, again) == Hold("retrying", "may have run before a crash", attempts=1)
    assert dispose(OrderDecision.DUPLICATE, again) == "drop"


def test_an_event_that_nobody_handles_cannot_have_run_before_a_crash(bench: Bench, executor: Executor) -> None:
    [inbound] = bench.readings(executor, [1])
    assert dispose(OrderDecision.NEXT, msgspec.structs.replace(inbound, redelivered=True, handler=None)) == "run"


def test_behind_one_that_may_have_to_wait_nothing_of_its_key_is_simply_claimed(
    bench: Bench, executor: Executor
) -> None:
    events = [*bench.readings(executor, [1, 2, 3]), *bench.readings(executor, [1], meter="m2")]
    assert list(in_line(events, set())) == [0, 1, 2, 3]
    assert list(in_line(events, {0})) == [3]
    assert list(in_line(events, {3})) == [0, 1, 2]


async def test_events_of_a_key_are_claimed_in_their_order(bench: Bench, executor: Executor) -> None:
    claimed = await claim(executor.claimer, bench.readings(executor, [1, 2, 3]))
    assert numbers(claimed.events) == [1, 2, 3]
    assert not claimed.due


async def test_a_number_that_comes_too_early_waits_for_the_missing_one(bench: Bench, executor: Executor) -> None:
    one, two, three = bench.readings(executor, [1, 2, 3])
    assert numbers((await claim(executor.claimer, [one, three])).events) == [1]
    assert await bench.states() == [(3, "gap", 0)]
    claimed = await claim(executor.claimer, [two])
    assert numbers(claimed.events) == [2]
    assert claimed.due, "number 3 may run as soon as this is committed"
    assert await bench.states() == [(3, "retrying", 0)]


async def test_what_was_claimed_before_is_dropped(bench: Bench, executor: Executor) -> None:
    events = bench.readings(executor, [1, 2])
    await claim(executor.claimer, events)
    assert await claim(executor.claimer, events) == Claimed([], known=events, refused=[])
    assert await bench.held() == []


async def test_another_event_under_a_number_that_was_given_is_a_fork(bench: Bench, executor: Executor) -> None:
    await claim(executor.claimer, bench.readings(executor, [1]))
    fork = bench.readings(executor, [1])
    assert await claim(executor.claimer, fork) == Claimed([], known=[], refused=fork)
    [held] = await bench.held()
    assert (held.state, held.reason[:4]) == ("quarantined", "fork")


async def test_a_rolled_back_claim_was_none(bench: Bench, executor: Executor) -> None:
    [one] = bench.readings(executor, [1])
    with suppress(ZeroDivisionError):
        async with bench.store.begin() as tx:
            await executor.claimer.claim(tx, [one])
            raise ZeroDivisionError
    assert numbers((await claim(executor.claimer, [one])).events) == [1]


async def test_an_unreadable_event_is_quarantined_and_its_neighbours_go_on(bench: Bench, executor: Executor) -> None:
    one, two = bench.readings(executor, [1, 2])
    unfit = msgspec.structs.replace(
        one, entry=msgspec.structs.replace(one.entry, event_id="x", sequence=None), event=None, defect="unreadable: ?"
    )
    claimed = await claim(executor.claimer, [one, unfit, two])
    assert numbers(claimed.events) == [1, 2]
    [held] = await bench.held()
    assert (held.state, held.reason) == ("quarantined", "unreadable: ?")
    [letter] = await bench.outbox()
    assert letter.topic.endswith(".dlq")


async def test_an_event_that_may_have_run_is_held_with_that_run_counted_and_those_behind_it_wait(
    bench: Bench, executor: Executor
) -> None:
    one, two = bench.readings(executor, [1, 2])
    claimed = await claim(executor.claimer, [msgspec.structs.replace(one, redelivered=True), two])
    assert claimed == Claimed([], due=True, known=[], refused=[])
    assert await bench.states() == [(1, "retrying", 1), (2, "blocked", 0)]


async def test_an_unordered_event_older_than_the_inbox_remembers_is_quarantined(
    bench: Bench, executor: Executor
) -> None:
    old = executor.decoder.from_delivery(bench.delivery(NoteTaken(text="old")))
    await claim(executor.claimer, [executor.decoder.from_delivery(bench.delivery(NoteTaken(text="first")))])
    bench.clock.advance(1_000)
    assert await bench.store.inbox.purge(500, 100) == 1
    assert (await claim(executor.claimer, [old])).events == []
    [held] = await bench.held()
    assert (held.state, held.reason) == ("quarantined", FORGOTTEN)


async def test_whether_it_is_the_turn_of_an_event_is_told_without_claiming_it(bench: Bench, executor: Executor) -> None:
    one, two = bench.readings(executor, [1, 2])
    async with bench.store.begin() as tx:
        assert await executor.claimer.is_next(tx, one)
        assert await executor.claimer.is_next(tx, one)
        assert not await executor.claimer.is_next(tx, two)


async def test_a_held_event_in_its_turn_is_taken_out_and_unblocks_the_next(bench: Bench, executor: Executor) -> None:
    one, two = bench.readings(executor, [1, 2])
    async with bench.store.begin() as tx:
        await executor.claimer.put_away(tx, one, Hold("retrying", "broken"))
        await executor.claimer.put_away(tx, two, Hold("blocked", "behind it"))
    [due] = await bench.store.held.claim_due("books", 10, 60.0)
    claimed = await claim(executor.claimer, [executor.decoder.from_held(due)])
    assert numbers(claimed.events) == [1]
    assert claimed.due
    assert await bench.states() == [(2, "retrying", 0)]


async def test_a_held_event_whose_turn_has_passed_to_somebody_else_is_left_alone(
    bench: Bench, executor: Executor
) -> None:
    [one] = bench.readings(executor, [1])
    async with bench.store.begin() as tx:
        await executor.claimer.put_away(tx, one, Hold("retrying", "broken"))
    [slow] = await bench.store.held.claim_due("books", 10, 60.0)
    bench.clock.advance(61)
    await bench.store.held.claim_due("books", 10, 60.0)
    assert (await claim(executor.claimer, [executor.decoder.from_held(slow)])).events == ()
    assert await bench.states() == [(1, "retrying", 2)]


async def test_a_held_event_that_needs_its_handler_does_not_pass_without_it(bench: Bench, executor: Executor) -> None:
    [one] = bench.readings(executor, [1])
    failed = msgspec.structs.replace(one.to_held("books", "retrying", "", after=0.0), error="ValueError: broken")
    async with bench.store.begin() as tx:
        await bench.store.held.hold(tx, failed)
    [due] = await bench.store.held.claim_due("books", 10, 60.0)
    inbound = executor.decoder.from_held(due)
    for unfit, error in (
        (msgspec.structs.replace(inbound, handler=None), ConfigurationError),
        (msgspec.structs.replace(inbound, handler=None, event=None, defect="cut off"), DecodeError),
    ):
        with pytest.raises(error):
            await claim(executor.claimer, [unfit])
    assert await bench.states() == [(1, "retrying", 1)]


async def test_a_consumer_that_joined_late_begins_with_the_first_number_it_sees(bench: Bench) -> None:
    executor = bench.executor(handled_by(ignore), adopts=True)
    for topic in executor.ordered:
        await bench.store.inbox.register("books", topic, True)
    assert numbers((await claim(executor.claimer, bench.readings(executor, [7, 8]))).events) == [7, 8]
