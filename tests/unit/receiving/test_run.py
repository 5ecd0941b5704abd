"""Run: what a handler is called with, and what becomes of what it publishes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from posthouse import Event, Policy, RetryNow, Tx
from posthouse.errors import ContractError, FrameRefused
from posthouse.receiving import Executor
from posthouse.receiving.inbound import InboundEvent
from posthouse.seam import Seam
from tests.unit.receiving.conftest import Bench, MeterRead, NoteTaken, handled_by

seen: list[object] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    seen.clear()


async def publish_note(event: Event[MeterRead], tx: Tx) -> NoteTaken:
    seen.append((tx.tenant, event.data.value))
    return NoteTaken(text=f"{event.data.meter} {event.data.value}")


async def take_all(events: list[Event[MeterRead]], tx: Tx) -> None:
    seen.append((tx.tenant, [event.data.value for event in events]))


async def run(executor: Executor, events: Sequence[InboundEvent]) -> None:
    async with executor.store.begin() as tx:
        await executor.runner.run(tx, events)


def of_tenants(bench: Bench, executor: Executor, *tenants: str) -> list[InboundEvent]:
    made = [bench.delivery(MeterRead(meter="m1", value=n), 1, tenant=tenant) for n, tenant in enumerate(tenants)]
    return [executor.decoder.from_delivery(delivery) for delivery in made]


async def test_what_a_handler_returns_is_published_for_the_tenant_of_its_event(bench: Bench) -> None:
    executor = bench.executor(handled_by(publish_note))
    await run(executor, of_tenants(bench, executor, "t1", "t2"))
    assert seen == [("t1", 0), ("t2", 1)]
    assert [row.tenant for row in await bench.outbox()] == ["t1", "t2"]


async def test_a_handler_of_lists_gets_one_for_each_tenant(bench: Bench) -> None:
    executor = bench.executor(handled_by(take_all))
    await run(executor, of_tenants(bench, executor, "t1", "t2", "t1"))
    assert seen == [("t1", [0, 2]), ("t2", [1])]


async def test_those_that_are_opened_together_are_told_of_once_before_the_first_is(bench: Bench) -> None:
    steps: list[object] = []

    async def gather(events: Sequence[Event[bytes]]) -> None:
        steps.append([event.sequence for event in events])

    async def decrypt(event: Event[bytes]) -> Event[bytes]:
        steps.append(event.sequence)
        return event

    executor = bench.executor(handled_by(take_all), seam=Seam(gather=gather, decrypt=decrypt))
    readings = bench.readings(executor, [1, 2, 3])
    await executor.runner.opened(readings)
    assert steps == [[1, 2, 3], 1, 2, 3]
    steps.clear()
    await executor.runner.opened(readings[:1])
    assert steps == [1]


async def test_without_events_and_without_a_handler_nothing_is_run(bench: Bench) -> None:
    executor = bench.executor(handled_by(publish_note))
    await run(executor, [])
    nobodys = bench.executor({})
    await run(nobodys, bench.readings(nobodys, [1]))
    assert seen == []


async def test_it_is_noted_which_versions_were_applied(bench: Bench) -> None:
    executor = bench.executor(handled_by(publish_note))
    await run(executor, bench.readings(executor, [1, 2]))
    await executor.version_usage.write(bench.store.version_usage, bench.clock.now(), every=0.0)
    [use] = await bench.store.version_usage.seen()
    assert (use.role, use.party, use.subject) == ("applied", "books", "grid.meter.read.v1")


async def test_a_payload_that_does_not_fit_its_type_is_a_breach_of_contract(bench: Bench) -> None:
    executor = bench.executor(handled_by(publish_note))
    [inbound] = bench.readings(executor, [1])
    assert inbound.event is not None
    broken = inbound.event.with_data(b'{"meter": 1}')
    with pytest.raises(ContractError):
        await run(
            executor, [InboundEvent(entry=inbound.entry, headers={}, body=b"", event=broken, handler=inbound.handler)]
        )
    assert seen == []


async def test_an_event_whose_turn_came_after_nobody_had_been_asked_is_tried_again_at_once(bench: Bench) -> None:
    async def ask(event: Event[MeterRead]) -> str:
        return f"about {event.data.value}"

    async def answered(event: Event[MeterRead], tx: Tx, answer: str) -> None:
        seen.append(answer)

    executor = bench.executor(handled_by(answered, calling=ask))
    [inbound] = bench.readings(executor, [1])
    with pytest.raises(RetryNow):
        await run(executor, [inbound])
    answer = await executor.runner.ask(inbound)
    assert answer == ("about 1",)
    async with bench.store.begin() as tx:
        await executor.runner.run(tx, [inbound], answer)
    assert seen == ["about 1"]


async def test_data_is_fetched_and_decrypted_in_this_order_before_the_handler_sees_it(bench: Bench) -> None:
    async def fetch(event: Event[bytes]) -> Event[bytes]:
        return event.with_data(event.data + b" fetched")

    async def decrypt(event: Event[bytes]) -> Event[bytes]:
        assert event.data.endswith(b" fetched")
        return event.with_data(event.data.removesuffix(b" fetched"))

    executor = bench.executor(handled_by(publish_note), seam=Seam(fetch=fetch, decrypt=decrypt))
    await run(executor, await executor.runner.opened(bench.readings(executor, [1])))
    assert seen == [("t1", 1)]


async def test_without_such_steps_the_very_same_events_go_on(bench: Bench) -> None:
    executor = bench.executor(handled_by(publish_note))
    events = bench.readings(executor, [1])
    assert await executor.runner.opened(events) is events


async def test_what_the_seam_refuses_reaches_no_handler(bench: Bench) -> None:
    async def decrypt(event: Event[bytes]) -> Event[bytes]:
        raise FrameRefused("its key is gone")

    executor = bench.executor(handled_by(publish_note, Policy()), seam=Seam(decrypt=decrypt))
    with pytest.raises(FrameRefused):
        await executor.runner.opened(bench.readings(executor, [1]))
