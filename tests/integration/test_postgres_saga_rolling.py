"""Two releases of a saga, rolled forth and back in processes of their own while orders come in: nothing is lost or skipped."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from posthouse.app import App
from posthouse.store import HeldFilter
from posthouse.store.sagas import ENDED, SagaFilter
from posthouse.stores.postgres import PostgresStore
from tests.integration.saga_release_member import TILL, Insured, Paid, Placed, Refused, Shipped, release
from tests.kit.waiting import eventually

EACH = 30
"""Orders in each part of the roll."""
IN_TIME = {"begin", "paid", "insured", "shipped"}


@asynccontextmanager
async def process(number: int, url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of a release, until it is told to end."""
    member = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.saga_release_member", str(number),
        env={**os.environ, "POSTHOUSE_STORE": url, "POSTHOUSE_BROKER": url},
    )  # fmt: skip
    try:
        yield member
        assert member.returncode is None, "it ended by itself"
    finally:
        if member.returncode is None:
            member.terminate()
        assert await member.wait() == 0


class Desk:
    """What the test looks at, and says."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.releases = {number: release(number).declared.saga_types["order"] for number in (1, 2)}
        self._number = itertools.count()

    async def runs(self, number: int, processes: int) -> bool:
        """Whether so many processes of a release run the saga, and none of the other."""
        leading = Counter(
            one.releases["shop.order"] for one in await self.store.workers.read() if not one.stopped and not one.aside
        )
        return leading == {self.releases[number].release: processes}

    async def orders(self, *, end: bool = True) -> list[str]:
        """Orders, of which every third is refused; without an end, they wait for it."""
        ids = [f"o{next(self._number)}" for _ in range(EACH)]
        for id in ids:
            async with TILL.transaction("t1") as tx:
                for payload in (Placed(order_id=id), Paid(order_id=id), Insured(order_id=id)):
                    tx.publish(payload)
            if end:
                await self.end(id)
        return ids

    async def end(self, id: str) -> None:
        async with TILL.transaction("t1") as tx:
            tx.publish(Refused(order_id=id) if int(id[1:]) % 3 == 0 else Shipped(order_id=id))

    async def ended(self, ids: list[str]) -> bool:
        rows = {row.id: row for row in await self.store.sagas.find(SagaFilter(saga="order"), limit=10_000)}
        return all(id in rows and rows[id].status in ENDED for id in ids)

    async def steps_ever_done(self, id: str) -> list[str]:
        return [step for turn in await self.store.sagas.history("order", "t1", id) for step in turn.steps_done]


async def test_releases_are_rolled_forth_and_back_under_load(postgres_url: str, tmp_path: Path) -> None:
    """About 15 s: real processes, each of which looks once a second who else runs."""
    store = PostgresStore(postgres_url)
    await store.upgrade()
    App(TILL, store=f"sqlite:///{tmp_path}/till.db", broker=postgres_url)
    desk = Desk(store)
    async with TILL.running(), AsyncExitStack() as first, AsyncExitStack() as second:
        for _ in range(2):
            await first.enter_async_context(process(1, postgres_url))
        await until(lambda: desk.runs(1, 2))
        before = await desk.orders()

        # Forth: one process of the second release beside two of the first, then two beside one.
        rolling = asyncio.create_task(desk.orders())
        await second.enter_async_context(process(2, postgres_url))
        await until(lambda: desk.runs(2, 1))
        beside = [*await desk.orders(), *(waiting := await desk.orders(end=False))]
        await until(lambda: packed(desk, waiting))
        during = await rolling

        # Back: the steps that only the second release knows are done, so the first lets the sagas be, and all events wait.
        await second.aclose()
        back = await desk.orders()
        assert not await desk.ended(waiting)

        # Forth again, for good.
        async with process(2, postgres_url), process(2, postgres_url):
            await first.aclose()
            for id in waiting:
                await desk.end(id)
            await until(lambda: desk.ended([*before, *during, *beside, *back]))
            assert await desk.runs(2, 2)

        assert len(before + during + beside + back) == 5 * EACH
        await check(desk, store, knows_insurance={*beside, *back})
    await store.aclose()


async def check(desk: Desk, store: PostgresStore, *, knows_insurance: set[str]) -> None:
    """No money kept without goods, none given back twice, and nothing that only the second release takes was passed over."""
    assert await store.held.find(HeldFilter()) == []
    rows = await store.sagas.find(SagaFilter(saga="order"), limit=10_000)
    assert len(rows) == 5 * EACH
    for row in rows:
        history = await store.sagas.history("order", "t1", row.id)
        done = Counter(step for turn in history for step in turn.steps_done)
        said = Counter(said.type.split(".", 1)[1] for turn in history for said in turn.published)
        refused = int(row.id[1:]) % 3 == 0
        assert row.status == ("compensated" if refused else "completed"), row
        assert done["paid"] == 1
        assert said["order.refunded.v1"] == (1 if refused else 0)
        assert done["insured"] == done["pack"] == said["order.packed.v1"]
        assert said["insurance.cancelled.v1"] == (done["insured"] if refused else 0)
        if row.id in knows_insurance:
            assert done["insured"] == 1, row.id
        saga = desk.releases[2].decode(row.state, row.id)
        assert getattr(saga, "score") == sum(done[step] for step in IN_TIME)  # noqa: B009
        assert bool(getattr(saga, "insured_by")) == bool(done["insured"])  # noqa: B009


async def packed(desk: Desk, ids: list[str]) -> bool:
    return all(["pack" in await desk.steps_ever_done(id) for id in ids])


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    await eventually(look, within=60.0, pause=0.1)
