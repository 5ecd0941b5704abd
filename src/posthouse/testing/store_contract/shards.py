"""Relays share the shards of an outbox, and only who holds a shard moves it."""

from __future__ import annotations

import asyncio

from posthouse.store import Poll, Store
from posthouse.testing.store_contract.fixtures import StoreFixtures
from posthouse.testing.store_contract.samples import TOPIC, row, stuck
from posthouse.testing.store_contract.steps import add, drain, failing


class ShardContract(StoreFixtures):
    """What `OutboxTable.lease`, `poll` and `settle` promise."""

    # Leases

    async def test_one_relay_holds_every_shard_and_renews_it(self, store: Store) -> None:
        shards = await store.outbox.lease("a", 10)
        await self.later(5)
        assert await store.outbox.lease("a", 10) == shards
        assert len({shard.number for shard in shards}) == len(shards) > 0

    async def test_relays_share_shards_equally(self, store: Store, other: Store) -> None:
        every = len(await store.outbox.lease("a", 10))
        assert await other.outbox.lease("b", 10) == []
        for _ in range(2):
            mine, theirs = await store.outbox.lease("a", 10), await other.outbox.lease("b", 10)
        assert {shard.number for shard in mine}.isdisjoint(shard.number for shard in theirs)
        assert len(mine) + len(theirs) == every
        assert abs(len(mine) - len(theirs)) <= 1

    async def test_shards_of_a_silent_relay_are_taken_over_under_a_higher_epoch(
        self, store: Store, other: Store
    ) -> None:
        before = {shard.number: shard.epoch for shard in await store.outbox.lease("a", 10)}
        await self.later(11)
        after = {shard.number: shard.epoch for shard in await other.outbox.lease("b", 10)}
        assert after.keys() == before.keys()
        assert all(after[number] > before[number] for number in before)

    async def test_a_clock_that_was_set_back_leaves_no_shard_to_the_dead(self, store: Store, other: Store) -> None:
        before = await store.outbox.lease("a", 10)
        await self.later(-7200)
        assert len(await other.outbox.lease("b", 10)) == len(before)

    async def test_released_shards_are_free_at_once(self, store: Store, other: Store) -> None:
        shards = await store.outbox.lease("a", 10)
        await store.outbox.release("a")
        assert len(await other.outbox.lease("b", 10)) == len(shards)

    async def test_people_see_who_holds_which_shard_and_for_how_long(self, store: Store, other: Store) -> None:
        free = await store.outbox.leases()
        assert {(lease.owner, lease.left) for lease in free} == {("", 0.0)}
        held = {shard.number: shard.epoch for shard in await store.outbox.lease("a", 10)}
        await self.later(4)
        seen = await other.outbox.leases()
        assert [lease.number for lease in seen] == sorted(held), "by number"
        assert {lease.number: lease.epoch for lease in seen} == held
        assert {lease.owner for lease in seen} == {"a"}
        assert all(0 < lease.left <= 6.5 for lease in seen)
        await self.later(7)
        assert {(lease.owner, lease.left) for lease in await other.outbox.leases()} == {("", 0.0)}, (
            "its lease has ended"
        )

    # Polling and settling

    async def test_rows_come_in_commit_order_page_by_page(self, store: Store) -> None:
        for number in range(7):
            await add(store, row("k", event_id=f"e{number}"))
        shards = await store.outbox.lease("a", 10)
        pages = []
        while (poll := await store.outbox.poll(shards, 3)).rows:
            pages.append([found.event_id for found in poll.rows])
            assert poll.more or len(poll.rows) < 3
            assert await store.outbox.settle("a", poll, [])
        assert pages == [["e0", "e1", "e2"], ["e3", "e4", "e5"], ["e6"]]

    async def test_a_poll_is_repeated_until_it_is_settled(self, store: Store) -> None:
        await add(store, row("k"))
        shards = await store.outbox.lease("a", 10)
        assert (await store.outbox.poll(shards, 10)).rows == (await store.outbox.poll(shards, 10)).rows != []

    async def test_what_is_not_committed_is_not_seen(self, store: Store) -> None:
        shards = await store.outbox.lease("a", 10)
        written = asyncio.Event()

        async def look() -> Poll:
            await written.wait()
            return await store.outbox.poll(shards, 10)

        looking = asyncio.create_task(look())
        async with failing(store) as tx:
            await store.outbox.append(tx, [row("k")])
            written.set()
            await asyncio.wait({looking}, timeout=0.05)
        assert list((await looking).rows) == []

    async def test_two_relays_read_each_row_once_and_each_key_whole(self, store: Store, other: Store) -> None:
        for _ in range(2):
            await store.outbox.lease("a", 10)
            await other.outbox.lease("b", 10)
        await add(store, *(row(f"k{n % 40}") for n in range(120)), *(row(None) for _ in range(40)))
        first, second = await drain(store, "a"), await drain(other, "b")
        assert len(first) + len(second) == 160
        keys = [{found.key for found in share if found.key} for share in (first, second)]
        assert keys[0] | keys[1] == {f"k{n}" for n in range(40)}
        assert not keys[0] & keys[1]
        assert all(keys)

    async def test_a_zombie_settles_nothing(self, store: Store, other: Store) -> None:
        await add(store, row("k"))
        poll = await store.outbox.poll(await store.outbox.lease("zombie", 10), 10)
        await self.later(11)
        shards = await other.outbox.lease("b", 10)
        assert not await store.outbox.settle("zombie", poll, [stuck(poll.rows[0])])
        assert await other.outbox.stuck() == []
        assert (await other.outbox.poll(shards, 10)).rows == poll.rows

    async def test_a_lease_that_ran_out_settles_nothing_though_nobody_took_it(self, store: Store) -> None:
        await add(store, row("k"))
        poll = await store.outbox.poll(await store.outbox.lease("a", 10), 10)
        await self.later(11)
        assert not await store.outbox.settle("a", poll, [])
        assert len(await drain(store, "a")) == 1

    async def test_a_poll_is_settled_once(self, store: Store) -> None:
        await add(store, row("k"))
        poll = await store.outbox.poll(await store.outbox.lease("a", 10), 10)
        assert await store.outbox.settle("a", poll, [])
        assert not await store.outbox.settle("a", poll, [])
        assert (await store.counts()).committed == {TOPIC: 1}

    async def test_shards_under_an_old_epoch_show_no_rows(self, store: Store, other: Store) -> None:
        await add(store, row("k"))
        old = await store.outbox.lease("a", 10)
        await self.later(11)
        await other.outbox.lease("b", 10)
        assert list((await store.outbox.poll(old, 10)).rows) == []

    async def test_rows_added_after_a_take_over_are_found(self, store: Store, other: Store) -> None:
        await add(store, row("k1"), row("k2"))
        assert len(await drain(store, "a")) == 2
        await self.later(11)
        await add(store, row("k1"), row("k3"))
        assert [found.key for found in await drain(other, "b")] == ["k1", "k3"]
