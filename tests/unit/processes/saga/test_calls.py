"""Steps that ask the outside: what was paid is known or looked for, and what must be undone is undone, whenever it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import msgspec
import pytest

from posthouse import Event, Payload, Personal, Reject, Service
from posthouse.app import app_of
from posthouse.errors import DeskError, StoreCollision
from posthouse.processes import Saga
from posthouse.processes.saga.calls import Answered, Failed, InHand, Refused, ask
from posthouse.processes.saga.declared import OutsideCall
from posthouse.seam.context import context_of
from posthouse.store import InboxEntry
from posthouse.store.sagas import CallOut, SagaRef, SagaRow
from posthouse.testing import Harness, given
from posthouse.testing.histories import assert_replays, dump, histories, load
from posthouse.testing.sagas_bench import Bench
from posthouse.watch.status import status
from tests.kit.waiting import eventually
from tests.unit.processes.saga.payouts import (
    Bank,
    ClaimApproved,
    ClaimClosed,
    ClaimConfirmed,
    ClaimPaid,
    ClaimSettled,
    ClaimWithdrawn,
    RecallRequested,
    Receipt,
    claims_of,
)


class Office:
    """The service while it runs, with one claim."""

    def __init__(self, h: Harness, service: Service, saga: type[Saga]) -> None:
        self.h, self.service, self._saga = h, service, saga

    async def start(self) -> None:
        async with self.service.transaction("t1") as tx:
            await self.service.start_saga(tx, self._saga(claim_id="c1"))
        await self.h.settled()

    async def approve(self, *, settled: bool = True) -> None:
        await self.h.publish(ClaimApproved(claim_id="c1"))
        if settled:
            await self.h.settled()

    async def row(self) -> SagaRow:
        return (await app_of(self.service).sagas.show("claim", "c1", tenant="t1")).row

    async def notes(self) -> list[str]:
        view = await app_of(self.service).sagas.show("claim", "c1", tenant="t1")
        return [f"{turn.input.kind} {turn.method} {turn.note}".strip() for turn in view.history]

    async def said(self, event: type[object]) -> list[object]:
        return [one.data for one in await self.h.published(event)]


@asynccontextmanager
async def office(bank: Bank, **more: object) -> AsyncIterator[Office]:
    service, saga = claims_of(bank, **more)  # type: ignore[arg-type]
    async with Harness(service) as h:
        made = Office(h, service, saga)
        await made.start()
        yield made


RECALL = RecallRequested(claim_id="c1", receipt="r-c1", cents=100)


async def test_the_outside_is_asked_between_two_turns_and_the_step_gets_its_answer() -> None:
    bank = Bank()
    async with office(bank) as o:
        await o.approve()
        row = await o.row()
        assert (row.status, row.calls, row.steps) == ("completed", (), ("register", "paid"))
        assert await o.said(ClaimPaid) == [ClaimPaid(claim_id="c1", receipt="r-c1")]
        assert await o.notes() == ["start register", "event  calls pay", "call  try 1", "answer paid"]
    assert len(bank.asked) == 1


async def test_no_transaction_is_open_while_the_outside_thinks_and_that_it_does_is_on_record() -> None:
    bank = Bank()
    thinking, answer = bank.holds()
    async with office(bank) as o:
        await o.approve(settled=False)
        await thinking.wait()
        async with o.service.transaction("t1") as tx:  # SQLite has one writer: this would wait for one that is open
            await tx.execute("CREATE TABLE free (x INTEGER)")
        [call] = (await o.row()).calls
        assert (call.step, call.tries, call.due_at) == ("paid", 1, (call.begun_at or 0) + 5.0)
        answer.set()
        await o.h.settled()
        assert (await o.row()).status == "completed"


async def test_a_call_that_is_not_answered_is_made_again_by_the_policy_with_the_same_event() -> None:
    bank = Bank()
    bank.silent(2, paying=True)
    async with office(bank) as o:
        await o.approve()
        [call] = (await o.row()).calls
        assert call.error == "TimeoutError: no answer"
        await o.h.advance(120)
        assert (await o.row()).status == "completed"
    assert len(bank.asked) == 3
    assert len(set(bank.asked)) == 1, "the bank can tell that it is the same payment"
    assert len(bank.paid) == 1


async def test_a_refusal_means_that_nothing_was_done_and_what_was_done_before_is_undone() -> None:
    bank = Bank()
    bank.declines()
    async with office(bank) as o:
        await o.approve()
        row = await o.row()
        assert (row.status, row.reason) == ("compensated", "paid: account closed")
        assert await o.said(RecallRequested) == []
        assert await o.said(ClaimClosed) == [ClaimClosed(claim_id="c1", reason="paid: account closed")]


async def test_what_is_never_answered_is_no_failure_but_unknown_and_rests_for_a_person_who_may_ask_again() -> None:
    bank = Bank()
    bank.silent(3, paying=True)
    async with office(bank) as o:
        await o.approve()
        await o.h.advance(200)
        row = await o.row()
        assert row.status == "partial"
        assert row.reason == "nobody knows whether the call of paid was heard: TimeoutError: no answer"
        assert row.calls[0].given_up
        assert await o.said(ClaimClosed) == [], "nothing is undone while the money may be gone"
        await app_of(o.service).sagas.retry("claim", "c1", tenant="t1", by="ada")
        await o.h.settled()
        assert (await o.row()).status == "completed"
    assert len(set(bank.asked)) == 1


async def test_a_saga_that_is_cancelled_while_a_call_is_out_hears_the_answer_and_undoes_it() -> None:
    bank = Bank()
    thinking, answer = bank.holds()
    async with office(bank) as o:
        await o.approve(settled=False)
        await thinking.wait()
        row = await app_of(o.service).sagas.cancel("claim", "c1", "fraud", tenant="t1", by="ada")
        assert (row.status, len(row.calls)) == ("compensating", 1)
        assert await o.said(ClaimClosed) == [], "the last step may be the one that is out: it is waited for"
        answer.set()
        await o.h.settled()
        row = await o.row()
        assert (row.status, row.calls, row.done) == ("cancelled", (), ())
        assert await o.said(RecallRequested) == [RECALL]
        assert await o.said(ClaimPaid) == [], "the step itself is not run any more"
        assert await o.said(ClaimClosed) == [ClaimClosed(claim_id="c1", reason="fraud")]


async def test_a_deadline_that_passes_while_a_call_is_out_waits_for_its_answer() -> None:
    bank = Bank()
    thinking, answer = bank.holds()
    async with office(bank) as o:
        await o.approve(settled=False)
        await thinking.wait()
        await o.h.publish(ClaimWithdrawn(claim_id="c1"))

        async def compensates() -> bool:
            return (await o.row()).status == "compensating"

        await eventually(compensates)
        answer.set()
        await o.h.settled()
        assert (await o.row()).status == "compensated"
        assert await o.said(RecallRequested) == [RECALL]


async def test_a_refusal_that_comes_late_leaves_nothing_to_undo_of_its_step() -> None:
    bank = Bank()
    thinking, answer = asyncio.Event(), asyncio.Event()

    async def think() -> None:
        thinking.set()
        await answer.wait()
        raise Reject("account closed")

    bank.before = think
    async with office(bank) as o:
        await o.approve(settled=False)
        await thinking.wait()
        await app_of(o.service).sagas.cancel("claim", "c1", "fraud", tenant="t1")
        assert (await o.row()).status == "compensating"
        answer.set()
        await o.h.settled()
        assert (await o.row()).status == "cancelled"
        assert await o.said(RecallRequested) == []


async def test_a_refusal_says_nothing_of_an_earlier_try_that_may_have_been_heard() -> None:
    bank = Bank()
    bank.silent(1, paying=True)
    async with office(bank) as o:
        await o.approve()
        bank.declines()
        await o.h.advance(200)
        row = await o.row()
        assert (row.status, row.calls[0].given_up, len(bank.paid)) == ("partial", True, 1)
        assert "refused, and an earlier try may have been heard: account closed" in row.reason
        assert await o.said(ClaimClosed) == [], "nothing is undone while the money may be gone"
        bank.before = bank.after
        await app_of(o.service).sagas.retry("claim", "c1", tenant="t1")
        await o.h.settled()
        assert (await o.row()).status == "completed"


async def test_a_refusal_after_a_try_that_was_cut_short_is_not_taken_for_both() -> None:
    service, saga = claims_of(Bank())
    bench = Bench(service.declared.saga_types["claim"], service.namespace)
    row = await asked(bench, saga)
    for _ in range(2):
        assert await bench.begin_call(row, row.calls[0])
    await bench.answer_call(row, row.calls[0], Refused("account closed"))
    row = bench.row_of("claim", "t1", "c1")
    assert (row.status, len(row.calls)) == ("running", 1), "it is asked again"
    assert await bench.begin_call(row, row.calls[0])
    await bench.answer_call(row, row.calls[0], Refused("no payment with this key", every_try=True))
    row = bench.row_of("claim", "t1", "c1")
    assert (row.status, row.reason, row.calls) == ("compensated", "paid: no payment with this key", ())


async def test_of_two_tries_at_once_the_one_that_is_answered_counts_and_not_the_one_that_is_refused() -> None:
    bank = Bank()
    bank.silent(1)
    thinking, answer = bank.holds()
    async with office(bank) as o:
        await o.approve()
        desk = app_of(o.service).sagas
        await desk.retry("claim", "c1", tenant="t1")
        await thinking.wait()
        bank.declines()
        await desk.retry("claim", "c1", tenant="t1")

        async def refused() -> bool:
            return (await o.row()).calls[0].error.startswith("refused")

        await eventually(refused)
        assert (await o.row()).status == "running", "no saga ends while a call is out"
        answer.set()
        await o.h.settled()
        assert ((await o.row()).status, len(bank.paid)) == ("completed", 1)
        await o.h.advance(200)
        assert len(bank.asked) == 3, "the try that was planned is stale"


async def test_an_answer_is_heard_also_when_the_event_that_led_to_it_was_skipped_meanwhile() -> None:
    bank = Bank()
    thinking, answer = bank.holds()
    async with office(bank) as o:
        await o.approve(settled=False)
        await thinking.wait()
        [call] = (await o.row()).calls
        store = app_of(o.service).opened.ports.store
        consumer = o.service.declared.saga_types["claim"].caller
        wanted = o.service.declared.sagas.call
        entry = InboxEntry(topic=wanted.topic, tenant="t1", event_id=call.event_id, digest=b"", time=0.0)
        async with store.begin(tenant="t1") as tx:
            assert await store.inbox.claim(tx, consumer, [entry])
        answer.set()

        async def completed() -> bool:
            return (await o.row()).status == "completed"

        await eventually(completed)


async def test_no_turn_waits_for_calls_that_hang_however_many_they_are() -> None:
    bank = Bank()
    _, answer = bank.holds()
    service, saga = claims_of(bank)
    ids = [f"c{number}" for number in range(20)]
    async with Harness(service) as h:
        async with service.transaction("t1") as tx:
            for id in [*ids, "other"]:
                await service.start_saga(tx, saga(claim_id=id))
        for id in ids:
            await h.publish(ClaimApproved(claim_id=id))

        async def hang() -> bool:
            return len(bank.asked) == 16

        await eventually(hang)
        await h.publish(ClaimSettled(claim_id="other"))

        async def settled() -> bool:
            return (await app_of(service).sagas.show("claim", "other", tenant="t1")).row.status == "completed"

        await eventually(settled)
        assert len(bank.asked) == 16, "no more at once than the settings say"
        answer.set()
        await h.settled()
    assert len(bank.paid) == 20


async def test_a_call_that_nobody_makes_any_more_is_asked_for_again_by_an_operator() -> None:
    service, saga = claims_of(Bank())
    bench = Bench(service.declared.saga_types["claim"], service.namespace)
    row = await asked(bench, saga)
    assert await bench.begin_call(row, row.calls[0])
    with pytest.raises(DeskError, match="nothing to retry"):
        await bench.desk.retry("claim", "c1", tenant="t1")
    bench.clock.advance(6.0)
    await bench.desk.retry("claim", "c1", tenant="t1")
    row = bench.row_of("claim", "t1", "c1")
    assert await bench.begin_call(row, row.calls[0])


async def test_an_unknown_outcome_keeps_a_cancelled_saga_from_ending_until_it_is_known_or_settled_by_hand() -> None:
    bank = Bank()
    bank.silent(9, paying=True)
    async with office(bank) as o:
        await o.approve()
        await app_of(o.service).sagas.cancel("claim", "c1", "fraud", tenant="t1")
        await o.h.advance(200)
        assert (await o.row()).status == "compensation_failed"
        await app_of(o.service).sagas.retry("claim", "c1", tenant="t1")
        await o.h.advance(200)
        assert (await o.row()).status == "compensation_failed", "it was silent again"
        row = await app_of(o.service).sagas.resume("claim", "c1", tenant="t1", note="the bank says: never paid")
        assert (row.status, row.calls) == ("cancelled", ())
        assert await o.said(RecallRequested) == []


async def test_a_retry_while_the_call_is_known_to_fail_asks_at_once() -> None:
    bank = Bank()
    bank.silent(1)
    async with office(bank) as o:
        await o.approve()
        await app_of(o.service).sagas.retry("claim", "c1", tenant="t1")
        await o.h.settled()
        assert (await o.row()).status == "completed"
        await o.h.advance(100)
        assert len(bank.asked) == 2, "the try that was planned is stale"


async def test_an_event_that_comes_late_is_not_called_for() -> None:
    bank = Bank()
    async with office(bank) as o:
        await app_of(o.service).sagas.cancel("claim", "c1", "fraud", tenant="t1")
        await o.approve()
        assert (await o.row()).status == "cancelled"
        assert await o.said(RecallRequested) == []
    assert bank.asked == []


async def test_a_method_that_fails_with_the_answer_in_hand_leaves_nothing_and_is_answered_again() -> None:
    bank = Bank()
    async with office(bank, fails=[RuntimeError("a bug")]) as o:
        await o.approve()
        row = await o.row()
        assert (row.status, row.calls[0].error) == ("running", "RuntimeError: a bug")
        assert await o.said(ClaimPaid) == []
        await o.h.advance(60)
        assert (await o.row()).status == "completed"
        assert await o.said(ClaimPaid) == [ClaimPaid(claim_id="c1", receipt="r-c1")]
    assert len(bank.paid) == 1


async def test_an_answer_whose_transaction_collides_is_heard_again_and_nobody_is_asked_twice() -> None:
    bank = Bank()
    async with office(bank, fails=[StoreCollision("somebody was faster")]) as o:
        await o.approve()
        assert (await o.row()).status == "completed"
    assert len(bank.asked) == 1


async def test_a_duplicate_of_the_event_and_of_the_wish_is_not_called_for_again() -> None:
    bank = Bank()
    async with office(bank) as o:
        await o.approve()
        await o.h.assert_replay_safe()
    assert len(bank.asked) == 1


async def test_a_saga_does_not_complete_while_a_call_is_out_and_then_undoes_what_was_done_too_late() -> None:
    bank = Bank()
    thinking, answer = bank.holds()
    async with office(bank) as o:
        await o.approve(settled=False)
        await thinking.wait()
        await o.h.publish(ClaimSettled(claim_id="c1"))

        async def waits() -> bool:
            row = await o.row()
            return (row.status, row.ended_as, row.ended_at) == ("compensating", "completed", None)

        await eventually(waits)
        answer.set()
        await o.h.settled()
        row = await o.row()
        assert (row.status, row.note, row.calls) == ("completed", "by the court", ())
        assert await o.said(RecallRequested) == [RECALL]
        assert await o.said(ClaimClosed) == [], "what was done in time stays"


async def test_a_saga_that_completes_without_knowing_what_came_of_a_call_waits_for_a_person() -> None:
    service, saga = claims_of(Bank())
    case = await given(service, saga(claim_id="c1"), ClaimApproved(claim_id="c1"))
    for _ in range(3):
        await case.answer("paid", TimeoutError("no answer"))
    case.then(status="partial")
    (await case.when(ClaimSettled(claim_id="c1"))).then(status="compensation_failed")
    (await case.resume(note="never paid")).then(status="completed", calls=[], published=[])


async def test_an_answer_that_comes_after_the_call_was_given_up_counts() -> None:
    service, saga = claims_of(Bank())
    bench = Bench(service.declared.saga_types["claim"], service.namespace)
    row = await asked(bench, saga)
    for _ in range(3):
        assert await bench.begin_call(row, row.calls[0])
    late = bench.row_of("claim", "t1", "c1")
    assert not await bench.begin_call(late, late.calls[0])
    assert bench.row_of("claim", "t1", "c1").status == "partial"
    receipt = Answered(msgspec.Raw(msgspec.json.encode(Receipt(number="r1", cents=100))))
    await bench.answer_call(late, late.calls[0], receipt)
    assert bench.row_of("claim", "t1", "c1").status == "completed"


async def test_the_undo_is_given_the_answer_also_when_it_runs_long_after_the_step() -> None:
    bank = Bank()
    async with office(bank, completes=False) as o:
        await o.approve()
        await o.h.publish(ClaimWithdrawn(claim_id="c1"))
        await o.h.settled()
        assert (await o.row()).status == "compensated"
        assert await o.said(RecallRequested) == [RECALL]


async def test_what_a_call_went_through_can_be_replayed() -> None:
    bank = Bank()
    bank.silent(1)
    async with office(bank) as o:
        await o.approve()
        await o.h.advance(100)
        views = [view async for view in histories(o.service)]
        assert [turn.input.kind for turn in views[0].history][-2:] == ["call", "answer"]
        asked = len(bank.asked)
        await assert_replays(o.service, load(dump(views)))
        assert len(bank.asked) == asked, "nobody is called"


async def test_calls_on_the_bench_are_answered_by_the_test() -> None:
    service, saga = claims_of(Bank())
    case = await given(service, saga(claim_id="c1"), ClaimApproved(claim_id="c1"))
    case.then(status="running", calls=["paid"], published=[])
    await case.answer("paid", TimeoutError("no answer"))
    case.then(status="running", calls=["paid"])
    await case.cancel("fraud")
    case.then(status="compensating")
    await case.answer("paid", Receipt(number="r9", cents=100))
    case.then(
        status="cancelled",
        calls=[],
        published=[
            RecallRequested(claim_id="c1", receipt="r9", cents=100),
            ClaimClosed(claim_id="c1", reason="fraud"),
        ],
    )


async def test_a_refusal_on_the_bench() -> None:
    service, saga = claims_of(Bank())
    case = await given(service, saga(claim_id="c1"), ClaimApproved(claim_id="c1"))
    (await case.answer("paid", Reject("account closed"))).then(status="compensated", reason="paid: account closed")


async def test_a_call_that_crashes_cut_short_again_and_again_is_given_up_without_another_try() -> None:
    service, saga = claims_of(Bank())
    bench = Bench(service.declared.saga_types["claim"], service.namespace)
    await asked(bench, saga)
    for begun in (True, True, True, False):
        row = bench.row_of("claim", "t1", "c1")
        assert await bench.begin_call(row, row.calls[0]) is begun
    row = bench.row_of("claim", "t1", "c1")
    assert (row.status, row.calls[0].given_up) == ("partial", True)


async def asked(bench: Bench, saga: type[Saga]) -> SagaRow:
    """A claim whose payout is to be called for."""
    async with bench.begin("claims", "t1") as tx:
        await bench.conductor.start(tx, saga(claim_id="c1"))
    data: object = ClaimApproved(claim_id="c1")
    type_, time = "claims.claim.approved.v1", "2026-11-16T12:00:00Z"
    event = Event(id="e1", type=type_, source="/claims", data=data, time=time, tenant="t1", key="c1")
    async with bench.turn(context_of(event)) as tx:
        await bench.conductor.take(event, tx)
    return bench.row_of("claim", "t1", "c1")


async def test_what_a_person_has_decided_is_no_task_of_theirs_while_it_is_called_for() -> None:
    service, saga = claims_of(Bank(), by="manager")
    case = await given(service, saga(claim_id="c1"))
    assert list(case.row.tasks) == ["paid"]
    await case.when(ClaimApproved(claim_id="c1"))
    assert list(case.row.tasks) == []


async def test_an_event_that_came_before_its_saga_is_called_for_when_it_is_woken() -> None:
    bank = Bank()
    service, saga = claims_of(bank)
    async with Harness(service) as h:
        await h.publish(ClaimApproved(claim_id="c1"))
        await h.settled()
        assert bank.asked == []
        o = Office(h, service, saga)
        await o.start()
        assert (await o.row()).status == "completed"
    assert len(bank.asked) == 1


async def test_what_comes_after_a_call_waits_for_its_answer() -> None:
    bank = Bank()
    bank.silent(1)
    async with office(bank, completes=False) as o:
        await o.approve()
        await o.h.publish(ClaimConfirmed(claim_id="c1"))
        await o.h.settled()
        row = await o.row()
        assert (row.steps, [one.method for one in row.waiting]) == (("register",), ["confirmed"])
        await o.h.advance(60)
        assert (await o.row()).steps == ("register", "paid", "confirmed")


async def test_what_waits_is_late_and_not_called_for_when_the_saga_is_called_off_first() -> None:
    bank = Bank()
    service, saga = claims_of(bank)
    async with Harness(service) as h:
        await h.publish(ClaimApproved(claim_id="c1"))
        await h.settled()
        async with service.transaction("t1") as tx:
            await service.start_saga(tx, saga(claim_id="c1"))
        await app_of(service).sagas.cancel("claim", "c1", "fraud", tenant="t1")
        await h.settled()
        o = Office(h, service, saga)
        assert (await o.row()).status == "cancelled"
        assert len(await o.said(RecallRequested)) == len(bank.paid)


async def test_a_call_that_nobody_makes_is_told_of_by_the_status() -> None:
    bank = Bank()
    thinking, answer = bank.holds()
    async with office(bank) as o:
        await o.approve(settled=False)
        await thinking.wait()
        app = app_of(o.service)
        assert not [note for note in (await status([o.service])).notes if "overdue" in note]
        app.clock.advance(300.0)  # type: ignore[attr-defined]  # the harness moves its clock by hand
        [note] = [note for note in (await status([o.service])).notes if "overdue" in note]
        assert note.startswith("calls of 1 saga(s) claim are overdue, c1 for 295 s: does a worker of claims run?")
        answer.set()
        await o.h.settled()
        assert not [note for note in (await status([o.service])).notes if "overdue" in note]


@pytest.mark.parametrize("error", [Reject("nobody at +49 170 5550002"), LookupError("nobody at +49 170 5550002")])
async def test_what_is_kept_of_a_call_that_failed_names_no_person(error: Exception) -> None:
    async def fails(event: Event[Guest]) -> None:
        raise error

    event: Event[object] = Event(id="e1", type="t", source="s", time="", data=Guest(phone="+49 170 5550002"))
    asked = InHand(
        of=SagaRef(saga="stay", id="s1"),
        call=CallOut(step="call", turn=1),
        outside=OutsideCall(function=fails, answer=None),
        event=event,
        deadline=5.0,
    )
    outcome = await ask(asked)
    assert isinstance(outcome, Refused | Failed)
    assert outcome.words.endswith("nobody at …")


class Guest(Payload):
    phone: Annotated[str, Personal("contact")]
