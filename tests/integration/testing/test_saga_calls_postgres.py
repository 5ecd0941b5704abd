"""Calls of sagas on PostgreSQL: nobody's row is locked and no connection is held while the outside thinks."""

from __future__ import annotations

from posthouse.app import app_of
from posthouse.testing import Harness
from tests.unit.processes.saga.payouts import Bank, ClaimApproved, ClaimPaid, RecallRequested, claims_of


async def test_an_answer_that_comes_when_the_saga_was_called_off_is_undone(posthouse_store: str) -> None:
    bank = Bank()
    thinking, answer = bank.holds()
    service, saga = claims_of(bank)
    async with Harness(service, store=posthouse_store) as h:
        async with service.transaction("t1") as tx:
            await service.start_saga(tx, saga(claim_id="c1"))
        await h.publish(ClaimApproved(claim_id="c1"))
        await thinking.wait()
        async with app_of(service).store.begin() as outside:
            idle = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND datname = current_database()"
            assert (await outside.execute(idle)).scalar() == 0, "no transaction is open while the bank thinks"
        row = await app_of(service).sagas.cancel("claim", "c1", "fraud", tenant="t1")
        assert (row.status, len(row.calls)) == ("compensating", 1)
        answer.set()
        await h.settled()
        row = (await app_of(service).sagas.show("claim", "c1", tenant="t1")).row
        assert (row.status, row.calls) == ("cancelled", ())
        assert [one.data.receipt for one in await h.published(RecallRequested)] == ["r-c1"]


async def test_a_method_that_fails_with_the_answer_in_hand_leaves_nothing_behind(posthouse_store: str) -> None:
    bank = Bank()
    service, saga = claims_of(bank, fails=[RuntimeError("a bug")])
    async with Harness(service, store=posthouse_store) as h:
        async with service.transaction("t1") as tx:
            await service.start_saga(tx, saga(claim_id="c1"))
        await h.publish(ClaimApproved(claim_id="c1"))
        await h.settled()
        row = (await app_of(service).sagas.show("claim", "c1", tenant="t1")).row
        assert (row.status, row.calls[0].error) == ("running", "RuntimeError: a bug")
        await app_of(service).sagas.retry("claim", "c1", tenant="t1")
        await h.settled()
        assert [one.data.receipt for one in await h.published(ClaimPaid)] == ["r-c1"]
    assert len(bank.paid) == 1
