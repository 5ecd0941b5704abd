"""What a store promises about replays."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from posthouse.clock import new_id
from posthouse.receiving.order import OrderDecision, classify
from posthouse.store import Store
from posthouse.store.jobs import Job
from posthouse.store.replays import Line, Said, Staged, Standing
from posthouse.testing.store_contract.fixtures import StoreFixtures
from posthouse.testing.store_contract.samples import CONSUMER, TOPIC, entry, held, row
from posthouse.testing.store_contract.steps import add, claim, failing, hold, standing

LINE = Line(TOPIC, "t1", "k", True)


def staged(job: Job, number: int, key: str = "k", *, tenant: str = "t1", again: bool = True) -> Staged:
    """An event of a key, or with number 0 one that stands in no order."""
    return Staged(
        job=job.id,
        topic=TOPIC,
        tenant=tenant,
        event_id=f"{key}/{number}",
        key=key if number else "",
        sequence=number,
        stored_at=5.5,
        headers={"content-type": "application/json"},
        body=b"{}\x00",
        again=again,
    )


async def running(store: Store, holder: str = "one") -> Job:
    """A job, as its owner has it."""
    job = Job(id=new_id(), service="orders", act="replay", parameters=b"{}", by="ada", why="ticket 7")
    async with store.begin() as tx:
        await store.jobs.add(tx, job)
    taken = await store.jobs.take(["orders"], holder, 10.0)
    assert taken is not None
    return taken


async def put_aside(store: Store, events: Sequence[Staged]) -> None:
    async with store.begin() as tx:
        await store.replays.stage(tx, events)


async def completed(store: Store, job: Job, left_out: int) -> Standing:
    async with store.begin() as tx:
        assert await store.replays.owns(tx, job.id, job.token)
        return await store.replays.staged(tx, job.id, left_out)


async def begun_anew(store: Store, job: Job) -> None:
    async with store.begin() as tx:
        await store.replays.forget(tx, job.id)


async def closed(store: Store, job: Job, line: Line = LINE) -> bool:
    async with store.begin() as tx:
        return await store.replays.close(tx, CONSUMER, line, job.id, job.token)


async def opened(store: Store, job: Job, line: Line = LINE) -> bool:
    async with store.begin() as tx:
        return await store.replays.open(tx, CONSUMER, line, job.id, job.token)


async def taken(store: Store, job: Job, one: Staged, *, in_order: bool = True) -> bool:
    async with store.begin(tenant=one.tenant, lazily=True) as tx:
        return await store.replays.take(tx, CONSUMER, one, job.token if in_order else None)


class ReplayContract(StoreFixtures):
    """What `ReplayTable` promises."""

    async def test_what_is_put_aside_is_read_by_lines_each_in_its_order(self, store: Store, other: Store) -> None:
        job = await running(store)
        events = [staged(job, 3), staged(job, 1), staged(job, 2, "b", tenant="t2"), staged(job, 0, "x"), staged(job, 2)]
        await put_aside(store, events)
        assert await store.replays.standing(job.id) is None
        assert await completed(store, job, 4) == Standing(staged=5, left_out=4, left=5)
        lines = await other.replays.lines(job.id, None, 10)
        assert lines == [Line(TOPIC, "t1", "", False), LINE, Line(TOPIC, "t2", "b", True)]
        assert await other.replays.lines(job.id, lines[0], 1) == [LINE]
        assert await other.replays.of_line(job.id, LINE, None, 10) == [staged(job, 1), staged(job, 2), staged(job, 3)]
        assert await other.replays.of_line(job.id, LINE, staged(job, 1), 1) == [staged(job, 2)]

    async def test_what_is_put_aside_twice_is_there_once_and_a_new_beginning_forgets_it(self, store: Store) -> None:
        job = await running(store)
        await put_aside(store, [staged(job, 1)])
        await put_aside(store, [staged(job, 1), staged(job, 2)])
        await begun_anew(store, job)
        await put_aside(store, [staged(job, 1)])
        assert (await completed(store, job, 0)).staged == 1

    async def test_an_event_is_taken_once_and_not_at_all_where_its_handler_fails(self, store: Store) -> None:
        job = await running(store)
        assert await claim(store, entry(1))
        await put_aside(store, [staged(job, 1), staged(job, 0, "x")])
        await completed(store, job, 0)
        assert not await taken(store, job, staged(job, 1))  # nobody has closed its key
        assert await closed(store, job)
        async with failing(store) as tx:
            assert await store.replays.take(tx, CONSUMER, staged(job, 1), job.token)
        assert await taken(store, job, staged(job, 1))
        assert not await taken(store, job, staged(job, 1))
        assert await taken(store, job, staged(job, 0, "x"), in_order=False)
        assert await store.replays.standing(job.id) == Standing(staged=2, left_out=0, left=0)

    async def test_nothing_behind_the_head_of_a_closed_key_is_applied(self, store: Store, other: Store) -> None:
        job = await running(store)
        assert await claim(store, entry(1))
        assert await closed(store, job)
        assert not await claim(other, entry(2))
        async with other.begin() as tx:
            assert list(await other.inbox.claim(tx, CONSUMER, [entry(2), entry(1, key="free")])) == [False, True]
        head = await standing(other, entry(2))
        assert (head.sequence, head.replay, head.waiting) == (1, f"{job.id}:{job.token}", None)
        assert classify(head, entry(2), adopt=False) is OrderDecision.BLOCKED
        assert classify(head, entry(1), adopt=False) is OrderDecision.DUPLICATE
        assert await hold(store, held(entry(2), "blocked"), held(entry(3), "blocked"))
        assert await store.held.claim_due(CONSUMER, 10, 30.0) == []
        assert await opened(store, job)
        async with store.begin() as tx:
            assert await store.held.promote(tx, CONSUMER, entry(1))
        assert [one.entry.sequence for one in await store.held.claim_due(CONSUMER, 10, 30.0)] == [2]

    async def test_what_is_due_in_a_closed_key_waits_until_it_is_open(self, store: Store) -> None:
        job = await running(store)
        assert await claim(store, entry(1))
        assert await hold(store, held(entry(2), "retrying"))
        assert await closed(store, job)
        assert await store.held.claim_due(CONSUMER, 10, 30.0) == []
        assert await opened(store, job)
        assert not await opened(store, job)
        assert [one.entry.sequence for one in await store.held.claim_due(CONSUMER, 10, 30.0)] == [2]

    async def test_a_key_goes_on_when_it_is_open(self, store: Store) -> None:
        job = await running(store)
        assert await claim(store, entry(1))
        assert await closed(store, job)
        assert await closed(store, job)
        assert await opened(store, job)
        assert await claim(store, entry(2))

    async def test_one_who_lost_the_job_takes_and_opens_nothing_any_more(self, store: Store, other: Store) -> None:
        mine = await running(store)
        assert await claim(store, entry(1))
        await put_aside(store, [staged(mine, 1)])
        assert await closed(store, mine)
        await self.later(10.5)
        theirs = await other.jobs.take(["orders"], "two", 10.0)
        assert theirs is not None
        async with store.begin() as tx:
            assert not await store.replays.owns(tx, mine.id, mine.token)
            assert await store.replays.owns(tx, theirs.id, theirs.token)
        assert not await closed(store, mine)
        assert await closed(other, theirs)
        assert not await taken(store, mine, staged(mine, 1))
        assert not await opened(store, mine)
        assert not await claim(store, entry(2))
        assert await taken(other, theirs, staged(theirs, 1))

    async def test_a_key_is_closed_by_one_job_and_only_where_it_has_a_head(self, store: Store) -> None:
        job, another = await running(store), await running(store)
        assert not await closed(store, job)
        assert await claim(store, entry(1))
        assert await closed(store, job)
        assert not await closed(store, another)
        assert not await opened(store, another)

    async def test_whatever_ends_a_job_leaves_nothing_closed(self, store: Store, other: Store) -> None:
        for number, how in enumerate(("cancelled", "failed", "done")):
            key = f"k{number}"
            job, line = await running(store), Line(TOPIC, "t1", key, True)
            assert await claim(store, entry(1, key=key))
            await put_aside(store, [staged(job, 1, key)])
            await completed(store, job, 0)
            assert await closed(store, job, line)
            assert await hold(store, held(entry(2, key=key), "blocked"), held(entry(3, key=key), "blocked"))
            if how == "cancelled":
                async with other.begin() as tx:
                    assert await other.jobs.decide(tx, job.id, "cancelled")
            else:
                assert await other.jobs.save(job, 10.0, ended=how) == how  # type: ignore[arg-type]
            assert await store.replays.standing(job.id) is None
            assert await store.replays.lines(job.id, None, 10) == []
            assert not await closed(store, job, line)
            assert (await standing(store, entry(2, key=key))).replay == ""
            assert [one.entry.sequence for one in await store.held.claim_due(CONSUMER, 10, 30.0)] == [2]

    async def test_a_paused_job_keeps_what_it_has_closed(self, store: Store) -> None:
        job = await running(store)
        assert await claim(store, entry(1))
        await put_aside(store, [staged(job, 1)])
        await completed(store, job, 0)
        assert await closed(store, job)
        async with store.begin() as tx:
            assert await store.jobs.decide(tx, job.id, "paused")
        assert await store.jobs.save(job, 10.0, ended="done") == "paused"
        assert not await closed(store, job)
        assert not await claim(store, entry(2))
        assert await store.replays.standing(job.id) == Standing(staged=1, left_out=0, left=1)

    async def test_of_a_cancel_and_a_closing_at_once_no_key_stays_closed(self, store: Store, other: Store) -> None:
        for number in range(8):
            key = f"k{number}"
            job = await running(store)
            assert await claim(store, entry(1, key=key))

            async def cancel(id: str = job.id) -> None:
                async with other.begin() as tx:
                    await other.jobs.decide(tx, id, "cancelled")

            await asyncio.gather(closed(store, job, Line(TOPIC, "t1", key, True)), cancel())
            assert await claim(store, entry(2, key=key))

    async def test_what_is_learnt_of_an_event_is_kept(self, store: Store) -> None:
        job = await running(store)
        await put_aside(store, [staged(job, 1), staged(job, 2)])
        await completed(store, job, 0)
        failed = msgspec.structs.replace(staged(job, 1), attempts=3, error="no money")
        await store.replays.note(failed)
        assert (await store.replays.of_line(job.id, LINE, None, 1)) == [failed]
        assert await store.replays.standing(job.id) == Standing(staged=2, left_out=0, left=2, still=1, error="no money")

    async def test_a_fact_that_was_said_is_not_said_again_under_its_key(self, store: Store) -> None:
        await store.replays.remember([Said("t1", TOPIC, "shop:order:placed:1", "e1")] * 2, 100.0)
        again = row("k", idempotency_key="shop:order:placed:1")
        elsewhere = row("k", tenant="t2", idempotency_key="shop:order:placed:1")
        async with store.begin() as tx:
            found: Sequence[str] = await store.outbox.append(tx, [again, elsewhere])
        assert list(found) == ["e1", elsewhere.event_id]
        await self.later(100.5)
        assert await add(store, row("k", idempotency_key="shop:order:placed:1")) == 1
