"""Who used which version is remembered from first to last."""

from __future__ import annotations

import asyncio

from posthouse.store import Store, VersionUse
from posthouse.testing.store_contract.fixtures import StoreFixtures


class VersionUsageContract(StoreFixtures):
    """What `VersionUsageTable` promises."""

    async def test_a_use_is_remembered_from_first_to_last(self, store: Store, other: Store) -> None:
        await store.version_usage.note([VersionUse("applied", "billing", "a.b.done.v1", 20.0, 30.0)])
        await other.version_usage.note([VersionUse("applied", "billing", "a.b.done.v1", 25.0, 40.0)])
        assert await store.version_usage.seen() == [VersionUse("applied", "billing", "a.b.done.v1", 20.0, 40.0)]

    async def test_a_process_with_an_older_note_takes_nothing_back(self, store: Store) -> None:
        await store.version_usage.note([VersionUse("published", "orders", "a.b.done.v1", 20.0, 40.0)])
        await store.version_usage.note([VersionUse("published", "orders", "a.b.done.v1", 10.0, 15.0)])
        assert await store.version_usage.seen() == [VersionUse("published", "orders", "a.b.done.v1", 10.0, 40.0)]

    async def test_a_note_goes_by_the_clock_of_the_store_not_by_that_of_who_notes(self, store: Store) -> None:
        now = self.clock.now()
        await store.version_usage.note(
            [VersionUse("published", "orders", "a.b.done.v1", now - 7_020, now - 7_010)], now - 7_000
        )
        await store.version_usage.note(
            [VersionUse("published", "orders", "a.b.done.v1", now + 6_985, now + 6_995)], now + 7_000
        )
        assert await store.version_usage.seen() == [VersionUse("published", "orders", "a.b.done.v1", now - 20, now - 5)]

    async def test_uses_are_told_apart_by_role_party_and_subject(self, store: Store) -> None:
        notes = [
            VersionUse("applied", "billing", "a.b.done.v1", 1.0, 1.0),
            VersionUse("applied", "billing", "a.b.done.v2", 2.0, 2.0),
            VersionUse("applied", "billing.post", "a.b.done.v1", 3.0, 3.0),
            VersionUse("published", "billing", "a.b.done.v1", 4.0, 4.0),
            VersionUse("running", "billing", "", 5.0, 5.0),
        ]
        await store.version_usage.note(list(reversed(notes)))
        assert await store.version_usage.seen() == notes

    async def test_processes_that_note_the_same_at_once_do_not_hinder_each_other(
        self, store: Store, other: Store
    ) -> None:
        notes = [VersionUse("applied", "c", f"a.b.done.v{number}", 1.0, 1.0) for number in range(1, 21)]
        both = (store, other)
        await asyncio.gather(*(both[n % 2].version_usage.note(notes[:: 1 if n % 4 < 2 else -1]) for n in range(12)))
        assert {seen.subject for seen in await store.version_usage.seen()} == {note.subject for note in notes}
