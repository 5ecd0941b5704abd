"""The harness itself: what it says when it cannot settle, and how it leaves the services."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from posthouse import App, Event, Payload, Policy, Run, Service, Tx
from posthouse.app import app_of
from posthouse.errors import ConfigurationError
from posthouse.testing import Harness, Unsettled


def shop() -> tuple[Service, type[Payload]]:
    service = Service("shop")
    App(service, store="sqlite:///never-made.db", broker="embedded:///never-made.db")

    @service.event("thing.made.v1", key="key")
    class ThingMade(Payload):
        key: str

    return service, ThingMade


async def test_services_are_as_they_were_afterwards_also_when_the_block_fails() -> None:
    service, made = shop()
    clock = app_of(service).clock
    with pytest.raises(ZeroDivisionError):
        await _fail_inside(service, made)
    assert app_of(service).clock is clock
    assert app_of(service).opened.ports.store_url == "sqlite:///never-made.db"
    assert app_of(service).opened.ports.broker_url == "embedded:///never-made.db"


async def test_services_are_as_they_were_when_one_of_them_cannot_start() -> None:
    first, _ = shop()
    second = Service("second")
    App(second, store="sqlite:///never-made-either.db")
    second.on(shop()[1], policy=Policy(first_delay=1e8, last_delay=1e8))(_nothing)
    with pytest.raises(ConfigurationError, match="raise inbox_retention"):
        async with Harness(first, second):
            pass
    assert (app_of(first).opened.ports.store_url, app_of(second).opened.ports.store_url) == (
        "sqlite:///never-made.db",
        "sqlite:///never-made-either.db",
    )


async def _fail_inside(service: Service, made: type[Payload]) -> None:
    async with Harness(service) as harness:
        assert app_of(service).clock is harness.clock
        assert app_of(service).broker is harness.broker
        await harness.publish(made(key="k"))
        raise ZeroDivisionError


async def _nothing(event: Event[Payload], tx: Tx) -> None: ...


async def test_a_service_that_was_open_already_runs_in_memory_all_the_same() -> None:
    service, made = shop()
    App(service, store="sqlite://", broker="memory://")
    async with service.transaction("t1") as tx:
        tx.publish(made(key="k"))
    await service.aclose()
    async with Harness(service) as harness:
        await harness.settled()
        assert await harness.published(made) == []


async def test_what_never_settles_is_said_with_its_figures() -> None:
    service, made = shop()
    async with Harness(service) as harness:
        harness._stop.set()
        await asyncio.gather(*harness._tasks)
        await harness.publish(made(key="k"))
        with pytest.raises(Unsettled, match=r"still moving after 0.05 s: .*unsent={'shop': 1}"):
            await harness.settled(timeout=0.05)


async def test_a_handler_that_keeps_its_transaction_open_does_not_keep_the_harness_waiting() -> None:
    service, made = shop()
    running, go_on = asyncio.Event(), asyncio.Event()

    @service.on(made)
    async def wait(event: Event[Payload]) -> None:
        running.set()
        await go_on.wait()

    async with Harness(service) as harness:
        await harness.publish(made(key="k"))
        await asyncio.wait_for(running.wait(), 5)
        with pytest.raises(Unsettled, match=r"still moving after 0.05 s: .*a transaction is open all the time"):
            await harness.settled(timeout=0.05)
        go_on.set()
        await harness.settled()


async def test_each_harness_begins_empty() -> None:
    service, made = shop()
    for _ in range(2):
        async with Harness(service) as harness:
            await harness.publish(made(key="k"))
            await harness.settled()
            assert len(await harness.published(made)) == 1


async def test_a_fact_of_a_service_that_is_not_there_comes_numbered() -> None:
    reader, made = Service("reader"), shop()[1]
    heard: list[int | None] = []

    @reader.on(made)
    async def hear(event: Event[Payload]) -> None:
        heard.append(event.sequence)

    async with Harness(reader) as harness:
        for _ in range(3):
            await harness.publish(made(key="k"))
        await harness.publish(made(key="k"), tenant="t2")
        await harness.settled()
    assert sorted(map(str, heard)) == ["1", "1", "2", "3"]


async def test_the_clock_moves_only_when_told() -> None:
    service, made = shop()
    async with Harness(service) as harness:
        async with service.transaction("t1") as tx:
            tx.publish(made(key="k"), after=3600)
        await harness.advance(3599.9)
        assert await harness.published(made) == []
        await harness.advance(0.1)
        assert len(await harness.published(made)) == 1


async def test_a_handler_that_needs_postgresql_is_told_how_to_have_it_in_a_test() -> None:
    service, made = shop()

    async def by_session(event: Event[Payload], session: AsyncSession) -> None: ...

    service.on(made)(by_session)
    with pytest.raises(
        ConfigurationError, match=r"by_session: .* A store on PostgreSQL has it; .* store=posthouse_store"
    ):
        async with Harness(service):
            raise AssertionError("it began")


async def test_a_handler_without_annotations_is_called_with_what_it_takes() -> None:
    service, made = shop()
    seen: list[object] = []

    async def bare(event, tx):  # type: ignore[no-untyped-def]
        seen.append((event.data.key, await tx.execute("SELECT 1")))

    service.on(made)(bare)
    async with Harness(service) as harness:
        await harness.publish(made(key="k"))
        await harness.settled()
    assert seen == [("k", [(1,)])]


async def test_schedules_can_be_left_out_and_cost_nothing_then() -> None:
    every_minute = Service("minutes")
    ran: list[Run] = []

    @every_minute.every("* * * * *")
    async def tick(run: Run, tx: Tx) -> None:
        ran.append(run)

    async with Harness(every_minute, schedules=False) as harness:
        await harness.advance(365 * 86_400)
    async with Harness(every_minute) as harness:
        await harness.advance(120)
    assert len(ran) == 2
