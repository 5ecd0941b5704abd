"""A row that the broker refused stops its key and nothing else, and is never lost."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from posthouse.store import OutboxShard, Store
from posthouse.testing.store_contract.fixtures import StoreFixtures
from posthouse.testing.store_contract.samples import TOPIC, row, stuck
from posthouse.testing.store_contract.steps import add


class StuckContract(StoreFixtures):
    """What `OutboxTable.stuck`, `stuck_due`, `settle_stuck` and `retry_stuck` promise."""

    async def test_a_refused_row_stops_its_key_and_nothing_else(self, store: Store) -> None:
        shards = await self.with_stuck_key(store)
        await add(store, row("bad"), row("good"), row("bad", tenant="t2"), row(None))
        poll = await store.outbox.poll(shards, 10)
        assert [(found.key, found.tenant) for found in poll.rows if found.id in poll.stuck] == [("bad", "t1")]
        assert len(poll.rows) == 4

    async def test_rows_that_a_relay_does_not_name_are_parked_all_the_same(self, store: Store) -> None:
        shards = await self.with_stuck_key(store)
        await add(store, row("bad"))
        assert await store.outbox.settle("a", await store.outbox.poll(shards, 10), [])
        first, second = await store.outbox.stuck()
        assert [found.row.sequence for found in (first, second)] == [1, 2]
        assert [found.row.id for found in await store.outbox.stuck(limit=1)] == [first.row.id]
        assert [found.row.id for found in await store.outbox.stuck(after=first.row.id, limit=5)] == [second.row.id]

    async def test_the_first_of_a_stuck_key_is_due_in_its_time(self, store: Store) -> None:
        shards = await self.with_stuck_key(store, delay=60)
        await add(store, row("bad"))
        await store.outbox.settle("a", await store.outbox.poll(shards, 10), [])
        assert await store.outbox.stuck_due(shards, 10) == []
        await self.later(61)
        (due,) = await store.outbox.stuck_due(shards, 10)
        assert (due.row.sequence, due.attempts, due.error) == (1, 1, "refused")
        assert (due.after, due.age) == (-1.0, 61.0)

    async def test_followers_go_in_order_once_the_first_is_sent(self, store: Store) -> None:
        shards = await self.with_stuck_key(store)
        await add(store, row("bad"), row("bad"))
        await store.outbox.settle("a", await store.outbox.poll(shards, 10), [])
        sent = []
        while due := await store.outbox.stuck_due(shards, 10):
            assert len(due) == 1
            sent.append(due[0].row.sequence)
            assert await store.outbox.settle_stuck("a", shards, [due[0].row.id], [])
        assert sent == [1, 2, 3]
        await add(store, row("bad"))
        assert not (await store.outbox.poll(shards, 10)).stuck

    async def test_a_stuck_row_that_fails_again_waits_longer(self, store: Store) -> None:
        shards = await self.with_stuck_key(store)
        (due,) = await store.outbox.stuck_due(shards, 10)
        await self.later(2)
        again = msgspec.structs.replace(due, attempts=2, after=5.0, error="again")
        assert await store.outbox.settle_stuck("a", shards, [], [again])
        assert await store.outbox.stuck_due(shards, 10) == []
        now = self.clock.now()
        assert await store.outbox.stuck() == [msgspec.structs.replace(again, age=2.0, next_at=now + 5.0)]

    async def test_the_first_time_that_a_follower_is_refused_is_its_own(self, store: Store) -> None:
        shards = await self.with_stuck_key(store)
        await add(store, row("bad"))
        await store.outbox.settle("a", await store.outbox.poll(shards, 10), [])
        (due,) = await store.outbox.stuck_due(shards, 10)
        assert await store.outbox.settle_stuck("a", shards, [due.row.id], [])
        await self.later(7)
        (due,) = await store.outbox.stuck_due(shards, 10)
        assert await store.outbox.settle_stuck(
            "a", shards, [], [msgspec.structs.replace(due, attempts=1, first_at=0.0)]
        )
        assert [waiting.age for waiting in await store.outbox.stuck()] == [0.0]

    async def test_a_zombie_settles_no_stuck_row(self, store: Store, other: Store) -> None:
        shards = await self.with_stuck_key(store)
        (due,) = await store.outbox.stuck_due(shards, 10)
        await self.later(11)
        await other.outbox.lease("b", 10)
        assert not await store.outbox.settle_stuck("a", shards, [due.row.id], [])
        assert len(await other.outbox.stuck()) == 1

    async def test_a_quarantined_row_waits_for_an_operator(self, store: Store) -> None:
        shards = await self.with_stuck_key(store, quarantined=True)
        await self.later(1e6)
        assert await store.outbox.stuck_due(shards, 10) == []
        (waiting,) = await store.outbox.stuck()
        assert waiting.quarantined
        assert await store.outbox.retry_stuck(waiting.row.id)
        assert len(await store.outbox.stuck_due(shards, 10)) == 1
        assert not await store.outbox.retry_stuck(waiting.row.id + 1000)

    async def test_refused_rows_without_a_key_wait_alone(self, store: Store) -> None:
        shards = await store.outbox.lease("a", 10)
        await add(store, row(None), row(None))
        poll = await store.outbox.poll(shards, 10)
        assert await store.outbox.settle("a", poll, [stuck(found) for found in poll.rows])
        assert len(await store.outbox.stuck_due(shards, 10)) == 2
        await add(store, row(None))
        assert not (await store.outbox.poll(shards, 10)).stuck

    async def test_purge_keeps_what_is_stuck(self, store: Store) -> None:
        shards = await self.with_stuck_key(store)
        assert await store.outbox.purge(100) == 0
        (due,) = await store.outbox.stuck_due(shards, 10)
        await store.outbox.settle_stuck("a", shards, [due.row.id], [])
        assert await store.outbox.purge(100) == 1

    async def test_what_was_committed_is_sent_or_unsent_through_everything(self, store: Store) -> None:
        shards = await self.with_stuck_key(store)
        await add(store, row("bad"), row("k"), row("k", topic="shop.other"))

        async def figures() -> tuple[object, ...]:
            counts = await store.counts()
            return dict(counts.committed), dict(counts.unsent), counts.stuck

        committed = {TOPIC: 3, "shop.other": 1}
        assert await figures() == (committed, {TOPIC: 3, "shop.other": 1}, 1)
        await store.outbox.settle("a", await store.outbox.poll(shards, 10), [])
        assert await figures() == (committed, {TOPIC: 2}, 2)
        await store.outbox.purge(100)
        assert await figures() == (committed, {TOPIC: 2}, 2)
        for due in [*await store.outbox.stuck_due(shards, 10)]:
            await store.outbox.settle_stuck("a", shards, [due.row.id], [])
        await store.outbox.purge(100)
        assert await figures() == (committed, {TOPIC: 1}, 1)

    async def test_what_is_refused_for_good_is_counted_until_it_is_tried_again(self, store: Store) -> None:
        shards = await self.with_stuck_key(store, quarantined=True)
        await add(store, row(None))
        await store.outbox.settle("a", poll := await store.outbox.poll(shards, 10), [stuck(poll.rows[0])])
        counts = await store.counts()
        assert (counts.stuck, counts.refused, counts.unsent) == (2, {TOPIC: 1}, {TOPIC: 2})
        (refused,) = [found for found in await store.outbox.stuck() if found.quarantined]
        await store.outbox.retry_stuck(refused.row.id)
        assert (await store.counts()).refused == {}

    async def with_stuck_key(
        self, store: Store, *, delay: float = 0.0, quarantined: bool = False
    ) -> Sequence[OutboxShard]:
        """Shards of relay `a`, after the broker refused one row of the key `bad`."""
        shards = await store.outbox.lease("a", 10)
        await add(store, row("bad"))
        poll = await store.outbox.poll(shards, 10)
        refused = stuck(poll.rows[0], after=delay, attempts=1, quarantined=quarantined)
        assert await store.outbox.settle("a", poll, [refused])
        return shards
