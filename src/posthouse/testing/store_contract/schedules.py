"""What a store promises about schedules."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from posthouse.store import Store
from posthouse.store.schedules import ScheduleRow
from posthouse.testing.store_contract.fixtures import StoreFixtures
from posthouse.testing.store_contract.steps import failing


def schedule(name: str = "audit", *, next_at: float = 100.0) -> ScheduleRow:
    return ScheduleRow(service="hotel", name=name, expression="0 6 * * *", tz="Asia/Kabul", next_at=next_at)


async def added(store: Store, *rows: ScheduleRow) -> None:
    async with store.begin() as tx:
        for row in rows:
            assert await store.schedules.add(tx, row)


class ScheduleContract(StoreFixtures):
    """What `ScheduleTable` promises."""

    async def test_a_schedule_is_added_once_and_found_by_all(self, store: Store, other: Store) -> None:
        whole = replace(
            schedule(), last_at=1.0, done_at=2.0, ended_at=3.0, paused_at=4.0, seen_at=5.0
        )  # fmt: skip
        await added(store, schedule("later"), whole)
        async with other.begin() as tx:
            assert not await other.schedules.add(tx, schedule(next_at=7.0))
        found = await other.schedules.find()
        assert [replace(row, now=0.0) for row in found] == [whole, schedule("later")]
        assert abs(found[0].now - self.clock.now()) < 5

    async def test_what_is_rolled_back_was_never_added_nor_changed(self, store: Store) -> None:
        await added(store, schedule())
        async with failing(store) as tx:
            await store.schedules.add(tx, schedule("other"))
            await store.schedules.save(tx, schedule(next_at=7.0))
            await store.schedules.done(tx, "hotel", "audit", 7.0)
        assert [replace(row, now=0.0) for row in await store.schedules.find()] == [schedule()]

    async def test_a_saved_row_is_as_given_but_for_what_was_done(self, store: Store) -> None:
        await added(store, schedule())
        moved = replace(
            schedule(next_at=200.0), expression="0 7 * * *", tz="UTC", last_at=100.0, paused_at=9.0, seen_at=8.0
        )
        async with store.begin() as tx:
            await store.schedules.done(tx, "hotel", "audit", 50.0)
            await store.schedules.save(tx, moved)
        (found,) = await store.schedules.find()
        assert replace(found, now=0.0, ended_at=None) == replace(moved, done_at=50.0)
        assert abs((found.ended_at or 0.0) - self.clock.now()) < 30

    async def test_the_latest_moment_that_was_done_stands(self, store: Store) -> None:
        await added(store, schedule())
        async with store.begin() as tx:
            for moment in (100.0, 300.0, 200.0):
                await store.schedules.done(tx, "hotel", "audit", moment)
            await store.schedules.done(tx, "hotel", "gone", 1.0)
        assert [row.done_at for row in await store.schedules.find()] == [300.0]

    async def test_only_what_is_due_and_not_paused_is_locked_as_due(self, store: Store) -> None:
        now = self.clock.now()
        await added(
            store,
            schedule("due", next_at=now - 60),
            schedule("soon", next_at=now + 600),
            replace(schedule("paused", next_at=now - 60), paused_at=now),
        )
        async with store.begin() as tx:
            for name, expected in (("due", True), ("soon", False), ("paused", False), ("none", False)):
                assert (await store.schedules.lock(tx, "hotel", name, due=True) is not None) is expected
                assert (await store.schedules.lock(tx, "hotel", name) is not None) is (name != "none")

    async def test_a_moment_has_one_winner_among_many(self, store: Store, other: Store) -> None:
        due = self.clock.now() - 60
        await added(store, schedule(next_at=due))
        won: list[float] = []

        async def fire(mine: Store) -> None:
            async with mine.begin() as tx:
                row = await mine.schedules.lock(tx, "hotel", "audit", due=True)
                if row is not None:
                    await asyncio.sleep(0)
                    await mine.schedules.save(tx, replace(row, next_at=row.next_at + 86_400, last_at=row.next_at))
                    won.append(row.next_at)

        async with asyncio.timeout(30):
            await asyncio.gather(*(fire((store, other)[n % 2]) for n in range(10)))
        assert won == [due]
        (row,) = await other.schedules.find()
        assert (row.last_at, row.next_at) == (due, due + 86_400)

    async def test_a_schedule_that_is_removed_is_gone(self, store: Store) -> None:
        await added(store, schedule())
        async with store.begin() as tx:
            assert await store.schedules.remove(tx, "hotel", "audit")
            assert not await store.schedules.remove(tx, "hotel", "audit")
        assert await store.schedules.find() == []
