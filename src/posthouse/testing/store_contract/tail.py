"""Whoever follows an outbox gets every committed row once, however late it commits, or is told that it cannot be said."""

from __future__ import annotations

import asyncio

from posthouse.store import OutboxRow, Store, Tail
from posthouse.testing.store_contract.fixtures import StoreFixtures
from posthouse.testing.store_contract.samples import TOPIC, row
from posthouse.testing.store_contract.steps import add, drain, failing


class TailContract(StoreFixtures):
    """What `OutboxTable.tail` and `OutboxTable.last_number` promise."""

    async def test_a_follower_begins_at_the_end_and_gets_each_row_once(self, store: Store, other: Store) -> None:
        await add(store, row("before"))
        position = (await store.outbox.tail()).position
        await add(store, row("a"), row("b"))
        first = await other.outbox.tail(position)
        assert [found.key for found in first.rows] == ["a", "b"]
        assert not first.more
        await add(store, row("c"))
        assert [found.key for found in (await store.outbox.tail(first.position)).rows] == ["c"]

    async def test_what_commits_late_is_not_passed_over(self, store: Store) -> None:
        if store.writers == 1:
            return
        position = (await store.outbox.tail()).position
        async with store.begin() as late:
            await store.outbox.append(late, [row("late")])
            await add(store, row("early"))
            first = await store.outbox.tail(position)
        async with failing(store) as never:
            await store.outbox.append(never, [row("never")])
        assert [found.key for found in first.rows] == ["early"]
        assert [found.key for found in (await store.outbox.tail(first.position)).rows] == ["late"]

    async def test_the_position_behind_any_row_is_one_to_go_on_from(self, store: Store) -> None:
        position = (await store.outbox.tail()).position
        await add(store, *(row(f"k{number}") for number in range(6)))
        whole = await store.outbox.tail(position)
        await add(store, row("k6"))
        for place, behind in enumerate(whole.positions, 1):
            expected = [f"k{number}" for number in range(place, 7)]
            assert [found.key for found in await everything(store, behind)] == expected
        assert [found.key for found in await everything(store, position, limit=2)] == [f"k{n}" for n in range(7)]

    async def test_it_stops_where_it_is_told(self, store: Store) -> None:
        position = (await store.outbox.tail()).position
        await add(store, row("a"), row("b"))
        end = (await store.outbox.tail()).position
        await add(store, row("c"))
        assert [found.key for found in await everything(store, position, upto=end, limit=1)] == ["a", "b"]
        assert [found.key for found in await everything(store, end)] == ["c"]

    async def test_it_reads_some_topics_and_one_tenant(self, store: Store) -> None:
        position = (await store.outbox.tail()).position
        await add(store, row("a"), row("b", tenant="t2"), row("c", topic="shop.other"))
        found = await store.outbox.tail(position, topics=[TOPIC], tenant="t1")
        assert [one.key for one in found.rows] == ["a"]
        assert not (await store.outbox.tail(found.position)).rows

    async def test_what_was_sent_is_still_there_and_what_was_purged_is_gone(self, store: Store) -> None:
        position = (await store.outbox.tail()).position
        await add(store, row("a"))
        await drain(store)
        position = (await store.outbox.tail(position)).position if await self.began_anew(store, position) else position
        await add(store, row("b"))
        await drain(store)
        assert [found.key for found in (await store.outbox.tail(position)).rows][-1] == "b"
        current = (await store.outbox.tail(position)).position
        await store.outbox.purge(10)
        gone = await store.outbox.tail(position)
        assert (gone.gone, gone.rows) == (True, ())
        assert not (await store.outbox.tail(gone.position)).gone
        assert not (await store.outbox.tail(current)).gone

    async def began_anew(self, store: Store, position: str) -> bool:
        """Whether the first relay began another run of the server, in which nothing of before is known."""
        return (await store.outbox.tail(position)).gone

    async def test_what_is_no_position_of_this_store_is_gone(self, store: Store) -> None:
        end = (await store.outbox.tail()).position
        await add(store, row("a"))
        odd = ["x", "~", "~~~~", end[:-1] + "z", "0" + end[1:], "1" + end[1:], end + "~" + end, "9" * 50_000, "\x00"]
        for text in odd:
            found: Tail = await store.outbox.tail(text)
            assert (found.gone or text == end, found.rows) == (True, ()) or text == end, text

    async def test_after_a_restore_every_position_is_gone(self, store: Store) -> None:
        end = (await store.outbox.tail()).position
        await store.restored()
        assert (await store.outbox.tail(end)).gone

    async def test_too_much_behind_a_position_is_gone(self, store: Store) -> None:
        end = (await store.outbox.tail()).position
        await add(store, *(row(None) for _ in range(5)))
        assert (await store.outbox.tail(end, reach=3)).gone
        assert len((await store.outbox.tail(end, reach=20)).rows) == 5

    async def test_many_writers_are_followed_without_loss_or_doubling(self, store: Store) -> None:
        position = (await store.outbox.tail()).position
        followed: list[OutboxRow] = []

        async def write(writer: int) -> None:
            for number in range(8):
                async with store.begin() as tx:
                    await store.outbox.append(tx, [row(f"w{writer}"), row(f"w{(writer + number) % 4}")])
                    await asyncio.sleep(0)

        async def follow(position: str) -> str:
            found = await store.outbox.tail(position, limit=5)
            followed.extend(found.rows)
            return found.position

        writers = asyncio.gather(*(write(number) for number in range(4)))
        while not writers.done():
            position = await follow(position)
            await asyncio.sleep(0)
        await writers
        followed += await everything(store, position, limit=5)
        assert len(followed) == len({one.event_id for one in followed}) == 64
        for key in {one.key for one in followed}:
            numbers = [one.sequence for one in followed if one.key == key]
            assert numbers == list(range(1, len(numbers) + 1))

    async def test_the_last_number_of_a_key_is_that_of_its_last_committed_row(self, store: Store) -> None:
        assert (await store.outbox.last_number(TOPIC, "t1", "k"))[0] == 0
        await add(store, row("k"), row("k"), row("k", tenant="t2"))
        async with failing(store) as tx:
            await store.outbox.append(tx, [row("k")])
        number, lineage = await store.outbox.last_number(TOPIC, "t1", "k")
        kept = [one for one in await store.outbox.kept(0, 10) if one.tenant == "t1"]
        assert (number, lineage) == (2, kept[-1].lineage)


async def everything(store: Store, position: str, *, upto: str = "", limit: int = 500) -> list[OutboxRow]:
    """What lies behind a position, page by page."""
    found: list[OutboxRow] = []
    while True:
        page = await store.outbox.tail(position, upto=upto, limit=limit)
        assert not page.gone
        found += page.rows
        position = page.position
        if not page.more:
            return found
