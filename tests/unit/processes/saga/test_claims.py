"""Claims to run a saga, one look at a time: whoever cannot run it keeps nobody from running it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from posthouse.clock import ManualClock
from posthouse.errors import StoreUnavailable
from posthouse.heartbeat import SILENT
from posthouse.processes.saga.precedence import Precedence, appear
from posthouse.store import Store, Worker
from posthouse.store.workers import Aside
from posthouse.stores import open_store

ORDER = "shop.order"


class Member:
    """A process with one release of the saga, which looks when it is told to."""

    def __init__(self, store: Store, clock: ManualClock, release: str) -> None:
        self.reasons: Sequence[str] | Exception = ()
        self._store = store
        self._precedence = Precedence(store, clock, {ORDER: release}, self._compare, SILENT)
        self._worker = Worker(
            id=release, services=["shop"], name=release, host="h", pid=1, version="1", parts=["consumers"],
            consumers=[ORDER], releases={ORDER: release}, aside={ORDER: "waits"},
        )  # fmt: skip

    async def _compare(self, consumer: str) -> Sequence[str]:
        if isinstance(self.reasons, Exception):
            raise self.reasons
        return self.reasons

    async def _beat(self, aside: Mapping[str, Aside]) -> None:
        self._worker = msgspec.structs.replace(self._worker, aside=aside)
        await self._store.workers.beat(self._worker, keep=60.0)

    async def look(self) -> str:
        """What it says of itself afterwards."""
        await self._precedence.look(self._worker.id, self._beat)
        return self._worker.aside.get(ORDER, "runs")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = open_store(f"sqlite:///{tmp_path}/store.db", clock=ManualClock(1_000.0))
    await store.upgrade()
    yield store
    await store.aclose()


@pytest.mark.parametrize("trouble", [["the deadline 'forgotten' is armed"], StoreUnavailable("it took too long")])
async def test_a_later_release_that_stopped_fitting_while_it_took_over_gives_up_its_claim(
    store: Store, trouble: Sequence[str] | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(1_000.0)
    one, two = Member(store, clock, "one"), Member(store, clock, "two")
    await appear(store, {ORDER: "one"}, 1.0)
    assert [await one.look(), await one.look()] == ["runs", "runs"]
    await appear(store, {ORDER: "two"}, 2.0)
    assert await two.look() == "waits"
    await one.look()  # it notices, stands aside, …
    assert await one.look() == "later"  # … and says so
    two.reasons = trouble  # for what the earlier one had in flight until then
    assert await two.look() == "unfit"
    assert "shop.order is left alone until a release runs that can go on" in caplog.text
    assert [await one.look(), await one.look()] == ["runs", "runs"]
    assert await two.look() == "unfit"
    two.reasons = ()
    clock.advance(5.0)
    assert await two.look() == "waits"
    await one.look()
    assert await one.look() == "later"
    assert [await two.look(), await two.look()] == ["runs", "runs"]
