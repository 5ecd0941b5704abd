"""The contract of a store as tests. A new adapter is proven by a class of ten lines:

    class TestMyStore(StoreContract):
        async def make_store(self) -> Store:
            return MyStore("my://localhost", clock=self.clock)

Needs pytest with pytest-asyncio. Each test wants a database of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec
import pytest
import pytest_asyncio

from posthouse.clock import ManualClock, new_id
from posthouse.errors import DeadlineExceeded, StoreError, StoreOutdated, TransactionClosed
from posthouse.store import (
    Arrival,
    Head,
    HeldEvent,
    HeldFilter,
    HeldState,
    Known,
    Lane,
    OutboxRow,
    Poll,
    Store,
    StuckRow,
    Timer,
    Transaction,
)

TOPIC = "shop.orders"
CONSUMER = "billing"


class StoreContract:
    """Subclass it and give `make_store`; `later` too where the store's clock is not ours to move."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture(autouse=True)
    def _clock(self) -> None:
        self.clock = ManualClock()

    async def make_store(self) -> Store:
        """A new instance on the one database of this test, as another process would open it; without tables at first."""
        raise NotImplementedError("give make_store()")

    async def later(self, seconds: float) -> None:
        """Let time pass on the store's clock."""
        self.clock.advance(seconds)

    @pytest_asyncio.fixture
    async def store(self) -> AsyncIterator[Store]:
        """A store with tables."""
        store = await self.make_store()
        await store.upgrade()
        yield store
        await store.aclose()

    @pytest_asyncio.fixture
    async def other(self, store: Store) -> AsyncIterator[Store]:
        """Another instance on the same database."""
        other = await self.make_store()
        yield other
        await other.aclose()

    # Tables

    async def test_upgrade_makes_the_tables_once(self) -> None:
        store = await self.make_store()
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(store.aclose)
            pending = await store.pending_migrations()
            assert pending
            assert await store.upgrade() == pending
            assert await store.pending_migrations() == []
            assert await store.upgrade() == []

    async def test_many_instances_may_upgrade_at_once(self) -> None:
        stores = [await self.make_store() for _ in range(4)]
        try:
            applied = await asyncio.gather(*(store.upgrade() for store in stores))
            names = [name for some in applied for name in some]
            assert len(names) == len(set(names)) > 0
            assert await add(stores[-1], row("k")) == 1
        finally:
            for store in stores:
                await store.aclose()

    async def test_a_store_without_tables_says_what_to_run(self) -> None:
        store = await self.make_store()
        try:
            with pytest.raises(StoreOutdated, match="posthouse db upgrade"):
                await add(store, row("k"))
        finally:
            await store.aclose()

    async def test_closing_twice_is_closing_once(self, store: Store) -> None:
        await store.aclose()
        await store.aclose()

    # Transactions

    async def test_what_a_block_writes_is_committed_at_its_end(self, store: Store, other: Store) -> None:
        await user_table(store)
        async with store.begin() as tx:
            await tx.execute("INSERT INTO mine (name) VALUES ('kept')")
        assert await names(other) == ["kept"]

    async def test_a_block_that_raises_leaves_nothing(self, store: Store) -> None:
        await user_table(store)
        async with failing(store) as tx:
            await tx.execute("INSERT INTO mine (name) VALUES ('lost')")
            await store.outbox.append(tx, [row("k")])
        assert await names(store) == []
        assert (await store.counts()).committed == {}

    async def test_rows_are_what_a_statement_returned(self, store: Store) -> None:
        await user_table(store)
        async with store.begin() as tx:
            done = await tx.execute("INSERT INTO mine (name) VALUES ('a'), ('b')")
            assert done.rowcount == 2
            found = await tx.execute("SELECT name FROM mine ORDER BY name")
            assert found == [("a",), ("b",)]
            with pytest.raises(LookupError):
                found.one()

    async def test_a_transaction_is_closed_after_its_end(self, store: Store) -> None:
        async with store.begin() as tx:
            pass
        with pytest.raises(TransactionClosed):
            await tx.execute("SELECT 1")
        with pytest.raises(TransactionClosed):
            await store.outbox.append(tx, [row("k")])
        with pytest.raises(TransactionClosed):
            _ = tx.connection

    async def test_foreign_errors_never_escape(self, store: Store) -> None:
        with pytest.raises(StoreError):
            async with store.begin() as tx:
                await tx.execute("SELECT nonsense FROM nowhere")
        assert await add(store, row("k")) == 1

    @pytest.mark.parametrize("end", [DeadlineExceeded("too slow"), asyncio.CancelledError(), TimeoutError()])
    async def test_a_handler_that_lives_on_cannot_write(self, store: Store, end: BaseException) -> None:
        await user_table(store)
        kept: list[Transaction] = []
        async with failing(store, end) as tx:
            await tx.execute("INSERT INTO mine (name) VALUES ('lost')")
            kept.append(tx)
        with pytest.raises(TransactionClosed):
            await kept[0].execute("INSERT INTO mine (name) VALUES ('late')")
        async with store.begin() as tx:
            await tx.execute("INSERT INTO mine (name) VALUES ('next')")
        assert await names(store) == ["next"]

    async def test_many_tasks_may_begin_at_once(self, store: Store, other: Store) -> None:
        await asyncio.gather(*(add((store, other)[n % 2], row("k")) for n in range(20)))
        assert [found.sequence for found in await drain(store)] == list(range(1, 21))

    # Outbox: appending

    async def test_numbers_of_a_key_begin_at_one_and_have_no_gaps(self, store: Store) -> None:
        await add(store, row("k"), row("k"))
        async with failing(store) as tx:
            await store.outbox.append(tx, [row("k")])
        await add(store, row("k"))
        assert [found.sequence for found in await drain(store)] == [1, 2, 3]

    async def test_each_topic_tenant_and_key_has_numbers_of_its_own(self, store: Store) -> None:
        await add(store, row("k"), row("other"), row("k", tenant="t2"), row("k", topic="shop.other"))
        assert [found.sequence for found in await drain(store)] == [1, 1, 1, 1]

    async def test_rows_without_a_key_or_not_numbered_have_no_number(self, store: Store) -> None:
        await add(store, row(None), row("k", numbered=False), row("k"))
        assert [(found.key, found.sequence) for found in await drain(store)] == [(None, None), ("k", None), ("k", 1)]

    async def test_a_row_comes_back_as_it_was_given(self, store: Store) -> None:
        given = row("ключ/🔑", tenant="t'1", body=bytes(range(256)), headers={"ce-type": "ordér"})
        await add(store, given)
        (found,) = await drain(store)
        assert found == msgspec.structs.replace(given, id=found.id, sequence=1, lineage=found.lineage)
        assert found.lineage >= 1

    async def test_append_of_nothing_is_nothing(self, store: Store) -> None:
        async with store.begin() as tx:
            assert list(await store.outbox.append(tx, [])) == []

    async def test_one_intent_is_one_event(self, store: Store) -> None:
        first, again = row("k", idempotency_key="pay-1"), row("k", idempotency_key="pay-1")
        async with store.begin() as tx:
            assert await store.outbox.append(tx, [first]) == [first.event_id]
        async with store.begin() as tx:
            assert await store.outbox.append(tx, [again, row("k", event_id="new")]) == [first.event_id, "new"]
        assert [(found.event_id, found.sequence) for found in await drain(store)] == [(first.event_id, 1), ("new", 2)]

    async def test_an_intent_belongs_to_its_tenant_and_topic(self, store: Store) -> None:
        await add(store, row("k", idempotency_key="i"), row("k", idempotency_key="i", tenant="t2"))
        await add(store, row("k", idempotency_key="i", topic="shop.other"))
        assert len(await drain(store)) == 3

    async def test_an_intent_that_was_rolled_back_is_new(self, store: Store) -> None:
        async with failing(store) as tx:
            await store.outbox.append(tx, [row("k", idempotency_key="i")])
        await add(store, row("k", idempotency_key="i"))
        assert len(await drain(store)) == 1

    async def test_an_intent_is_remembered_for_its_window_even_when_purged(self, store: Store) -> None:
        await add(store, row("k", idempotency_key="i"))
        await drain(store)
        await store.outbox.purge(100)
        await add(store, row("k", idempotency_key="i"))
        assert await drain(store) == []

    # Outbox: leases

    async def test_one_relay_holds_every_lane_and_renews_it(self, store: Store) -> None:
        lanes = await store.outbox.lease("a", 10)
        await self.later(5)
        assert await store.outbox.lease("a", 10) == lanes
        assert len({lane.number for lane in lanes}) == len(lanes) > 0

    async def test_relays_share_lanes_equally(self, store: Store, other: Store) -> None:
        every = len(await store.outbox.lease("a", 10))
        assert await other.outbox.lease("b", 10) == []
        for _ in range(2):
            mine, theirs = await store.outbox.lease("a", 10), await other.outbox.lease("b", 10)
        assert {lane.number for lane in mine}.isdisjoint(lane.number for lane in theirs)
        assert len(mine) + len(theirs) == every
        assert abs(len(mine) - len(theirs)) <= 1

    async def test_lanes_of_a_silent_relay_are_taken_over_under_a_higher_epoch(
        self, store: Store, other: Store
    ) -> None:
        before = {lane.number: lane.epoch for lane in await store.outbox.lease("a", 10)}
        await self.later(11)
        after = {lane.number: lane.epoch for lane in await other.outbox.lease("b", 10)}
        assert after.keys() == before.keys()
        assert all(after[number] > before[number] for number in before)

    async def test_released_lanes_are_free_at_once(self, store: Store, other: Store) -> None:
        lanes = await store.outbox.lease("a", 10)
        await store.outbox.release("a")
        assert len(await other.outbox.lease("b", 10)) == len(lanes)

    # Outbox: polling and settling

    async def test_rows_come_in_commit_order_page_by_page(self, store: Store) -> None:
        for number in range(7):
            await add(store, row("k", event_id=f"e{number}"))
        lanes = await store.outbox.lease("a", 10)
        pages = []
        while (poll := await store.outbox.poll(lanes, 3)).rows:
            pages.append([found.event_id for found in poll.rows])
            assert poll.more or len(poll.rows) < 3
            assert await store.outbox.settle("a", poll, [])
        assert pages == [["e0", "e1", "e2"], ["e3", "e4", "e5"], ["e6"]]

    async def test_a_poll_is_repeated_until_it_is_settled(self, store: Store) -> None:
        await add(store, row("k"))
        lanes = await store.outbox.lease("a", 10)
        assert (await store.outbox.poll(lanes, 10)).rows == (await store.outbox.poll(lanes, 10)).rows != []

    async def test_what_is_not_committed_is_not_seen(self, store: Store) -> None:
        lanes = await store.outbox.lease("a", 10)
        written = asyncio.Event()

        async def look() -> Poll:
            await written.wait()
            return await store.outbox.poll(lanes, 10)

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
        lanes = await other.outbox.lease("b", 10)
        assert not await store.outbox.settle("zombie", poll, [stuck(poll.rows[0])])
        assert await other.outbox.stuck() == []
        assert (await other.outbox.poll(lanes, 10)).rows == poll.rows

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

    async def test_lanes_under_an_old_epoch_show_no_rows(self, store: Store, other: Store) -> None:
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

    # Outbox: stuck keys

    async def test_a_refused_row_stops_its_key_and_nothing_else(self, store: Store) -> None:
        lanes = await self.with_stuck_key(store)
        await add(store, row("bad"), row("good"), row("bad", tenant="t2"), row(None))
        poll = await store.outbox.poll(lanes, 10)
        assert [(found.key, found.tenant) for found in poll.rows if found.id in poll.stuck] == [("bad", "t1")]
        assert len(poll.rows) == 4

    async def test_rows_that_a_relay_does_not_name_are_parked_all_the_same(self, store: Store) -> None:
        lanes = await self.with_stuck_key(store)
        await add(store, row("bad"))
        assert await store.outbox.settle("a", await store.outbox.poll(lanes, 10), [])
        assert [found.row.sequence for found in await store.outbox.stuck()] == [1, 2]

    async def test_the_first_of_a_stuck_key_is_due_in_its_time(self, store: Store) -> None:
        lanes = await self.with_stuck_key(store, delay=60)
        await add(store, row("bad"))
        await store.outbox.settle("a", await store.outbox.poll(lanes, 10), [])
        now = self.clock.now()
        assert await store.outbox.stuck_due(lanes, now, 10) == []
        (due,) = await store.outbox.stuck_due(lanes, now + 60, 10)
        assert (due.row.sequence, due.attempts, due.error) == (1, 1, "refused")

    async def test_followers_go_in_order_once_the_first_is_sent(self, store: Store) -> None:
        lanes = await self.with_stuck_key(store)
        await add(store, row("bad"), row("bad"))
        await store.outbox.settle("a", await store.outbox.poll(lanes, 10), [])
        sent = []
        while due := await store.outbox.stuck_due(lanes, self.clock.now(), 10):
            assert len(due) == 1
            sent.append(due[0].row.sequence)
            assert await store.outbox.settle_stuck("a", lanes, [due[0].row.id], [])
        assert sent == [1, 2, 3]
        await add(store, row("bad"))
        assert not (await store.outbox.poll(lanes, 10)).stuck

    async def test_a_stuck_row_that_fails_again_waits_longer(self, store: Store) -> None:
        lanes = await self.with_stuck_key(store)
        (due,) = await store.outbox.stuck_due(lanes, self.clock.now(), 10)
        again = msgspec.structs.replace(due, attempts=2, next_at=self.clock.now() + 5, error="again")
        assert await store.outbox.settle_stuck("a", lanes, [], [again])
        assert await store.outbox.stuck_due(lanes, self.clock.now(), 10) == []
        assert await store.outbox.stuck() == [again]

    async def test_a_zombie_settles_no_stuck_row(self, store: Store, other: Store) -> None:
        lanes = await self.with_stuck_key(store)
        (due,) = await store.outbox.stuck_due(lanes, self.clock.now(), 10)
        await self.later(11)
        await other.outbox.lease("b", 10)
        assert not await store.outbox.settle_stuck("a", lanes, [due.row.id], [])
        assert len(await other.outbox.stuck()) == 1

    async def test_a_quarantined_row_waits_for_an_operator(self, store: Store) -> None:
        lanes = await self.with_stuck_key(store, quarantined=True)
        assert await store.outbox.stuck_due(lanes, self.clock.now() + 1e6, 10) == []
        (waiting,) = await store.outbox.stuck()
        assert waiting.quarantined
        assert await store.outbox.retry_stuck(waiting.row.id)
        assert len(await store.outbox.stuck_due(lanes, self.clock.now(), 10)) == 1
        assert not await store.outbox.retry_stuck(waiting.row.id + 1000)

    async def test_refused_rows_without_a_key_wait_alone(self, store: Store) -> None:
        lanes = await store.outbox.lease("a", 10)
        await add(store, row(None), row(None))
        poll = await store.outbox.poll(lanes, 10)
        assert await store.outbox.settle("a", poll, [stuck(found) for found in poll.rows])
        assert len(await store.outbox.stuck_due(lanes, self.clock.now(), 10)) == 2
        await add(store, row(None))
        assert not (await store.outbox.poll(lanes, 10)).stuck

    async def with_stuck_key(self, store: Store, *, delay: float = 0.0, quarantined: bool = False) -> Sequence[Lane]:
        """Lanes of relay `a`, after the broker refused one row of the key `bad`."""
        lanes = await store.outbox.lease("a", 10)
        await add(store, row("bad"))
        poll = await store.outbox.poll(lanes, 10)
        refused = stuck(poll.rows[0], next_at=self.clock.now() + delay, attempts=1, quarantined=quarantined)
        assert await store.outbox.settle("a", poll, [refused])
        return lanes

    # Outbox: purging

    async def test_purge_deletes_what_every_lane_has_passed(self, store: Store) -> None:
        await add(store, *(row(f"k{n}") for n in range(5)))
        assert await store.outbox.purge(100) == 0
        await drain(store)
        await add(store, row("unsent"))
        assert [await store.outbox.purge(3), await store.outbox.purge(3), await store.outbox.purge(3)] == [3, 2, 0]
        assert [found.key for found in await drain(store)] == ["unsent"]

    async def test_purge_keeps_what_another_relay_has_not_sent(self, store: Store) -> None:
        for _ in range(2):
            await store.outbox.lease("a", 10)
            await store.outbox.lease("b", 10)
        await add(store, *(row(f"k{n}") for n in range(40)))
        sent = len(await drain(store, "a"))
        await store.outbox.purge(100)
        assert 0 < sent < 40
        assert len(await drain(store, "b")) == 40 - sent

    async def test_purge_keeps_what_is_stuck(self, store: Store) -> None:
        lanes = await self.with_stuck_key(store)
        assert await store.outbox.purge(100) == 0
        (due,) = await store.outbox.stuck_due(lanes, self.clock.now(), 10)
        await store.outbox.settle_stuck("a", lanes, [due.row.id], [])
        assert await store.outbox.purge(100) == 1

    async def test_numbers_go_on_after_a_purge(self, store: Store) -> None:
        await add(store, row("k"))
        first = await drain(store)
        await store.outbox.purge(100)
        await add(store, row("k"))
        second = await drain(store)
        assert [found.sequence for found in (*first, *second)] == [1, 2]
        assert second[0].id > first[0].id

    # Wake-up

    async def test_changed_tells_of_a_commit_in_another_instance(self, store: Store, other: Store) -> None:
        seen = await store.changed(-1, 0)
        waiting = asyncio.create_task(store.changed(seen, 30))
        await add(other, row("k"))
        assert await asyncio.wait_for(waiting, 10) > seen

    async def test_changed_returns_when_its_time_is_over(self, store: Store) -> None:
        seen = await store.changed(-1, 0)
        assert await asyncio.wait_for(store.changed(seen, 0.01), 10) == seen

    # Inbox: ordered

    async def test_a_key_is_claimed_number_by_number(self, store: Store) -> None:
        assert [await claim(store, arrival(n)) for n in (1, 2, 3)] == [True, True, True]
        assert (await standing(store, arrival(3))).sequence == 3

    async def test_duplicates_gaps_and_forks_are_not_claimed_and_the_head_tells_why(self, store: Store) -> None:
        await claim(store, arrival(1))
        await claim(store, arrival(2))
        for refused in (arrival(1), arrival(2), arrival(2, event_id="fork"), arrival(4)):
            assert not await claim(store, refused)
        head = await standing(store, arrival(2, event_id="fork"))
        expected = arrival(2)
        assert head == Head(sequence=2, lineage=1, event_id=expected.event_id, digest=expected.digest)

    async def test_a_key_begins_at_one(self, store: Store) -> None:
        assert not await claim(store, arrival(2))
        async with store.begin() as tx:
            assert await store.inbox.standing(tx, CONSUMER, arrival(2)) is None
        assert await claim(store, arrival(1))

    async def test_a_consumer_that_adopts_begins_anywhere_and_goes_on_from_there(self, store: Store) -> None:
        assert await store.inbox.register(CONSUMER, TOPIC, True)
        assert [await claim(store, arrival(n)) for n in (7, 9, 8, 6)] == [True, False, True, False]

    async def test_the_first_answer_to_adopting_stays(self, store: Store, other: Store) -> None:
        assert not await store.inbox.register(CONSUMER, TOPIC, False)
        assert not await other.inbox.register(CONSUMER, TOPIC, True)
        assert await store.inbox.register(CONSUMER, "shop.other", True)
        assert not await claim(store, arrival(7))

    async def test_a_claim_commits_with_the_handlers_writes_or_not_at_all(self, store: Store) -> None:
        async with failing(store) as tx:
            assert await store.inbox.claim(tx, CONSUMER, arrival(1))
        assert (await store.counts()).applied == {}
        assert await claim(store, arrival(1))

    async def test_heads_belong_to_consumer_topic_tenant_and_key(self, store: Store) -> None:
        others = (arrival(1), arrival(1, topic="shop.other"), arrival(1, tenant="t2"), arrival(1, key="k2"))
        assert all([await claim(store, one) for one in others])
        assert await claim(store, arrival(1), consumer="shipping")

    async def test_a_newer_lineage_goes_on_and_an_older_one_does_not(self, store: Store) -> None:
        assert await claim(store, arrival(1))
        assert await claim(store, arrival(2, lineage=2))
        assert not await claim(store, arrival(3, lineage=1))
        assert (await standing(store, arrival(3))).lineage == 2

    async def test_advance_passes_what_is_held_and_never_goes_back(self, store: Store) -> None:
        await hold(store, held(arrival(2), "gap"))
        async with store.begin() as tx:
            await store.inbox.advance(tx, CONSUMER, arrival(1))
            await store.inbox.advance(tx, CONSUMER, arrival(2), skipped=True)
            await store.inbox.advance(tx, CONSUMER, arrival(1, event_id="old"))
        assert (await standing(store, arrival(1))).sequence == 2
        assert (await store.counts()).skipped == {(CONSUMER, TOPIC): 1}

    # Inbox: unordered

    async def test_an_event_without_a_number_is_claimed_once(self, store: Store) -> None:
        one = arrival(None)
        assert [await claim(store, one), await claim(store, one)] == [True, False]
        async with store.begin() as tx:
            assert await store.inbox.standing(tx, CONSUMER, one) == Known(digest=one.digest)
            assert await store.inbox.standing(tx, CONSUMER, arrival(None)) is None
        assert await claim(store, one, consumer="shipping")
        assert await claim(store, msgspec.structs.replace(one, tenant="t2"))

    async def test_unordered_events_are_forgotten_by_age_and_the_latest_time_is_kept(self, store: Store) -> None:
        old = [arrival(None, time=time) for time in (500.0, 900.0, 700.0)]
        for one in old:
            await claim(store, one)
        await self.later(100)
        await claim(store, young := arrival(None, time=950.0))
        assert await store.inbox.purged_until(CONSUMER) is None
        before = self.clock.now() - 50
        assert [await store.inbox.purge(before, 2), await store.inbox.purge(before, 2)] == [2, 1]
        assert await store.inbox.purged_until(CONSUMER) == 900.0
        assert await store.inbox.purged_until("shipping") is None
        assert not await claim(store, young)
        assert (await store.counts()).applied == {(CONSUMER, TOPIC): 4}

    # Held

    async def test_a_held_event_comes_back_as_it_was_given(self, store: Store) -> None:
        given = msgspec.structs.replace(
            held(arrival(1, lineage=3), "dead"),
            body=b"\x00\xff",
            headers={"a": "é"},
            type="order.placed",
            attempts=4,
            next_at=5.5,
            first_at=1.5,
            last_at=2.5,
            reason="because",
            error="ValueError: no",
            stack="line 1",
        )
        await hold(store, given)
        (found,) = await store.held.find(HeldFilter())
        assert found == msgspec.structs.replace(given, id=found.id, turn=found.turn)
        assert found.id > 0

    async def test_an_event_is_held_once(self, store: Store) -> None:
        alone = arrival(None)
        for one in (held(arrival(1), "retrying"), held(alone, "retrying"), held(arrival(5), "quarantined")):
            assert [await hold(store, one), await hold(store, one)] == [True, False]
        assert await hold(store, msgspec.structs.replace(held(alone, "dead"), consumer="shipping"))

    async def test_another_event_under_a_number_that_waits_is_set_aside(self, store: Store) -> None:
        await hold(store, held(arrival(2), "gap"))
        assert await hold(store, held(arrival(2, event_id="fork"), "gap"))
        states = {found.arrival.event_id: found.state for found in await store.held.find(HeldFilter())}
        assert states == {arrival(2).event_id: "gap", "fork": "quarantined"}

    async def test_a_held_key_claims_nothing_more(self, store: Store) -> None:
        await claim(store, arrival(1))
        await hold(store, held(arrival(2), "retrying"))
        await hold(store, held(arrival(3), "blocked"))
        assert not await claim(store, arrival(2))
        head = await standing(store, arrival(4))
        assert (head.sequence, head.waiting, head.waiting_id) == (1, 2, arrival(2).event_id)
        assert await claim(store, arrival(1, key="k2")), "other keys flow"

    async def test_a_key_whose_first_event_fails_waits_for_it(self, store: Store) -> None:
        await hold(store, held(arrival(1), "retrying"))
        assert not await claim(store, arrival(1))
        assert not await claim(store, arrival(2))
        head = await standing(store, arrival(2))
        assert (head.sequence, head.event_id, head.waiting) == (0, "", 1)
        assert [due.arrival.sequence for due in await self.due(store)] == [1]

    async def test_a_key_that_begins_with_a_gap_waits_for_one(self, store: Store) -> None:
        await hold(store, held(arrival(3), "gap"))
        head = await standing(store, arrival(1))
        assert (head.sequence, head.waiting) == (0, 3)

    async def test_an_adopted_key_whose_first_event_fails_waits_for_that(self, store: Store) -> None:
        await store.inbox.register(CONSUMER, TOPIC, True)
        await hold(store, held(arrival(7), "retrying"))
        assert not await claim(store, arrival(8))
        head = await standing(store, arrival(8))
        assert (head.sequence, head.event_id, head.waiting) == (6, "", 7)
        assert [due.arrival.sequence for due in await self.due(store)] == [7]

    async def test_a_run_is_counted_before_it_begins(self, store: Store) -> None:
        await hold(store, held(arrival(1), "retrying"))
        (first,) = await self.due(store, visibility=30)
        assert (first.attempts, first.next_at) == (1, self.clock.now() + 30)
        assert await self.due(store) == [], "it is in somebody's hands"
        await self.later(31)
        (second,) = await self.due(store)
        assert second.attempts == 2
        assert second.turn > first.turn

    async def test_an_event_is_not_due_before_its_time(self, store: Store) -> None:
        await hold(store, msgspec.structs.replace(held(arrival(1), "retrying"), next_at=self.clock.now() + 10))
        assert await self.due(store) == []
        await self.later(10)
        assert len(await self.due(store)) == 1

    async def test_only_the_next_of_a_key_is_due(self, store: Store) -> None:
        await hold(store, held(arrival(3), "retrying"), held(arrival(2), "retrying"), held(arrival(1), "retrying"))
        await hold(store, held(arrival(None), "retrying"), held(arrival(1, key="k2"), "dead"))
        assert [found.arrival.sequence for found in await self.due(store)] == [1, None]

    async def test_due_events_come_oldest_first_and_no_more_than_asked(self, store: Store) -> None:
        for key, at in (("a", 3.0), ("b", 1.0), ("c", 2.0)):
            await hold(store, msgspec.structs.replace(held(arrival(1, key=key), "retrying"), next_at=at))
        assert [found.arrival.key for found in await self.due(store, limit=2)] == ["b", "c"]

    async def test_two_workers_never_get_the_same_event(self, store: Store, other: Store) -> None:
        await hold(store, *(held(arrival(1, key=f"k{n}"), "retrying") for n in range(20)))
        shares = await asyncio.gather(
            *((store, other)[n % 2].held.claim_due(CONSUMER, self.clock.now(), 4, 30) for n in range(6))
        )
        taken = [found.id for share in shares for found in share]
        assert len(taken) == len(set(taken)) == 20

    async def test_a_worker_that_was_too_slow_changes_nothing(self, store: Store) -> None:
        await hold(store, held(arrival(1), "retrying"))
        (slow,) = await self.due(store, visibility=10)
        await self.later(11)
        (current,) = await self.due(store)
        async with store.begin() as tx:
            assert not await store.held.remove(tx, slow)
            assert not await store.held.change(tx, msgspec.structs.replace(slow, state="dead"))
            assert await store.held.change(tx, msgspec.structs.replace(current, state="dead"))
            assert not await store.held.change(tx, current), "a change ends the turn"

    async def test_a_key_goes_on_when_what_it_waited_for_is_applied(self, store: Store) -> None:
        await hold(store, held(arrival(1), "retrying"))
        (due,) = await self.due(store)
        async with store.begin() as tx:
            assert await store.held.remove(tx, due)
            await store.inbox.advance(tx, CONSUMER, due.arrival)
        assert await claim(store, arrival(2))

    async def test_a_change_is_stored_as_given(self, store: Store) -> None:
        await hold(store, held(arrival(1), "retrying"))
        (found,) = await store.held.find(HeldFilter())
        changed = msgspec.structs.replace(
            found, state="dead", attempts=9, next_at=1.5, body=b"mended", reason="r", error="e", stack="s"
        )
        async with store.begin() as tx:
            assert await store.held.change(tx, changed)
        (after,) = await store.held.find(HeldFilter())
        assert after == msgspec.structs.replace(changed, turn=after.turn)

    @pytest.mark.parametrize("state", ["quarantined", "skipped"])
    async def test_a_key_waits_exactly_while_something_blocks_it(self, store: Store, state: HeldState) -> None:
        await claim(store, arrival(1))
        await hold(store, held(arrival(2), "retrying"))
        await change(store, "dead")
        assert (await standing(store, arrival(2))).waiting == 2
        await change(store, state)
        assert (await standing(store, arrival(2))).waiting is None
        await change(store, "retrying")
        assert (await standing(store, arrival(2))).waiting == 2
        assert not await claim(store, arrival(2, event_id="other"))
        await change(store, state)
        assert await claim(store, arrival(2, event_id="other"))

    @pytest.mark.parametrize("state", ["dead", "quarantined"])
    async def test_an_event_that_loses_its_number_keeps_nobody_waiting(self, store: Store, state: HeldState) -> None:
        await claim(store, arrival(1))
        await hold(store, held(arrival(2), state))
        (found,) = await store.held.find(HeldFilter())
        alone = msgspec.structs.replace(found.arrival, sequence=None)
        async with store.begin() as tx:
            assert await store.held.change(tx, msgspec.structs.replace(found, arrival=alone, state="retrying"))
        assert [due.arrival for due in await self.due(store)] == [alone]
        assert await claim(store, arrival(2, event_id="other"))

    async def test_an_event_set_aside_may_wait_again_unless_its_number_is_taken(self, store: Store) -> None:
        await hold(store, held(arrival(1), "gap"), held(arrival(1, event_id="fork"), "quarantined"))
        (fork,) = await store.held.find(HeldFilter(state="quarantined"))
        with pytest.raises(StoreError, match="number 1"):
            async with store.begin() as tx:
                await store.held.change(tx, msgspec.structs.replace(fork, state="retrying"))

    async def test_the_next_of_a_key_is_promoted(self, store: Store) -> None:
        tried = msgspec.structs.replace(held(arrival(2), "blocked"), attempts=3, next_at=self.clock.now() + 60)
        await hold(store, tried, held(arrival(3), "blocked"), held(arrival(2, key="k2"), "blocked"))
        async with store.begin() as tx:
            await store.inbox.advance(tx, CONSUMER, arrival(1))
            assert await store.held.promote(tx, CONSUMER, arrival(1), self.clock.now())
            assert not await store.held.promote(tx, CONSUMER, arrival(5), self.clock.now())
            assert not await store.held.promote(tx, CONSUMER, arrival(None), self.clock.now())
        (due,) = await self.due(store)
        assert (due.arrival.sequence, due.arrival.key, due.attempts) == (2, "k", 1)

    async def test_next_due_tells_when_somebody_must_look(self, store: Store) -> None:
        assert await store.held.next_due(CONSUMER) is None
        at = self.clock.now()
        for event, next_at in (
            (held(arrival(1), "retrying"), at + 30),
            (held(arrival(2), "retrying"), at + 1),  # not its turn
            (held(arrival(2, key="k2"), "gap"), at + 20),
            (held(arrival(1, key="k3"), "dead"), at + 2),
        ):
            await hold(store, msgspec.structs.replace(event, next_at=next_at))
        assert await store.held.next_due(CONSUMER) == at + 20
        assert await store.held.next_due("shipping") is None

    async def test_a_gap_is_overdue_after_its_deadline(self, store: Store) -> None:
        await hold(store, msgspec.structs.replace(held(arrival(2), "gap"), next_at=self.clock.now() + 10))
        assert await store.held.overdue_gaps(CONSUMER, self.clock.now()) == []
        (overdue,) = await store.held.overdue_gaps(CONSUMER, self.clock.now() + 10)
        assert overdue.arrival.sequence == 2

    async def test_held_events_are_found_by_what_they_are(self, store: Store) -> None:
        await hold(store, held(arrival(1), "dead"), held(arrival(2), "blocked"), held(arrival(1, key="k2"), "dead"))
        await hold(store, held(arrival(1, tenant="t2"), "dead"), held(arrival(1, topic="shop.other"), "dead"))
        every = await store.held.find(HeldFilter())

        async def count(wanted: HeldFilter) -> int:
            return len(await store.held.find(wanted))

        assert [found.id for found in every] == sorted(found.id for found in every)
        assert await count(HeldFilter(state="dead")) == 4
        assert await count(HeldFilter(tenant="t2")) == 1
        assert await count(HeldFilter(topic=TOPIC, key="k", tenant="t1")) == 2
        assert await count(HeldFilter(consumer="shipping")) == 0
        assert await store.held.find(HeldFilter(ids=[every[1].id, every[3].id])) == [every[1], every[3]]
        assert await store.held.find(HeldFilter(), after=every[1].id, limit=2) == every[2:4]

    async def due(self, store: Store, *, limit: int = 10, visibility: float = 30.0) -> Sequence[HeldEvent]:
        return await store.held.claim_due(CONSUMER, self.clock.now(), limit, visibility)

    # Timers

    async def test_a_timer_fires_once_however_many_ask(self, store: Store, other: Store) -> None:
        for number in range(10):
            await set_timer(store, Timer(name=f"n{number}", due_at=self.clock.now() + 5, row=row("k")))
        assert await store.timers.fire(100) == 0
        await self.later(5)
        fired = await asyncio.gather(*((store, other)[n % 2].timers.fire(3) for n in range(8)))
        assert sum(fired) == 10
        assert [found.sequence for found in await drain(store)] == list(range(1, 11))
        assert (await store.counts()).timers == 0

    async def test_timers_fire_in_the_order_of_their_times(self, store: Store) -> None:
        for name, due_at in (("late", 3.0), ("early", 1.0), ("middle", 2.0)):
            await set_timer(store, Timer(name=name, due_at=due_at, row=row("k", event_id=name)))
        assert [timer.name for timer in await store.timers.pending()] == ["early", "middle", "late"]
        assert await store.timers.next_due() == 1.0
        assert await store.timers.fire(2) == 2
        assert [found.event_id for found in await drain(store)] == ["early", "middle"]

    async def test_a_timer_never_fires_early(self, store: Store) -> None:
        for name, after in (("due", 0.0), ("early", 0.5)):
            await set_timer(store, Timer(name=name, due_at=self.clock.now() + after, row=row("k", event_id=name)))
        assert await store.timers.fire(10) == 1
        assert [found.event_id for found in await drain(store)] == ["due"]
        assert [timer.name for timer in await store.timers.pending()] == ["early"]

    async def test_a_timer_with_the_same_name_replaces_the_first(self, store: Store) -> None:
        first, second = row("k", headers={"a": "b"}), row("other", idempotency_key="i", numbered=False)
        await set_timer(store, Timer(name="n", due_at=1.0, row=first))
        await set_timer(store, moved := Timer(name="n", due_at=2.0, row=second))
        await set_timer(store, Timer(name="n", due_at=3.0, row=row("k", tenant="t2")))
        assert await store.timers.pending("t1") == [moved]
        assert len(await store.timers.pending()) == 2

    async def test_a_cancelled_timer_never_fires(self, store: Store) -> None:
        await set_timer(store, Timer(name="n", due_at=1.0, row=row("k")))
        async with store.begin() as tx:
            assert not await store.timers.cancel(tx, "t2", "n")
            assert await store.timers.cancel(tx, "t1", "n")
            assert not await store.timers.cancel(tx, "t1", "n")
        assert await store.timers.fire(10) == 0
        assert await store.timers.next_due() is None

    async def test_a_timer_is_set_with_its_transaction_or_not_at_all(self, store: Store) -> None:
        async with failing(store) as tx:
            await store.timers.set(tx, Timer(name="n", due_at=1.0, row=row("k")))
        assert await store.timers.pending() == []

    # Counts

    async def test_what_was_committed_is_sent_or_unsent_through_everything(self, store: Store) -> None:
        lanes = await self.with_stuck_key(store)
        await add(store, row("bad"), row("k"), row("k", topic="shop.other"))

        async def figures() -> tuple[object, ...]:
            counts = await store.counts()
            return dict(counts.committed), dict(counts.unsent), counts.stuck

        committed = {TOPIC: 3, "shop.other": 1}
        assert await figures() == (committed, {TOPIC: 3, "shop.other": 1}, 1)
        await store.outbox.settle("a", await store.outbox.poll(lanes, 10), [])
        assert await figures() == (committed, {TOPIC: 2}, 2)
        await store.outbox.purge(100)
        assert await figures() == (committed, {TOPIC: 2}, 2)
        for due in [*await store.outbox.stuck_due(lanes, self.clock.now(), 10)]:
            await store.outbox.settle_stuck("a", lanes, [due.row.id], [])
        await store.outbox.purge(100)
        assert await figures() == (committed, {TOPIC: 1}, 1)

    async def test_held_events_are_counted_by_state_until_they_are_given_up(self, store: Store) -> None:
        await hold(store, held(arrival(1), "dead"), held(arrival(2), "blocked"), held(arrival(3), "blocked"))
        await hold(store, held(arrival(9), "skipped"))
        assert (await store.counts()).held == {(CONSUMER, TOPIC, "dead"): 1, (CONSUMER, TOPIC, "blocked"): 2}


# What the tests say over and over.


def row(
    key: str | None,
    *,
    topic: str = TOPIC,
    tenant: str = "t1",
    event_id: str | None = None,
    body: bytes = b"{}",
    headers: dict[str, str] | None = None,
    numbered: bool | None = None,
    idempotency_key: str | None = None,
) -> OutboxRow:
    """A row; numbered when it has a key."""
    return OutboxRow(
        topic=topic,
        tenant=tenant,
        event_id=event_id or new_id(),
        body=body,
        headers=headers or {},
        key=key,
        numbered=key is not None if numbered is None else numbered,
        idempotency_key=idempotency_key,
    )


def stuck(refused: OutboxRow, *, next_at: float = 0.0, attempts: int = 1, quarantined: bool = False) -> StuckRow:
    """A row that the broker refused."""
    return StuckRow(
        row=refused, attempts=attempts, first_at=1.0, next_at=next_at, error="refused", quarantined=quarantined
    )


def arrival(
    sequence: int | None,
    *,
    topic: str = TOPIC,
    tenant: str = "t1",
    key: str = "k",
    event_id: str | None = None,
    lineage: int = 1,
    time: float = 1000.0,
) -> Arrival:
    """An event of a key with a number, or one that stands alone."""
    name = event_id or (new_id() if sequence is None else f"{topic}/{tenant}/{key}/{sequence}")
    return Arrival(
        topic=topic,
        tenant=tenant,
        event_id=name,
        digest=name.encode()[:16],
        time=time,
        key=None if sequence is None else key,
        sequence=sequence,
        lineage=lineage,
    )


def held(one: Arrival, state: HeldState) -> HeldEvent:
    """An event held by the consumer of these tests."""
    return HeldEvent(consumer=CONSUMER, arrival=one, state=state, body=b"{}")


@contextlib.asynccontextmanager
async def failing(store: Store, end: BaseException | None = None) -> AsyncIterator[Transaction]:
    """A transaction whose block ends with an error, which goes no further."""
    error = end or ZeroDivisionError()
    with contextlib.suppress(type(error)):
        async with store.begin() as tx:
            yield tx
            raise error


async def add(store: Store, *rows: OutboxRow) -> int:
    """Rows in a transaction of their own; how many."""
    async with store.begin() as tx:
        return len(await store.outbox.append(tx, rows))


async def drain(store: Store, owner: str = "a") -> list[OutboxRow]:
    """Everything in the lanes of a relay, read and settled."""
    lanes = await store.outbox.lease(owner, 10)
    found: list[OutboxRow] = []
    while (poll := await store.outbox.poll(lanes, 50)).rows:
        found += poll.rows
        assert await store.outbox.settle(owner, poll, [])
    return found


async def claim(store: Store, one: Arrival, *, consumer: str = CONSUMER) -> bool:
    async with store.begin() as tx:
        return await store.inbox.claim(tx, consumer, one)


async def standing(store: Store, one: Arrival) -> Head:
    async with store.begin() as tx:
        head = await store.inbox.standing(tx, CONSUMER, one)
    assert isinstance(head, Head)
    return head


async def hold(store: Store, *events: HeldEvent) -> bool:
    async with store.begin() as tx:
        return all([await store.held.hold(tx, event) for event in events])


async def change(store: Store, state: HeldState) -> None:
    """Put the only held event into another state."""
    (found,) = await store.held.find(HeldFilter())
    async with store.begin() as tx:
        assert await store.held.change(tx, msgspec.structs.replace(found, state=state))


async def set_timer(store: Store, timer: Timer) -> None:
    async with store.begin() as tx:
        await store.timers.set(tx, timer)


async def user_table(store: Store) -> None:
    async with store.begin() as tx:
        await tx.execute("CREATE TABLE mine (name TEXT)")


async def names(store: Store) -> list[object]:
    async with store.begin() as tx:
        rows: Iterable[tuple[object, ...]] = await tx.execute("SELECT name FROM mine ORDER BY name")
    return [name for (name,) in rows]
