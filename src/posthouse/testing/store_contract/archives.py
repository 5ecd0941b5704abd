"""What a store promises about archives."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from posthouse.clock import new_id
from posthouse.errors import StoreError
from posthouse.store import Planned, Store
from posthouse.testing.store_contract.fixtures import StoreFixtures

NAME = "shop.archive"


class ArchiveContract(StoreFixtures):
    """What `ArchiveTable` promises."""

    async def test_an_archive_is_in_the_place_where_it_was_begun_first(self, store: Store, other: Store) -> None:
        assert await store.archives.known(NAME) is None
        assert (await store.archives.begin(NAME, "here")).place == "here"
        assert await other.archives.known(NAME) == await store.archives.begin(NAME, "")
        found = await other.archives.begin(NAME, "there")
        assert (found.place, found.generation) == ("here", 0)
        assert (await store.archives.begin("stock.archive", "there")).place == "there"

    async def test_an_event_is_claimed_by_one_plan_whoever_asks(self, store: Store, other: Store) -> None:
        await store.archives.begin(NAME, "here")
        assert await planned(store, "one", b"a", b"b") == Planned([0, 1], {})
        assert await planned(other, "two", b"b", b"c") == Planned([1], {0: "one"})
        assert await planned(other, "three", b"a", b"c") == Planned([], {0: "one", 1: "two"})
        assert [(plan.id, plan.owner, plan.events) for plan in await store.archives.plans(NAME)] == [
            ("one", "me", 2),
            ("two", "me", 1),
        ]
        assert [plan.objects for plan in await store.archives.plans(NAME)] == [("one.parquet",), ("two.parquet",)]

    async def test_archives_do_not_see_each_other_s_events(self, store: Store) -> None:
        await store.archives.begin(NAME, "here")
        await store.archives.begin("stock.archive", "there")
        assert await planned(store, "one", b"a") == Planned([0], {})
        assert await planned(store, "two", b"a", archive="stock.archive") == Planned([0], {})
        assert await store.archives.follow("stock.archive", 1, done=["two"])
        assert [plan.id for plan in await store.archives.plans(NAME)] == ["one"]

    async def test_members_that_plan_at_once_share_nothing(self, store: Store, other: Store) -> None:
        await store.archives.begin(NAME, "here")
        digests = [number.to_bytes(16, "big") for number in range(300)]
        found = await asyncio.gather(
            *(
                member.archives.plan(NAME, new_id(), "me", [], digests[:: 1 if turn % 2 else -1], 10.0)
                for turn, member in enumerate((store, other) * 4)
            )
        )
        assert sum(len(plan.own) for plan in found) == 300
        assert all(len(plan.own) + len(plan.elsewhere) == 300 for plan in found)

    async def test_what_is_done_is_archived_and_what_was_given_up_is_free_again(
        self, store: Store, other: Store
    ) -> None:
        await store.archives.begin(NAME, "here")
        await planned(store, "one", b"a")
        await planned(store, "two", b"b")
        assert await other.archives.follow(NAME, 1, done=["one"], aborted=["two"])
        assert await planned(store, "three", b"a", b"b") == Planned([1], {})
        assert not await store.archives.renew(NAME, "two", 10.0)
        assert not await store.archives.renew(NAME, "one", 10.0)
        assert await store.archives.renew(NAME, "three", 10.0)

    async def test_entries_of_the_log_are_taken_over_once_and_in_order(self, store: Store, other: Store) -> None:
        await store.archives.begin(NAME, "here")
        await planned(store, "one", b"a")
        assert not await store.archives.follow(NAME, 2, done=["one"])
        taken = await asyncio.gather(
            *(member.archives.follow(NAME, 1, done=["one"]) for member in (store, other, store, other))
        )
        assert sorted(taken) == [False, False, False, True]
        assert (await store.archives.begin(NAME, "here")).generation == 1

    async def test_a_lease_ends_and_can_be_renewed(self, store: Store) -> None:
        await store.archives.begin(NAME, "here")
        await planned(store, "one", b"a")
        assert await store.archives.renew(NAME, "one", 30.0)
        await self.later(20.0)
        (plan,) = await store.archives.plans(NAME)
        assert 0 < plan.leased <= 10.5
        assert plan.age >= 19.5
        await self.later(15.0)
        (plan,) = await store.archives.plans(NAME)
        assert plan.leased < 0

    async def test_a_database_that_went_back_learns_what_was_done_and_gives_up_what_was_planned(
        self, store: Store
    ) -> None:
        await store.archives.begin(NAME, "here")
        await planned(store, "mine", b"a", b"b")
        assert await store.archives.unknown(NAME, ["mine", "theirs"]) == ["theirs"]
        with pytest.raises(StoreError, match="theirs"):
            await store.archives.follow(NAME, 1, done=["theirs"])
        assert (await store.archives.begin(NAME, "here")).generation == 0
        assert await store.archives.follow(NAME, 1, done=["theirs"], learned={"theirs": wide(b"a", b"c")})
        assert await planned(store, "again", b"a", b"b", b"c") == Planned([1], {})
        assert [plan.id for plan in await store.archives.plans(NAME)] == ["again"]

    async def test_an_archive_that_moved_knows_nothing_and_plans_nothing(self, store: Store) -> None:
        await store.archives.begin(NAME, "here")
        await planned(store, "one", b"a")
        await store.archives.follow(NAME, 1)
        await store.archives.move(NAME, "there")
        found = await store.archives.begin(NAME, "here")
        assert (found.place, found.generation) == ("there", 0)
        assert await store.archives.remembers(NAME) is None
        assert await store.archives.plans(NAME) == []
        assert await planned(store, "two", b"a") == Planned([0], {})

    async def test_what_was_done_long_ago_is_forgotten_bit_by_bit(self, store: Store) -> None:
        await store.archives.begin(NAME, "here")
        await planned(store, "one", b"a", b"b", b"c")
        await planned(store, "open", b"d")
        await store.archives.follow(NAME, 1, done=["one"])
        assert await store.archives.forget(NAME, 60.0, 2) == 0
        since = await store.archives.remembers(NAME)
        await self.later(100.0)
        await planned(store, "late", b"e")
        await store.archives.follow(NAME, 2, done=["late"])
        assert [await store.archives.forget(NAME, 60.0, 2) for _ in range(3)] == [2, 1, 0]
        later = await store.archives.remembers(NAME)
        assert since is not None
        assert later is not None
        assert later - since > 90.0
        assert await planned(store, "two", b"a", b"d") == Planned([0], {1: "open"})

    async def test_a_plan_without_events_stands_until_it_is_done(self, store: Store) -> None:
        await store.archives.begin(NAME, "here")
        assert await planned(store, "compaction") == Planned([], {})
        assert [plan.id for plan in await store.archives.plans(NAME)] == ["compaction"]
        assert await store.archives.follow(NAME, 1, done=["compaction"])
        assert await store.archives.plans(NAME) == []


async def planned(store: Store, id: str, *digests: bytes, archive: str = NAME) -> Planned:
    """A plan for events of these names."""
    return await store.archives.plan(archive, id, "me", [f"{id}.parquet"], wide(*digests), 30.0)


def wide(*digests: bytes) -> Sequence[bytes]:
    """As long as they are."""
    return [digest.ljust(16, b"\0") for digest in digests]
