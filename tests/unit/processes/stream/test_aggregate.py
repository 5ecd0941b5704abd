"""An aggregate loads, decides and appends; what it appends is published in its order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from posthouse import App, Event, Payload, Policy, Service, Tx
from posthouse.app import app_of
from posthouse.errors import ConfigurationError, ContractError, VersionConflict
from posthouse.processes import Conflicts, Loaded
from posthouse.processes.stream import STREAM_VERSION
from posthouse.testing import Harness
from tests.unit.processes.stream.folios import (
    Billing,
    Charged,
    Closed,
    Folio,
    FolioClosed,
    FolioOpened,
    charging,
    opening,
)


@pytest_asyncio.fixture
async def billing() -> AsyncIterator[Billing]:
    billing = Billing()
    yield billing
    await billing.service.aclose()


async def unsent(service: Service) -> int:
    return sum((await app_of(service).store.counts()).unsent.values())


# Loading and appending.


async def test_a_thing_to_which_nothing_happened_has_the_initial_state_at_version_0(billing: Billing) -> None:
    async with billing.service.transaction("t1") as tx:
        assert await billing.folios.load(tx, "f1") == Loaded(Folio(), 0)


async def test_what_is_appended_is_what_is_loaded(billing: Billing) -> None:
    async with billing.service.transaction("t1") as tx:
        version = await billing.folios.append(tx, "f1", [FolioOpened("f1", "Ann"), Charged("f1", 5)], expected="new")
        assert version == 2
        assert await billing.folios.append(tx, "f1", [Charged("f1", 7)], expected=2) == 3
    async with billing.service.transaction("t1") as tx:
        loaded = await billing.folios.load(tx, "f1")
        events = await billing.folios.history(tx, "f1", after=1)
    assert loaded == Loaded(Folio("Ann", 12, (5, 7), open=True), 3)
    assert [event.data for event in events] == [Charged("f1", 5), Charged("f1", 7)]
    assert [event.key for event in events] == ["f1", "f1"]


async def test_streams_of_tenants_and_things_are_apart(billing: Billing) -> None:
    await billing.folios.execute("f1", opening, tenant="t1")
    for tenant, id in (("t2", "f1"), ("t1", "f2")):
        async with billing.service.transaction(tenant) as tx:
            assert (await billing.folios.load(tx, id)).version == 0


async def test_a_stream_longer_than_a_page_is_loaded_to_its_end(
    billing: Billing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posthouse.processes.stream.aggregate.PAGE", 3)
    async with billing.service.transaction("t1") as tx:
        await billing.folios.append(tx, "f1", [Charged("f1", 1)] * 9, expected="new")
        assert await billing.folios.load(tx, "f1") == Loaded(Folio("", 9, (1,) * 9), 9)
        assert len(await billing.folios.history(tx, "f1", after=2)) == 7


@pytest.mark.parametrize("expected", ["new", 1, 3])
async def test_a_stream_that_is_elsewhere_is_a_conflict_and_nothing_is_said(
    billing: Billing, expected: int | str
) -> None:
    await billing.folios.execute("f1", lambda folio: [FolioOpened("f1", "Ann"), Charged("f1", 5)], tenant="t1")
    before = await unsent(billing.service)
    async with billing.service.transaction("t1") as tx:
        with pytest.raises(VersionConflict, match=r"folio 'f1' of tenant 't1' is at version 2") as raised:
            await billing.folios.append(tx, "f1", [Charged("f1", 1)], expected=expected)  # type: ignore[arg-type]  # parametrized
        assert raised.value.found == 2
    assert await unsent(billing.service) == before


async def test_any_version_will_do_where_the_order_of_two_facts_does_not_matter(billing: Billing) -> None:
    async with billing.service.transaction("t1") as tx:
        assert await billing.folios.append(tx, "f1", [Charged("f1", 1)], expected="any") == 1
        assert await billing.folios.append(tx, "f1", [Charged("f1", 2)], expected="any") == 2
    async with billing.service.transaction("t1") as tx:
        versions = [event.extensions[STREAM_VERSION] for event in await billing.folios.history(tx, "f1")]
    assert versions == ["1", "2"]


async def test_an_event_of_another_thing_or_of_no_declared_type_is_refused(billing: Billing) -> None:
    @billing.service.event("folio.printed.v1", key="folio_id")
    class Printed(Payload):
        folio_id: str

    async with billing.service.transaction("t1") as tx:
        with pytest.raises(ContractError, match=r"this billing\.folio\.charged\.v1 has the key 'f2'"):
            await billing.folios.append(tx, "f1", [Charged("f1", 1), Charged("f2", 1)], expected="new")
        with pytest.raises(ContractError, match=r"billing\.folio\.printed\.v1 is none of its events"):
            await billing.folios.append(tx, "f1", [Printed("f1")], expected="new")  # type: ignore[list-item]  # the mistake
        with pytest.raises(ConfigurationError, match="needs an id"):
            await billing.folios.load(tx, "")
        assert (await billing.folios.load(tx, "f1")).version == 0
    assert await unsent(billing.service) == 0


# Deciding.


async def test_a_decision_sees_the_state_and_what_it_comes_to_happens(billing: Billing) -> None:
    assert await billing.folios.execute("f1", opening, tenant="t1") == Folio("Ann", open=True)
    assert (await billing.folios.execute("f1", charging(30), tenant="t1")).cents == 30
    assert (
        await billing.folios.execute("f1", lambda _: [Charged("f1", 1), FolioClosed("f1")], tenant="t1")
    ).cents == 31
    with pytest.raises(Closed):
        await billing.folios.execute("f1", charging(1), tenant="t1")
    async with billing.service.transaction("t1") as tx:
        assert (await billing.folios.load(tx, "f1")).version == 4


@pytest.mark.parametrize("nothing", [None, (), []])
async def test_a_decision_for_nothing_writes_nothing(billing: Billing, nothing: Sequence[Charged] | None) -> None:
    assert await billing.folios.execute("f1", lambda folio: nothing, tenant="t1") == Folio()
    assert await unsent(billing.service) == 0


async def test_a_decision_that_would_wait_for_something_is_refused(billing: Billing) -> None:
    async def slow(folio: Folio) -> Charged:
        raise AssertionError("it must not be run")

    with pytest.raises(ConfigurationError, match=r"slow is asynchronous: a decision looks at nothing but the state"):
        await billing.folios.execute("f1", slow, tenant="t1")  # type: ignore[arg-type]  # the mistake


async def test_an_error_of_evolve_says_where_it_was(billing: Billing) -> None:
    def failing(folio: Folio, event: object) -> Folio:
        raise ZeroDivisionError

    await billing.folios.execute("f1", opening, tenant="t1")
    billing.folios.evolve = failing
    async with billing.service.transaction("t1") as tx:
        with pytest.raises(ZeroDivisionError) as raised:
            await billing.folios.load(tx, "f1")
    assert raised.value.__notes__ == [
        "while folio 'f1' of tenant 't1' was loaded, at version 1, billing.folio.opened.v1"
    ]


# An append is a publish.


async def test_each_event_is_published_in_the_order_of_its_stream_with_its_version() -> None:
    billing = Billing()
    heard: list[tuple[object, object]] = []

    @billing.service.on(FolioOpened, Charged, FolioClosed)
    async def listen(event: Event[Payload]) -> None:
        heard.append((event.data, event.extensions[STREAM_VERSION]))

    async with Harness(billing.service) as harness:
        await billing.folios.execute("f1", opening, correlation="request 1", tenant="t1")
        async with billing.service.transaction("t1") as tx:
            for cents in (1, 2):
                await billing.folios.decide(tx, "f1", charging(cents))
            await billing.folios.append(tx, "f1", [FolioClosed("f1")], expected=3)
        await harness.settled()
    assert heard == [
        (FolioOpened("f1", "Ann"), "1"),
        (Charged("f1", 1), "2"),
        (Charged("f1", 2), "3"),
        (FolioClosed("f1"), "4"),
    ]


async def test_a_rolled_back_append_was_never_said(billing: Billing) -> None:
    with contextlib.suppress(ZeroDivisionError):
        async with billing.service.transaction("t1") as tx:
            await billing.folios.decide(tx, "f1", opening)
            raise ZeroDivisionError
    async with billing.service.transaction("t1") as tx:
        assert (await billing.folios.load(tx, "f1")).version == 0
    assert await unsent(billing.service) == 0


async def test_the_stored_event_is_the_published_one(billing: Billing) -> None:
    await billing.folios.execute("f1", opening, correlation="request 1", tenant="t1")
    (stored,) = (await app_of(billing.service).store.streams.read_all()).events
    shards = await app_of(billing.service).store.outbox.lease("me", 10)
    (published,) = (await app_of(billing.service).store.outbox.poll(shards, 10)).rows
    assert (stored.event_id, stored.headers, stored.body) == (published.event_id, published.headers, published.body)
    assert (stored.name.id, stored.version, stored.type) == ("f1", 1, "billing.folio.opened.v1")


async def test_an_older_version_that_is_published_beside_is_not_in_the_stream() -> None:
    service = Service("billing")
    App(service, store="sqlite://", broker="memory://")

    @service.event("folio.charged.v1", key="folio_id")
    class V1(Payload):
        folio_id: str

    @service.event("folio.charged.v2", key="folio_id")
    class V2(Payload):
        folio_id: str
        cents: int

    @service.downcast(V2, to=V1)
    def plainer(new: V2) -> V1:
        return V1(new.folio_id)

    def count(cents: int, event: V2) -> int:
        return cents + event.cents

    folios = service.aggregate("folio", initial=int, evolve=count, events=(V2,))
    assert await folios.execute("f1", lambda cents: V2("f1", 5), tenant="t1") == 5
    async with service.transaction("t1") as tx:
        assert (await folios.load(tx, "f1")).version == 1
    assert await unsent(service) == 2
    await service.aclose()


# Conflicts.


class Overtaken:
    """A decision that somebody else is faster than, so many times. SQLite has one writer, so it says so itself; on
    PostgreSQL somebody really is."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.made = 0

    def __call__(self, folio: Folio) -> Charged:
        self.made += 1
        if self.made <= self.times:
            raise VersionConflict("folio 'f1' of tenant 't1'", 1, 2)
        return Charged("f1", 100)


async def test_execute_decides_again_until_nobody_was_faster() -> None:
    billing = Billing(conflicts=Conflicts(attempts=4, first_pause=0.0, last_pause=0.0))
    decision = Overtaken(times=3)
    assert (await billing.folios.execute("f1", decision, tenant="t1")).cents == 100
    assert decision.made == 4
    await billing.service.aclose()


async def test_execute_gives_up_once_its_attempts_are_spent() -> None:
    billing = Billing(conflicts=Conflicts(attempts=3, first_pause=0.0, last_pause=0.0))
    decision = Overtaken(times=3)
    with pytest.raises(VersionConflict):
        await billing.folios.execute("f1", decision, tenant="t1")
    assert decision.made == 3
    assert await unsent(billing.service) == 0
    await billing.service.aclose()


async def test_many_decisions_at_once_are_all_made(billing: Billing) -> None:
    await billing.folios.execute("f1", opening, tenant="t1")
    await asyncio.gather(*(billing.folios.execute("f1", charging(1), tenant="t1") for _ in range(50)))
    async with billing.service.transaction("t1") as tx:
        assert await billing.folios.load(tx, "f1") == Loaded(Folio("Ann", 50, (1,) * 50, open=True), 51)


async def test_a_handler_whose_decision_was_overtaken_runs_again_and_no_attempt_is_counted() -> None:
    billing = Billing()
    runs: list[int] = []

    @billing.service.event("payment.asked.v1", key="folio_id")
    class Asked(Payload):
        folio_id: str

    @billing.service.on(Asked, policy=Policy(max_attempts=1))
    async def charge(event: Event[Asked], tx: Tx) -> None:
        runs.append(1)
        if len(runs) < 3:
            raise VersionConflict("folio 'f1' of tenant 't1'", 1, 2)
        await billing.folios.append(tx, "f1", [Charged("f1", 5)], expected="any")

    async with Harness(billing.service) as harness:
        await harness.publish(Asked("f1"))
        await harness.settled()
        assert await harness.held(billing.service) == []
        async with billing.service.transaction("t1") as tx:
            assert (await billing.folios.load(tx, "f1")).state.cents == 5
    assert len(runs) == 3


async def test_a_handler_that_can_never_be_right_is_held_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posthouse.receiving.collisions.LAST_PAUSE", 0.0)
    billing = Billing()

    @billing.service.event("payment.asked.v1", key="folio_id")
    class Asked(Payload):
        folio_id: str

    @billing.service.on(Asked, policy=Policy(max_attempts=1))
    async def charge(event: Event[Asked], tx: Tx) -> None:
        await billing.folios.append(tx, "f1", [Charged("f1", 5)], expected=7)

    async with Harness(billing.service) as harness:
        await harness.publish(Asked("f1"))
        await harness.settled()
        (held,) = await harness.held(billing.service)
    assert held.state == "dead"
    assert held.error.startswith("VersionConflict: folio 'f1' of tenant 't1' is at version 0")
