"""What an hour would do, in memory and on PostgreSQL: retries as often, timers in their order, and each at its time."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from posthouse import Event, Payload, Policy, Saga, Service, Turn, Tx, app_of, deadline, starts
from posthouse.testing import Harness

START = 1_800_000_000.0


class BellRung(Payload):
    number: int


class Asked(Payload):
    key: str


class TimePassing:
    """Subclasses say `where`: the URL of the store."""

    @pytest.fixture
    def where(self) -> str:
        raise NotImplementedError

    async def test_an_hour_has_as_many_retries_as_an_hour_has(self, where: str) -> None:
        service, runs = Service("shop"), list[float]()
        asked = service.event("question.asked.v1", key="key")(Asked)

        @service.on(asked, policy=Policy(max_attempts=8, first_delay=10.0, last_delay=300.0))
        async def fail(event: Event[Asked], tx: Tx) -> None:
            runs.append(tx.clock.now())
            raise RuntimeError("not yet")

        async with Harness(service, store=where) as harness:
            await harness.publish(asked(key="k"))
            await harness.settled()
            assert len(runs) == 1
            await harness.advance(3600)
            assert harness.clock.now() == START + 3600
            assert len(runs) == 8
            waits = [after - before for before, after in itertools.pairwise(runs)]
            assert all(5.0 <= wait <= 300.0 for wait in waits), "each run at its time, not all at the end"
            assert [held.state for held in await harness.held(service)] == ["dead"]

    async def test_a_handler_that_takes_its_time_is_not_left_behind(self, where: str) -> None:
        service, runs = Service("shop"), list[tuple[int, float, float]]()
        rung = service.event("bell.rung.v1")(BellRung)

        @service.on(rung, publishes=[rung])
        async def ring(event: Event[BellRung], tx: Tx) -> None:
            began = tx.clock.now()
            await asyncio.sleep(0.4)  # a slow query: longer than a harness waits for what does not move
            runs.append((event.data.number, began - START, tx.clock.now() - START))
            if event.data.number < 3:
                tx.publish(rung(number=event.data.number + 1), after=60.0)

        async with Harness(service, store=where) as harness:
            await harness.publish(rung(number=1))
            await harness.advance(600)
        assert runs == [(1, 0.0, 0.0), (2, 60.0, 60.0), (3, 120.0, 120.0)]

    async def test_timers_go_off_in_their_order_and_each_sees_its_own_time(self, where: str) -> None:
        service, heard = Service("shop"), list[tuple[int, float]]()
        rung = service.event("bell.rung.v1")(BellRung)

        @service.on(rung)
        async def hear(event: Event[BellRung], tx: Tx) -> None:
            heard.append((event.data.number, tx.clock.now() - START))
            if event.data.number < 10:
                tx.publish(rung(number=event.data.number + 10), after=100.1)  # set on the way, and due on the way

        async with Harness(service, store=where) as harness:
            async with service.transaction() as tx:
                for number, after in ((3, 1800.3), (1, 60.7), (2, 900.0)):
                    tx.publish(rung(number=number), after=after)
            await harness.advance(3600)
        assert [number for number, _ in heard] == [1, 11, 2, 12, 3, 13]
        assert [seen for _, seen in heard] == pytest.approx([60.7, 160.8, 900.0, 1000.1, 1800.3, 1900.4], abs=1e-5)

    async def test_a_deadline_of_a_saga_passes_at_its_time(self, where: str) -> None:
        service, passed = Service("shop"), list[float]()

        @service.saga("wait", correlate="id")
        class Wait(Saga):
            id: str

            @starts
            def begin(self, turn: Turn) -> None:
                turn.set(self.over)

            @deadline(1234.5)
            def over(self, turn: Turn) -> None:
                passed.append(clock.now() - START)
                turn.complete()

        async with Harness(service, store=where) as harness:
            clock = harness.clock
            async with service.transaction("t1") as tx:
                await service.start_saga(tx, Wait(id="w1"))
            await harness.advance(1000)
            assert passed == []
            await harness.advance(3600)
            assert passed == pytest.approx([1234.5], abs=1e-5)
            assert (await app_of(service).sagas.show("wait", "w1", tenant="t1")).row.status == "completed"

    async def test_a_relay_goes_on_after_a_jump_far_past_its_lease(self, where: str) -> None:
        service = Service("shop")
        asked = service.event("question.asked.v1", key="key")(Asked)
        async with Harness(service, store=where) as harness:
            for number in range(3):
                async with service.transaction("t1") as tx:
                    tx.publish(asked(key="k"))
                await harness.advance(86_400.0)
                assert [event.sequence for event in await harness.published(asked)] == list(range(1, number + 2))
