"""Who used which version is remembered from first to last."""

from __future__ import annotations

import asyncio

from posthouse.store import Sighting, Store
from posthouse.testing.store_contract.fixtures import StoreFixtures


class SightingContract(StoreFixtures):
    """What `SightingTable` promises."""

    async def test_a_use_is_remembered_from_first_to_last(self, store: Store, other: Store) -> None:
        await store.sightings.note([Sighting("applied", "billing", "a.b.done.v1", 20.0, 30.0)])
        await other.sightings.note([Sighting("applied", "billing", "a.b.done.v1", 25.0, 40.0)])
        assert await store.sightings.seen() == [Sighting("applied", "billing", "a.b.done.v1", 20.0, 40.0)]

    async def test_a_process_with_an_older_note_takes_nothing_back(self, store: Store) -> None:
        await store.sightings.note([Sighting("published", "orders", "a.b.done.v1", 20.0, 40.0)])
        await store.sightings.note([Sighting("published", "orders", "a.b.done.v1", 10.0, 15.0)])
        assert await store.sightings.seen() == [Sighting("published", "orders", "a.b.done.v1", 10.0, 40.0)]

    async def test_a_note_goes_by_the_clock_of_the_store_not_by_that_of_who_notes(self, store: Store) -> None:
        now = self.clock.now()
        await store.sightings.note(
            [Sighting("published", "orders", "a.b.done.v1", now - 7_020, now - 7_010)], now - 7_000
        )
        await store.sightings.note(
            [Sighting("published", "orders", "a.b.done.v1", now + 6_985, now + 6_995)], now + 7_000
        )
        assert await store.sightings.seen() == [Sighting("published", "orders", "a.b.done.v1", now - 20, now - 5)]

    async def test_uses_are_told_apart_by_role_party_and_subject(self, store: Store) -> None:
        notes = [
            Sighting("applied", "billing", "a.b.done.v1", 1.0, 1.0),
            Sighting("applied", "billing", "a.b.done.v2", 2.0, 2.0),
            Sighting("applied", "billing.post", "a.b.done.v1", 3.0, 3.0),
            Sighting("published", "billing", "a.b.done.v1", 4.0, 4.0),
            Sighting("running", "billing", "", 5.0, 5.0),
        ]
        await store.sightings.note(list(reversed(notes)))
        assert await store.sightings.seen() == notes

    async def test_processes_that_note_the_same_at_once_do_not_hinder_each_other(
        self, store: Store, other: Store
    ) -> None:
        notes = [Sighting("applied", "c", f"a.b.done.v{number}", 1.0, 1.0) for number in range(1, 21)]
        both = (store, other)
        await asyncio.gather(*(both[n % 2].sightings.note(notes[:: 1 if n % 4 < 2 else -1]) for n in range(12)))
        assert {seen.subject for seen in await store.sightings.seen()} == {note.subject for note in notes}
