"""A read model has one generation that is read, and at most one that is being built, by one owner."""

from __future__ import annotations

import asyncio

import msgspec

from posthouse.clock import new_id
from posthouse.store import HeldFilter, Store
from posthouse.store.projections import NUMBERS_LOST, Effect, Generation
from posthouse.store.streams import StreamEvent
from posthouse.testing.store_contract.fixtures import StoreFixtures
from posthouse.testing.store_contract.samples import entry, held
from posthouse.testing.store_contract.steps import failing

MODEL = "search.listings"
FIRST = Generation(
    projection=MODEL, number=1, version=1, state="live", phase="following", tables=("a_1",), made_at=4.0, live_at=5.0
)
NEXT = Generation(projection=MODEL, number=2, version=2, source="streams", owner="me", made_at=7.0)


class ProjectionContract(StoreFixtures):
    """What `ProjectionTable` promises."""

    async def test_a_generation_reads_as_it_was_begun(self, store: Store, other: Store) -> None:
        await begin(store, NEXT, FIRST)
        assert await other.projections.generations() == [FIRST, NEXT]
        async with other.begin() as tx:
            assert await other.projections.live(tx, MODEL) == 1
            assert await other.projections.live(tx, "search.others") is None

    async def test_one_is_read_and_one_is_built(self, store: Store) -> None:
        await begin(store, FIRST, NEXT)
        for another in (
            msgspec.structs.replace(FIRST, number=3),
            msgspec.structs.replace(NEXT, number=3),
            msgspec.structs.replace(FIRST, number=2, state="retired"),
        ):
            async with store.begin() as tx:
                assert not await store.projections.begin(tx, another)
        await begin(store, msgspec.structs.replace(FIRST, number=3, state="retired"))
        await begin(store, msgspec.structs.replace(FIRST, projection="search.others"))

    async def test_of_processes_that_begin_one_at_once_one_does(self, store: Store, other: Store) -> None:
        async def try_to(store: Store) -> bool:
            async with store.begin() as tx:
                return await store.projections.begin(tx, FIRST)

        assert sorted(await asyncio.gather(*(try_to((store, other)[n % 2]) for n in range(6)))) == [False] * 5 + [True]

    async def test_what_was_rolled_back_was_never_begun(self, store: Store) -> None:
        try:
            async with store.begin() as tx:
                await store.projections.begin(tx, FIRST)
                raise LookupError
        except LookupError:
            pass
        assert await store.projections.generations() == []

    async def test_a_store_that_was_brought_back_gives_numbers_that_were_not_given_before(self, store: Store) -> None:
        """Whoever had a later one, which the backup lacks, may still be feeding it."""
        async with store.begin() as tx:
            assert [await store.projections.number(tx, MODEL) for _ in range(2)] == [1, 2]
        await store.restored()
        async with store.begin() as tx:
            first = await store.projections.number(tx, MODEL)
            assert first > NUMBERS_LOST
            assert await store.projections.number(tx, MODEL) == first + 1

    async def test_what_a_lost_generation_has_left_behind_can_go(self, store: Store) -> None:
        await begin(store, FIRST)
        async with store.begin() as tx:
            await store.inbox.claim(tx, "model.g7", [entry(1)])
            await store.held.hold(tx, msgspec.structs.replace(held(entry(3), "gap"), consumer="model.g7"))
        assert await store.projections.remove(MODEL, 7, "model.g7", 100)
        counts = await store.counts()
        assert counts.held == {}
        assert [row.number for row in await store.projections.generations()] == [1]

    async def test_tables_are_named(self, store: Store) -> None:
        await begin(store, FIRST)
        async with store.begin() as tx:
            await store.projections.name_tables(tx, MODEL, 1, ["b_1", "c_1"])
        assert (await store.projections.generations())[0].tables == ("b_1", "c_1")

    async def test_a_lease_is_for_one_owner_until_its_time_is_over(self, store: Store, other: Store) -> None:
        await begin(store, FIRST, msgspec.structs.replace(NEXT, owner=""))
        assert await store.projections.lease(MODEL, 2, "me", 30.0)
        assert await store.projections.lease(MODEL, 2, "me", 30.0)
        assert not await other.projections.lease(MODEL, 2, "you", 30.0)
        await self.later(31.0)
        assert await other.projections.lease(MODEL, 2, "you", 30.0)
        assert not await store.projections.lease(MODEL, 2, "me", 30.0)

    async def test_a_clock_that_was_set_back_keeps_nobody_from_building(self, store: Store, other: Store) -> None:
        await begin(store, FIRST, msgspec.structs.replace(NEXT, owner=""))
        assert await store.projections.lease(MODEL, 2, "me", 30.0)
        await self.later(-600.0)
        assert await other.projections.lease(MODEL, 2, "you", 30.0)
        assert not await store.projections.lease(MODEL, 2, "me", 30.0)

    async def test_who_lets_go_leaves_it_to_the_next(self, store: Store) -> None:
        await begin(store, NEXT)
        assert await store.projections.lease(MODEL, 2, "me", 30.0)
        assert await store.projections.lease(MODEL, 2, "me", 0.0)
        assert await store.projections.lease(MODEL, 2, "you", 30.0)

    async def test_only_what_is_being_built_is_leased(self, store: Store) -> None:
        await begin(store, FIRST)
        assert not await store.projections.lease(MODEL, 1, "me", 30.0)
        assert not await store.projections.lease(MODEL, 2, "me", 30.0)

    async def test_its_owner_moves_it_on(self, store: Store) -> None:
        await begin(store, NEXT)
        further = msgspec.structs.replace(NEXT, phase="bulk", cursor="7", read=12)
        async with store.begin() as tx:
            assert await store.projections.advance(tx, NEXT, further)
            yours = msgspec.structs.replace(further, owner="you")
            assert not await store.projections.advance(tx, yours, msgspec.structs.replace(yours, read=13))
        assert await store.projections.generations() == [further]

    async def test_nothing_is_built_upon_steps_that_it_lacks(self, store: Store) -> None:
        """As after a failover to a server that never had them."""
        await begin(store, NEXT)
        lacking = msgspec.structs.replace(NEXT, phase="bulk", cursor="7", read=12)
        async with store.begin() as tx:
            further = msgspec.structs.replace(lacking, cursor="9", read=15)
            assert not await store.projections.advance(tx, lacking, further)
        assert not await store.projections.cover(lacking, ["room"])
        assert not await swap(store, lacking, 60.0)
        assert await store.projections.generations() == [NEXT]

    async def test_a_generation_that_has_no_times_gets_those_of_the_store(self, store: Store) -> None:
        first, following = (msgspec.structs.replace(one, made_at=0.0, live_at=0.0) for one in (FIRST, NEXT))
        await begin(store, first, following)
        now = self.clock.now()
        assert [(row.made_at, row.live_at) for row in await store.projections.generations()] == [(now, now), (now, 0.0)]

    async def test_a_swap_is_one_step(self, store: Store) -> None:
        await begin(store, FIRST, NEXT)
        assert not await swap(store, msgspec.structs.replace(NEXT, owner="you"), 60.0)
        assert [row.state for row in await store.projections.generations()] == ["live", "building"]
        assert await swap(store, NEXT, 60.0)
        old, new = await store.projections.generations()
        assert (old.state, new.state) == ("retired", "live")
        assert old.drop_at == old.retired_at + 60.0
        assert new.live_at == old.retired_at > 0
        assert new.owner == ""
        assert not await swap(store, NEXT, 60.0)
        await self.later(59)
        assert await store.projections.expired() == []
        await self.later(1)
        assert await store.projections.expired() == [(MODEL, 1)]

    async def test_a_swap_that_is_rolled_back_was_none(self, store: Store) -> None:
        await begin(store, FIRST, NEXT)
        async with failing(store) as tx:
            assert await store.projections.swap(tx, NEXT, 60.0)
        assert [row.state for row in await store.projections.generations()] == ["live", "building"]

    async def test_an_effect_is_said_once_whoever_says_it(self, store: Store, other: Store) -> None:
        async def say(mine: Store, tenant: str = "t1", event_id: str = "e1") -> bool:
            async with mine.begin(tenant=tenant) as tx:
                return await mine.projections.say(tx, MODEL, tenant, event_id)

        async with failing(store) as tx:
            assert await store.projections.say(tx, MODEL, "t1", "e1")
        assert sorted(await asyncio.gather(say(store), say(other))) == [False, True]
        assert not await say(store)
        assert await say(store, tenant="t2")
        assert await say(store, event_id="e2")
        async with store.begin(tenant="t1") as tx:
            assert set(await store.projections.unsaid(tx, MODEL, "t1", ["e1", "e2", "e3"])) == {"e3"}
            assert set(await store.projections.unsaid(tx, "others", "t1", ["e1"])) == {"e1"}
        await self.later(10)
        assert await store.projections.purge_effects(9.0, 2) == 2
        assert await store.projections.purge_effects(9.0, 2) == 1
        assert await say(store)

    async def test_what_is_left_to_a_swap_is_in_the_way_of_nobody_who_says_it(self, store: Store, other: Store) -> None:
        async def leave(number: int, event_id: str, facts: str = "[]", tenant: str = "t1") -> None:
            async with store.begin(tenant=tenant) as tx:
                await store.projections.leave(tx, MODEL, number, Effect(tenant, event_id, facts))

        for event_id in ("e3", "e1", "e2"):
            await leave(2, event_id)
        await leave(2, "e4", "[1]", "t2")
        await leave(3, "e1", "[3]")
        async with store.begin(tenant="t1") as tx:
            assert set(await store.projections.unsaid(tx, MODEL, "t1", ["e1", "e3"])) == {"e1", "e3"}
            assert await store.projections.say(tx, MODEL, "t1", "e1")
        assert [(one.tenant, one.event_id, one.facts) for one in await other.projections.left(MODEL, 2)] == [
            ("t1", "e3", "[]"), ("t1", "e1", "[]"), ("t1", "e2", "[]"), ("t2", "e4", "[1]"),
        ]  # fmt: skip
        assert [one.facts for one in await store.projections.left(MODEL, 3)] == ["[3]"]

    async def test_a_swap_waits_for_whoever_counts_on_the_state(self, store: Store, other: Store) -> None:
        await begin(store, FIRST, NEXT)
        held, go = asyncio.Event(), asyncio.Event()
        order: list[str] = []

        async def count_on_it() -> None:
            async with other.begin() as tx:
                assert await other.projections.confirmed(tx, MODEL, NEXT.number) == "building"
                await other.projections.leave(tx, MODEL, NEXT.number, Effect("platform", "e1", "[]"))
                held.set()
                await go.wait()
                order.append("left")

        async def swapping() -> None:
            await held.wait()
            asyncio.get_running_loop().call_later(0.1, go.set)
            async with store.begin() as tx:
                assert await store.projections.swap(tx, NEXT, 60.0)
                order.append("swapped")
                assert len(await store.projections.left(MODEL, NEXT.number)) == 1
            assert await store.projections.generations()

        await asyncio.gather(count_on_it(), swapping())
        assert order == ["left", "swapped"]
        async with store.begin() as tx:
            assert await store.projections.confirmed(tx, MODEL, NEXT.number) == "live"
            assert await store.projections.confirmed(tx, MODEL, 99) is None

    async def test_one_that_is_kept_has_no_end(self, store: Store) -> None:
        await begin(store, FIRST, NEXT)
        assert await swap(store, NEXT, None)
        assert (await store.projections.generations())[0].drop_at is None
        await self.later(1e6)
        assert await store.projections.expired() == []

    async def test_a_model_without_a_generation_can_get_one_by_a_swap(self, store: Store) -> None:
        await begin(store, NEXT)
        assert await swap(store, NEXT, 60.0)
        assert [row.state for row in await store.projections.generations()] == ["live"]

    async def test_the_last_event_applied_is_noted_and_never_taken_back(self, store: Store) -> None:
        await begin(store, FIRST)
        await store.projections.note(MODEL, 1, 100.0, 110.0)
        await store.projections.note(MODEL, 1, 90.0, 105.0)
        (row,) = await store.projections.generations()
        assert (row.event_at, row.applied_at) == (100.0, 110.0)

    async def test_what_is_live_cannot_be_given_up(self, store: Store) -> None:
        await begin(store, FIRST, NEXT)
        assert not await store.projections.retire(MODEL, 1)
        assert not await store.projections.retire(MODEL, 3)
        assert await store.projections.retire(MODEL, 2)
        live, given_up = await store.projections.generations()
        assert (live.state, given_up.state) == ("live", "retired")
        assert given_up.drop_at == given_up.retired_at > 0

    async def test_what_a_group_has_seen_goes_with_its_generation(self, store: Store) -> None:
        gone, stays = "search.listings.g2", "search.listings"
        await begin(store, FIRST, NEXT)
        for consumer in (gone, stays):
            await store.inbox.register(consumer, "shop.orders", True)
            async with store.begin() as tx:
                await store.inbox.claim(tx, consumer, [entry(n, key=f"k{n}") for n in (1, 2, 3)])
                await store.inbox.claim(tx, consumer, [entry(None) for _ in range(3)])
                await store.held.hold(tx, msgspec.structs.replace(held(entry(9), "gap"), consumer=consumer))
        assert await store.projections.remove(MODEL, 2, gone, 2)  # it is not retired, so nothing happens
        assert await store.held.find(HeldFilter(consumer=gone))
        await store.projections.retire(MODEL, 2)
        rounds = 1
        while not await store.projections.remove(MODEL, 2, gone, 2):
            rounds += 1
        assert rounds > 1
        assert [row.number for row in await store.projections.generations()] == [1]
        assert not await store.held.find(HeldFilter(consumer=gone))
        assert await store.held.find(HeldFilter(consumer=stays))
        counts = await store.counts()
        assert {consumer for consumer, _ in counts.applied} == {stays}
        async with store.begin() as tx:
            assert await store.inbox.position_of(tx, gone, entry(1, key="k1")) is None
            assert await store.inbox.position_of(tx, stays, entry(1, key="k1")) is not None
        assert not await store.inbox.register(gone, "shop.orders", False)  # it was forgotten that it adopted

    async def test_streams_are_covered_up_to_the_version_that_they_have(self, store: Store) -> None:
        await begin(store, NEXT)
        await append(store, "room", "r1", 1, 2, 3)
        await append(store, "room", "r2", 1)
        await append(store, "guest", "g1", 1)
        assert await store.projections.extent(["room"]) == 4
        assert not await store.projections.cover(msgspec.structs.replace(NEXT, owner="you"), ["room"])
        assert await store.projections.cover(NEXT, ["room"])
        assert (await store.projections.generations())[0].phase == "closing"
        await append(store, "room", "r1", 4)
        await append(store, "room", "r3", 1)
        asked = [("t1", "room", name) for name in ("r1", "r2", "r3")]
        async with store.begin() as tx:
            await store.projections.turn_to(tx, "t1")
            covered = await store.projections.covered(tx, MODEL, 2, [*asked, ("t1", "guest", "g1")])
            assert dict(covered) == {("t1", "room", "r1"): 3, ("t1", "room", "r2"): 1}
            assert not await store.projections.covered(tx, MODEL, 1, asked)
            assert not await store.projections.covered(tx, MODEL, 2, [])


async def swap(store: Store, generation: Generation, drop_after: float | None) -> bool:
    async with store.begin() as tx:
        return await store.projections.swap(tx, generation, drop_after)


async def begin(store: Store, *generations: Generation) -> None:
    """Add generations."""
    for generation in generations:
        async with store.begin() as tx:
            assert await store.projections.begin(tx, generation)


async def append(store: Store, aggregate: str, stream: str, *versions: int) -> None:
    """Add events to a stream."""
    events = [StreamEvent("t1", aggregate, stream, version, new_id(), "a.b.done.v1", {}, b"{}") for version in versions]
    async with store.begin(tenant="t1") as tx:
        await store.streams.append(tx, events)
