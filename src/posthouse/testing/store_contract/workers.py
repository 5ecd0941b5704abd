"""What a store promises about who runs."""

from __future__ import annotations

import msgspec

from posthouse.store import Store, Worker
from posthouse.testing.store_contract.fixtures import StoreFixtures


def worker(id: str, services: str = "orders", pid: int = 1) -> Worker:
    return Worker(
        id=id,
        services=services.split(", "),
        name=f"desk-{pid}",
        host="desk",
        pid=pid,
        version="1.0",
        commit="abc",
        parts=("relay", "timers"),
        consumers=("billing", "orders"),
        releases={"orders.stay": "abc", "orders.order": "def"},
        aside={"orders.stay": "unfit"},
    )


class WorkerContract(StoreFixtures):
    """What `WorkerTable` promises."""

    async def test_a_worker_has_one_row_that_others_read(self, store: Store, other: Store) -> None:
        ours = worker("a", "billing, orders", 7)
        await store.workers.beat(ours, keep=60.0)
        await self.later(2.0)
        await store.workers.beat(ours, keep=60.0)
        (found,) = await other.workers.read()
        assert (
            msgspec.structs.replace(
                found,
                since=0.0,
                age=0.0,
                parts=tuple(found.parts),
                consumers=tuple(found.consumers),
            )
            == ours
        )
        assert 2.0 <= found.since < 30
        assert 0.0 <= found.age < 2.0

    async def test_they_are_sorted_and_each_start_is_one_of_its_own(self, store: Store) -> None:
        for id, services, pid in (("c", "orders", 2), ("b", "orders", 1), ("a", "orders", 2), ("d", "billing", 9)):
            await store.workers.beat(worker(id, services, pid), keep=60.0)
            await self.later(0.01)
        assert [found.id for found in await store.workers.read()] == ["d", "b", "c", "a"]

    async def test_each_sign_of_life_says_who_stands_aside(self, store: Store) -> None:
        await store.workers.beat(worker("a"), keep=60.0)
        await store.workers.beat(msgspec.structs.replace(worker("a"), aside={}), keep=60.0)
        assert [(found.releases["orders.stay"], found.aside) for found in await store.workers.read()] == [("abc", {})]

    async def test_figures_stay_until_others_come(self, store: Store) -> None:
        await store.workers.beat(worker("a"), keep=60.0)
        assert [found.figures for found in await store.workers.read()] == [b"[]"]
        await store.workers.beat(worker("a"), keep=60.0, figures=b"[1]")
        await store.workers.beat(worker("a"), keep=60.0)
        assert [found.figures for found in await store.workers.read()] == [b"[1]"]

    async def test_who_stops_in_good_order_says_so(self, store: Store) -> None:
        await store.workers.beat(worker("a"), keep=60.0)
        await store.workers.beat(worker("b"), keep=60.0)
        await store.workers.beat(worker("a"), keep=60.0, stopped=True)
        assert {found.id: found.stopped for found in await store.workers.read()} == {"a": True, "b": False}

    async def test_who_is_gone_is_forgotten(self, store: Store) -> None:
        await store.workers.beat(worker("gone"), keep=2.0)
        await self.later(3.0)
        assert [found.id for found in await store.workers.read() if found.age > 2.0] == ["gone"]
        await store.workers.beat(worker("here"), keep=2.0)
        assert [found.id for found in await store.workers.read()] == ["here"]
