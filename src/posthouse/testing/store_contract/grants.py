"""What a store promises about grants."""

from __future__ import annotations

import asyncio

import msgspec

from posthouse.clock import new_id
from posthouse.store import Grant, Scope, Store
from posthouse.testing.store_contract.fixtures import StoreFixtures


def a_grant(service: str = "orders", most: int = 10, rate: float = 1_000.0) -> Grant:
    """One as somebody asked for it."""
    return Grant(
        id=new_id(),
        service=service,
        verb="replay",
        scope=Scope(consumer="billing", tenant="t1", since=1_700_000_000.5),
        why="ticket 7",
        asked_by="ada",
        asked_as="console:ada",
        minutes=30,
        most=most,
        rate=rate,
    )


class GrantContract(StoreFixtures):
    """What `GrantTable` promises."""

    async def test_a_grant_is_read_as_it_was_asked_for(self, store: Store, other: Store) -> None:
        grant = await asked(store, a_grant())
        found = await other.grants.get(grant.id)
        assert found is not None
        assert found.asked_at > 0
        assert msgspec.structs.replace(found, asked_at=0.0) == grant
        assert found.state == "asked"
        assert await other.grants.draw(grant.id, 1) is None
        assert await other.grants.get("none") is None

    async def test_nobody_approves_their_own_under_any_spelling_or_name(self, store: Store) -> None:
        grant = await asked(store, a_grant())
        assert not await approved(store, grant, "ada", "console:somebody")
        assert not await approved(store, grant, "ADA", "console:somebody")
        assert not await approved(store, grant, "grace", "console:ada")
        assert await approved(store, grant, "grace", "console:grace")
        found = await store.grants.get(grant.id)
        assert found is not None
        assert (found.approved_by, found.state) == ("grace", "running")

    async def test_of_two_approvals_at_once_one_counts(self, store: Store, other: Store) -> None:
        grant = await asked(store, a_grant())
        both = await asyncio.gather(
            approved(store, grant, "grace", "console:grace"), approved(other, grant, "joan", "console:joan")
        )
        assert sorted(both) == [False, True]

    async def test_it_ends_by_the_clock_of_the_store(self, store: Store, other: Store) -> None:
        grant = await asked(store, msgspec.structs.replace(a_grant(), minutes=1))
        assert await approved(store, grant, "grace", "console:grace")
        assert await other.grants.draw(grant.id, 1) is not None
        assert [one.id for one in await store.grants.find(["orders"], running=True)] == [grant.id]
        await self.later(61.0)
        assert await other.grants.draw(grant.id, 1) is None
        assert await store.grants.find(["orders"], running=True) == []
        found = await store.grants.get(grant.id)
        assert found is not None
        assert found.state == "expired"

    async def test_no_more_is_drawn_than_it_is_for_whoever_draws(self, store: Store, other: Store) -> None:
        grant = await asked(store, a_grant(most=10))
        await approved(store, grant, "grace", "console:grace")
        drawn = await asyncio.gather(*((store, other)[n % 2].grants.draw(grant.id, 3) for n in range(6)))
        assert sorted(one.events for one in drawn if one is not None) == [1, 3, 3, 3]
        found = await store.grants.get(grant.id)
        assert found is not None
        assert (found.used, found.state) == (10, "spent")

    async def test_all_who_draw_keep_one_pace(self, store: Store, other: Store) -> None:
        grant = await asked(store, a_grant(most=1_000, rate=2.0))
        await approved(store, grant, "grace", "console:grace")
        first, second, third = [await place.grants.draw(grant.id, 4) for place in (store, other, store)]
        assert first is not None
        assert second is not None
        assert third is not None
        assert first.wait == 0.0
        assert 1.0 < second.wait <= 2.0
        assert 3.0 < third.wait <= 4.0

    async def test_a_revoked_one_is_over_at_once_and_cannot_be_approved(self, store: Store, other: Store) -> None:
        grant = await asked(store, a_grant())
        await approved(store, grant, "grace", "console:grace")
        assert await revoked(other, grant)
        assert not await revoked(store, grant)
        assert await store.grants.draw(grant.id, 1) is None
        early = await asked(store, a_grant())
        assert await revoked(store, early)
        assert not await approved(store, early, "grace", "console:grace")

    async def test_what_is_over_is_forgotten_and_what_runs_is_not(self, store: Store) -> None:
        over, runs = await asked(store, a_grant()), await asked(store, msgspec.structs.replace(a_grant(), minutes=60))
        await self.later(10.0)
        await approved(store, runs, "grace", "console:grace")
        assert await store.grants.purge(5.0, 10) == 1
        assert await store.grants.get(over.id) is None
        assert await store.grants.get(runs.id) is not None


async def asked(store: Store, grant: Grant) -> Grant:
    """It is in the table."""
    async with store.begin() as tx:
        await store.grants.add(tx, grant)
    return grant


async def approved(store: Store, grant: Grant, by: str, known_as: str) -> bool:
    """Whether it was approved by them."""
    async with store.begin() as tx:
        return await store.grants.approve(tx, grant.id, by, known_as)


async def revoked(store: Store, grant: Grant) -> bool:
    """Whether it was revoked."""
    async with store.begin() as tx:
        return await store.grants.revoke(tx, grant.id, "grace")
