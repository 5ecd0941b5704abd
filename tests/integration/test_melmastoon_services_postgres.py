"""The small services of Melmastoon on PostgreSQL: every unit test of theirs once more, on real databases, and what
happens when many come at once."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from types import ModuleType, TracebackType
from typing import Self, TypeVar

import pytest

from melmastoon.ai_orchestrator import ai_orchestrator
from melmastoon.analytics import analytics
from melmastoon.analytics.commands import compute_snapshot
from melmastoon.audit import audit
from melmastoon.audit.chain import first_broken
from melmastoon.facts.ai_orchestrator import AnomalyDetected
from melmastoon.tables import run, typed
from posthouse import Service
from posthouse.app import app_of
from posthouse.testing import Harness, rehost
from tests.kit.servers.postgres import PostgresServer
from tests.unit.melmastoon import (
    test_ai_orchestrator,
    test_analytics,
    test_audit,
    test_bff_tenant_booking,
    test_file,
    test_iam,
    test_maintenance,
    test_notification,
    test_property,
    test_search_aggregation,
    test_staff,
    test_sync,
    test_tenant,
    test_theme,
)
from tests.unit.melmastoon.samples import cancelled, captured, committed, confirmed, guest, held, released
from tests.unit.melmastoon.test_notification import outside

MODULES = (
    test_ai_orchestrator,
    test_analytics,
    test_audit,
    test_bff_tenant_booking,
    test_file,
    test_iam,
    test_maintenance,
    test_notification,
    test_property,
    test_search_aggregation,
    test_staff,
    test_sync,
    test_tenant,
    test_theme,
)
__all__ = ["outside"]

T = TypeVar("T")

SAME_STATEMENTS = {
    "test_however_the_carrier_behaves_a_message_is_carried_once",
    "test_the_order_of_facts_makes_no_difference",
    "test_a_house_is_listed_once_it_has_a_name_a_room_and_a_price_whichever_comes_first",
    "test_whoever_changes_an_entry_breaks_the_chain_there",
    "test_what_is_infected_is_never_given_out",
}
"""Tests of many cases that send no statement to the database which others do not send."""

TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"


Copied = Callable[[], AbstractContextManager[str]]
"""Makes databases that are up to date already: copies of one that was made so."""


class PostgresHarness(Harness):
    """The harness, with a database for each service."""

    def __init__(self, copied: Copied, *services: Service) -> None:
        super().__init__(*services)
        self._make = copied
        self._databases = ExitStack()

    async def __aenter__(self) -> Self:
        try:
            for service in self.services:
                url = self._databases.enter_context(self._make())
                secrets = self._under_own_keys(app_of(service).opened.secrets)
                self._before.append(rehost(service, store=url, broker=self.broker, clock=self.clock, secrets=secrets))
                self._runtimes.append(await app_of(service).opened.prepare())
        except BaseException:
            await self._restore()
            raise
        self._tasks = [asyncio.create_task(runtime.run(self._stop)) for runtime in self._runtimes]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._databases:
            await super().__aexit__(kind, error, trace)

    async def everything(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for service in self.services:
            async with app_of(service).store.begin() as tx:
                for (name,) in await tx.execute(TABLES):
                    found[f"{service.name}.{name}"] = sorted(map(repr, await tx.execute(f'SELECT * FROM "{name}"')))
            counts = await app_of(service).store.counts()
            found[f"what {service.name} published"] = counts.committed
            found[f"what {service.name} holds"] = counts.held
        assert found
        return found


@pytest.fixture(scope="session")
def databases(postgres_server: PostgresServer, postgres_patterns: Callable[[str], str]) -> Copied:
    return partial(postgres_server.copied, postgres_patterns("posthouse"))


@pytest.fixture(autouse=True)
def _on_postgresql(request: pytest.FixtureRequest, databases: Copied, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests stay where they are; what they call Harness is another one meanwhile."""
    where = request.function.__globals__
    if where is not globals():
        monkeypatch.setitem(where, "Harness", partial(PostgresHarness, databases))


def _borrowed(module: ModuleType) -> Iterator[tuple[str, object]]:
    """The tests of a module that touch a store."""
    for name, test in vars(module).items():
        touches = inspect.iscoroutinefunction(test) and "Harness" in inspect.getsource(test)
        if name.startswith("test_") and touches and name not in SAME_STATEMENTS:
            yield f"{name}__{module.__name__.rpartition('.')[2]}", test


for _module in MODULES:
    globals().update(_borrowed(_module))


async def test_of_two_bookings_of_one_guest_that_come_at_once_one_sees_the_other(databases: Copied) -> None:
    pairs = range(15)
    async with PostgresHarness(databases, ai_orchestrator) as house:
        await asyncio.gather(
            *(
                house.publish(confirmed(f"b{pair}{side}", who=guest(email=f"g{pair}@example.org")))
                for pair in pairs
                for side in "xy"
            )
        )
        await house.settled(60)
        found = [{e.data.booking_id, e.data.other_booking_id} for e in await house.published(AnomalyDetected)]
        assert sorted(map(sorted, found)) == sorted([f"b{pair}x", f"b{pair}y"] for pair in pairs)


async def test_a_chain_that_many_write_at_once_has_no_gap_and_no_fork(databases: Copied) -> None:
    async with PostgresHarness(databases, audit) as house:
        facts = (held, confirmed, cancelled, captured, committed, released)
        await asyncio.gather(*(house.publish(fact(f"b{number}")) for number in range(20) for fact in facts))
        await house.settled(60)
        announced = 2 * 20  # what was captured is kept cold, and what was cancelled is announced
        async with audit.transaction("t1") as tx:
            rows = await run(tx, "SELECT position FROM audit_entry WHERE tenant = ? ORDER BY position", "t1")
            assert typed(rows, tuple[int]) == [(n,) for n in range(1, 20 * len(facts) + announced + 1)]
            assert await first_broken(tx) is None


async def test_figures_that_many_add_to_at_once_are_whole(databases: Copied) -> None:
    async with PostgresHarness(databases, analytics) as house:
        await asyncio.gather(*(house.publish(fact(f"b{n}")) for n in range(30) for fact in (held, captured)))
        await house.settled(60)
        async with analytics.transaction("t1") as tx:
            snapshot = await compute_snapshot(tx, tx.today)
    assert snapshot is not None
    assert (snapshot.held, snapshot.captured_cents, snapshot.revision) == (30, 30 * 30_000, 60)
