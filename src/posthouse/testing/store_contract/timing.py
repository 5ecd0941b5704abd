"""What a store promises about what was timed."""

from __future__ import annotations

from posthouse.store import Store
from posthouse.testing.store_contract.fixtures import StoreFixtures


class TimingContract(StoreFixtures):
    """What `TimingTable` promises."""

    async def test_a_process_has_one_row_that_others_read(self, store: Store, other: Store) -> None:
        await store.timing.write("orders", "b-2", b"[1]", keep=60.0)
        await store.timing.write("orders", "b-2", b"[2]", keep=60.0)
        await store.timing.write("orders", "a-1", b"[3]", keep=60.0)
        await other.timing.write("billing", "b-2", b"[4]", keep=60.0)
        found = await other.timing.read()
        assert [(row.service, row.process, row.figures) for row in found] == [
            ("billing", "b-2", b"[4]"),
            ("orders", "a-1", b"[3]"),
            ("orders", "b-2", b"[2]"),
        ]
        assert all(0 <= row.age < 30 for row in found)

    async def test_what_a_process_wrote_that_is_gone_is_forgotten(self, store: Store) -> None:
        await store.timing.write("orders", "gone", b"[]", keep=2.0)
        await self.later(3.0)
        assert [row.process for row in await store.timing.read() if row.age > 2.0] == ["gone"]
        await store.timing.write("orders", "here", b"[]", keep=2.0)
        assert [row.process for row in await store.timing.read()] == ["here"]
