"""What a store promises about jobs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from posthouse.clock import new_id
from posthouse.store import Store
from posthouse.store.jobs import Job, JobState, Open
from posthouse.testing.store_contract.fixtures import StoreFixtures


def a_job(service: str = "orders") -> Job:
    """One as somebody pressed for it."""
    return Job(
        id=new_id(),
        service=service,
        act="held.retry.all",
        parameters=b'{"state":"dead"}',
        by="ada",
        why="ticket 7",
        tenants=("t1", "t2"),
        last=2**60,
        total=10_000,
        more=True,
        rate=2.5,
        canary=3,
        stop_after=5,
    )


class JobContract(StoreFixtures):
    """What `JobTable` promises."""

    async def test_a_job_is_read_as_it_was_pressed(self, store: Store, other: Store) -> None:
        job = await added(store, a_job())
        found = await other.jobs.get(job.id)
        assert found is not None
        assert found.created_at > 0
        assert found.leased <= 0
        assert msgspec.structs.replace(found, created_at=0.0, changed_at=0.0, leased=0.0) == job
        assert await other.jobs.get("none") is None

    async def test_a_job_is_run_by_one_at_a_time_and_a_late_one_is_refused(self, store: Store, other: Store) -> None:
        await added(store, a_job("elsewhere"))
        job = await added(store, a_job())
        mine = await store.jobs.take(["orders"], "one", 10.0)
        assert mine is not None
        assert (mine.id, mine.holder, mine.token) == (job.id, "one", 1)
        assert await other.jobs.take(["orders"], "two", 10.0) is None
        await self.later(10.5)
        theirs = await other.jobs.take(["orders"], "two", 10.0)
        assert theirs is not None
        assert (theirs.id, theirs.token) == (job.id, 2)
        assert await store.jobs.save(msgspec.structs.replace(mine, done=9), 10.0) is None
        assert await other.jobs.save(msgspec.structs.replace(theirs, done=1), 10.0) == "running"
        found = await store.jobs.get(job.id)
        assert found is not None
        assert (found.done, found.holder) == (1, "two")

    async def test_a_clock_that_was_set_back_keeps_no_job_waiting(self, store: Store, other: Store) -> None:
        job = await added(store, a_job())
        assert await store.jobs.take(["orders"], "one", 10.0) is not None
        await self.later(-600.0)
        theirs = await other.jobs.take(["orders"], "two", 10.0)
        assert theirs is not None
        assert (theirs.id, theirs.token) == (job.id, 2)
        await self.later(-5.0)
        assert await store.jobs.take(["orders"], "one", 10.0) is None, (
            "a step as long as the lease takes it from nobody alive"
        )

    async def test_one_takes_no_job_of_an_act_that_it_does_not_know_nor_one_that_it_runs(self, store: Store) -> None:
        job = await added(store, a_job())
        assert await store.jobs.take(["orders"], "one", 10.0, acts=["held.skip.all"]) is None
        assert await store.jobs.take(["orders"], "one", 10.0, acts=[]) is None
        assert await store.jobs.take(["orders"], "one", 10.0, besides=["none", job.id]) is None
        mine = await store.jobs.take(["orders"], "one", 10.0, acts=["held.skip.all", job.act], besides=["none"])
        assert mine is not None
        assert (mine.id, mine.token) == (job.id, 1)

    async def test_progress_is_kept_for_whoever_takes_it_up(self, store: Store, other: Store) -> None:
        await added(store, a_job())
        mine = await store.jobs.take(["orders"], "one", 10.0)
        assert mine is not None
        far = msgspec.structs.replace(
            mine,
            position=2**59,
            done=4,
            refused=1,
            applied=2,
            failed=1,
            open=(Open(7, 3), Open(2**59, 1)),
            canary_passed=True,
            note="8 is skipped already",
        )
        assert await store.jobs.save(far, 0.0) == "running"
        again = await other.jobs.take(["orders"], "two", 10.0)
        assert again is not None
        same = {"holder": "", "token": 0, "leased": 0.0, "changed_at": 0.0}
        assert msgspec.structs.replace(again, **same) == msgspec.structs.replace(far, **same)

    async def test_an_operator_s_word_is_heard_and_never_overwritten(self, store: Store, other: Store) -> None:
        words: Sequence[JobState] = ("paused", "cancelled")
        for word in words:
            job = await added(store, a_job())
            mine = await store.jobs.take(["orders"], "one", 10.0)
            assert mine is not None
            assert mine.id == job.id
            assert await decided(other, job.id, word)
            assert await store.jobs.save(msgspec.structs.replace(mine, done=1), 0.0, ended="done") == word
            found = await other.jobs.get(job.id)
            assert found is not None
            assert (found.state, found.done, found.ended_at is None) == (word, 1, word == "paused")
            assert await other.jobs.take(["orders"], "two", 10.0) is None

    async def test_one_that_ended_stays_ended(self, store: Store) -> None:
        job = await added(store, a_job())
        mine = await store.jobs.take(["orders"], "one", 10.0)
        assert mine is not None
        assert await store.jobs.save(mine, 0.0, ended="stopped") == "stopped"
        assert not await decided(store, job.id, "running")
        assert await store.jobs.take(["orders"], "one", 10.0) is None
        found = await store.jobs.get(job.id)
        assert found is not None
        assert found.ended_at is not None

    async def test_a_paused_one_goes_on_and_need_not_wait_for_its_canary(self, store: Store) -> None:
        job = await added(store, a_job())
        assert await decided(store, job.id, "paused")
        assert await store.jobs.take(["orders"], "one", 10.0) is None
        async with store.begin() as tx:
            assert await store.jobs.decide(tx, job.id, "running", canary_passed=True)
        mine = await store.jobs.take(["orders"], "one", 10.0)
        assert mine is not None
        assert mine.canary_passed
        assert await store.jobs.save(msgspec.structs.replace(mine, canary_passed=False), 1.0) == "running"
        found = await store.jobs.get(job.id)
        assert found is not None
        assert found.canary_passed

    async def test_jobs_are_found_newest_first_page_by_page(self, store: Store) -> None:
        ids = [(await added(store, a_job(service))).id for service in ("orders", "stock", "orders", "orders")]
        mine = [ids[3], ids[2], ids[0]]
        assert [job.id for job in await store.jobs.find(["orders"])] == mine
        assert [job.id for job in await store.jobs.find(["orders"], limit=2)] == mine[:2]
        assert [job.id for job in await store.jobs.find(["orders"], before=mine[1])] == mine[2:]
        assert len(await store.jobs.find(["orders", "stock"])) == 4
        assert await store.jobs.find([]) == []

    async def test_jobs_that_ended_long_ago_are_forgotten(self, store: Store) -> None:
        ids = [(await added(store, a_job())).id for _ in range(3)]
        for id in ids[:2]:
            assert await decided(store, id, "cancelled")
        await self.later(5.0)
        assert [await store.jobs.purge(4.0, 1) for _ in range(3)] == [1, 1, 0]
        assert [job.id for job in await store.jobs.find(["orders"])] == ids[2:]


async def added(store: Store, job: Job) -> Job:
    """As somebody pressed for it, committed."""
    async with store.begin() as tx:
        await store.jobs.add(tx, job)
    return job


async def decided(store: Store, id: str, state: JobState) -> bool:
    """An operator's word, committed."""
    async with store.begin() as tx:
        return await store.jobs.decide(tx, id, state)
