"""What goes into an outbox: numbers without gaps, one event for one intent, and no row purged too early."""

from __future__ import annotations

import msgspec

from posthouse.store import SentFilter, Store
from posthouse.testing.store_contract.fixtures import StoreFixtures
from posthouse.testing.store_contract.samples import row, stuck
from posthouse.testing.store_contract.steps import add, drain, failing


class OutboxContract(StoreFixtures):
    """What `OutboxTable.append`, `OutboxTable.kept`, `OutboxTable.sent` and `OutboxTable.purge` promise."""

    # Appending

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

    async def test_what_was_sent_can_be_seen_until_it_is_purged(self, store: Store) -> None:
        given = row("ключ", headers={"ce-type": "ordér"}), row(None)
        await add(store, *given)
        before = await store.outbox.kept(0, 10)
        assert [found.event_id for found in before] == [one.event_id for one in given]
        assert before[0] == msgspec.structs.replace(given[0], id=before[0].id, sequence=1, lineage=before[0].lineage)
        await drain(store)
        assert await store.outbox.kept(0, 10) == before
        await store.outbox.purge(10)
        assert await store.outbox.kept(0, 10) == []

    async def test_what_is_kept_is_read_page_by_page(self, store: Store) -> None:
        await add(store, row("a"), row("b"), row("c"))
        first = await store.outbox.kept(0, 2)
        rest = await store.outbox.kept(first[-1].id, 2)
        assert [found.key for found in (*first, *rest)] == ["a", "b", "c"]

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

    async def test_rows_that_are_numbered_before_they_are_added_have_the_numbers_that_appended_ones_have(
        self, store: Store
    ) -> None:
        await add(store, row("k"), row("k", idempotency_key="known", event_id="first"))
        rows = [
            row("k"), row("other"), row("k", numbered=False), row(None), row("k", idempotency_key="known"),
            row("k", idempotency_key="new"), row("k", idempotency_key="new"),
        ]  # fmt: skip
        async with store.begin() as tx:
            numbers = await store.outbox.number(tx, rows)
            fresh = [
                msgspec.structs.replace(one, sequence=number.sequence, lineage=number.lineage)
                for one, number in zip(rows, numbers, strict=True)
                if number.fresh
            ]
            await store.outbox.append(tx, fresh, numbered=True)
        await add(store, row("k"))
        assert [number.sequence for number in numbers] == [3, 1, None, None, None, 4, None]
        assert [number.fresh for number in numbers] == [True, True, True, True, False, True, False]
        stands = [one.event_id for one in rows]
        assert [number.stands for number in numbers] == [*stands[:4], "first", stands[5], stands[5]]
        found = {(one.event_id, one.sequence, one.lineage) for one in await drain(store)}
        assert {(one.event_id, one.sequence, one.lineage) for one in fresh} <= found
        assert (await store.outbox.last_number("shop.orders", "t1", "k"))[0] == 5

    async def test_numbers_that_were_given_are_taken_back_by_a_rollback(self, store: Store) -> None:
        async with failing(store) as tx:
            assert [number.sequence for number in await store.outbox.number(tx, [row("k", idempotency_key="i")])] == [1]
        async with store.begin() as tx:
            (number,) = await store.outbox.number(tx, [row("k", idempotency_key="i")])
        assert (number.sequence, number.fresh) == (1, True)

    async def test_to_number_nothing_is_nothing(self, store: Store) -> None:
        async with store.begin() as tx:
            assert list(await store.outbox.number(tx, [])) == []
            assert list(await store.outbox.append(tx, [], numbered=True)) == []

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

    # Purging

    async def test_purge_deletes_what_every_shard_has_passed(self, store: Store) -> None:
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

    async def test_purge_keeps_what_was_sent_for_as_long_as_asked(self, store: Store) -> None:
        await add(store, row("k"), row(None))
        await drain(store)
        for _ in range(4):
            assert await store.outbox.purge(100, keep=400.0, room=2**30) == 0
            assert len(await store.outbox.sent(SentFilter(), 0, 10)) == 2
            await self.later(99.0)
        await add(store, row("k"))
        assert [found.sequence for found in await drain(store)] == [2]
        for _ in range(6):  # a store may keep somewhat more than was asked for, never for ever
            await self.later(401.0)
            await store.outbox.purge(100, keep=400.0, room=2**30)
        assert await store.outbox.kept(0, 10) == []

    async def test_purge_keeps_nothing_that_was_sent_unless_asked(self, store: Store) -> None:
        await add(store, row("k"))
        await drain(store)
        await store.outbox.purge(100, keep=400.0, room=2**30)
        await store.outbox.purge(100)
        assert await store.outbox.kept(0, 10) == []

    # Sending again

    async def test_what_was_sent_is_read_again_as_it_was_and_nothing_else(self, store: Store) -> None:
        await add(store, row("a"), row("b", tenant="t2"), row("a", topic="shop.other"), row(None))
        sent = await drain(store)
        await add(store, row("a"))
        assert await store.outbox.sent(SentFilter(), 0, 10) == sent, "the last one waits for the relay"
        shards = await store.outbox.lease("a", 10)
        poll = await store.outbox.poll(shards, 10)
        assert await store.outbox.settle("a", poll, [stuck(found) for found in poll.rows])
        assert await store.outbox.sent(SentFilter(), 0, 10) == sent, "the broker refused it"
        assert await store.outbox.settle_stuck("a", shards, [poll.rows[0].id], [])
        assert await store.outbox.sent(SentFilter(), 0, 10) == [*sent, *poll.rows]

    async def test_a_row_was_written_when_the_store_says_whatever_its_id_says(self, store: Store) -> None:
        old = "016f5e66-e800-7abc-8def-0123456789ab"  # of 2020
        await add(store, row("a"), msgspec.structs.replace(row("a"), event_id=old))
        ids = [found.id for found in await drain(store)]
        written = await store.outbox.written([*ids, ids[-1] + 1])
        assert sorted(written) == sorted(ids)
        assert max(written.values()) - min(written.values()) < 60, "the second is not older than the first"
        assert await store.outbox.written([]) == {}

    async def test_what_was_sent_is_read_page_by_page_and_by_what_is_wanted(self, store: Store) -> None:
        assert await store.outbox.newest() == 0
        await add(store, *(row(f"k{number % 2}", tenant=f"t{number % 3}") for number in range(12)))
        await add(store, row("k0", topic="shop.other", tenant="t0"))
        sent = await drain(store)
        assert await store.outbox.newest() == sent[-1].id
        first = await store.outbox.sent(SentFilter(), 0, 7)
        assert [*first, *await store.outbox.sent(SentFilter(), first[-1].id, 7)] == sent
        for wanted in (
            SentFilter(topic="shop.other"),
            SentFilter(tenant="t1"),
            SentFilter(key="k0"),
            SentFilter(topic=sent[0].topic, tenant="t0", key="k0"),
            SentFilter(topic="nothing"),
        ):
            fits = [
                one
                for one in sent
                if wanted.topic in (None, one.topic)
                and wanted.tenant in (None, one.tenant)
                and wanted.key in (None, one.key)
            ]
            assert await store.outbox.sent(wanted, 0, 100) == fits, wanted

    async def test_numbers_go_on_after_a_purge(self, store: Store) -> None:
        await add(store, row("k"))
        first = await drain(store)
        await store.outbox.purge(100)
        await add(store, row("k"))
        second = await drain(store)
        assert [found.sequence for found in (*first, *second)] == [1, 2]
        assert second[0].id > first[0].id
