"""The whole way of an event over one broker: two services, each on a SQLite file of its own.

What the port leaves to Posthouse is proven here, broker by broker: once only, order, dead letters, replay. A broker
takes part with a class of five lines that gives `make_broker`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from posthouse import Event, Payload, Policy, Service, Tx
from posthouse.app import app_of, apps_of
from posthouse.broker import Broker, Delivery, Stream, Topology
from posthouse.clock import SystemClock, new_id
from posthouse.history.log import refusal
from posthouse.resend import Choice, resend
from posthouse.store import HeldFilter
from posthouse.survey import PASSING, Surveyed
from posthouse.testing import rehost
from posthouse.tracing import trace
from posthouse.watch.standing import Standing
from posthouse.watch.status import DROPPED, GONE, Line, status
from tests.kit.frames import collect
from tests.kit.running import at_work
from tests.kit.samples import Found
from tests.kit.shop import OrderPlaced
from tests.kit.waiting import eventually

T = TypeVar("T")


class InvoiceIssued(Payload):
    order_id: str
    number: int


class House:
    """`orders` says what was placed; `billing` writes it down and answers; what is in `broken` fails."""

    def __init__(self, folder: Path, brokers: tuple[Broker, Broker], namespace: str = "") -> None:
        self.broken: set[str] = set()
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.orders = Service("orders", namespace=namespace or f"shop{new_id()[-6:]}")
        self.billing = Service("billing", namespace=self.orders.namespace)
        self.orders.event("order.placed.v1", key="order_id")(OrderPlaced)
        self.billing.event("invoice.issued.v1", key="order_id")(InvoiceIssued)
        self.billing.setup(self._tables)
        self.billing.on(OrderPlaced, policy=Policy(max_attempts=2, first_delay=0.05))(self._invoice)
        for service, broker in zip((self.orders, self.billing), brokers, strict=True):
            rehost(service, store=f"sqlite:///{folder / service.name}.db", broker=broker, clock=SystemClock())

    @property
    def services(self) -> tuple[Service, Service]:
        return self.orders, self.billing

    @property
    def topic(self) -> str:
        return f"{self.orders.namespace}.orders.order"

    async def _tables(self, tx: Tx) -> None:
        await tx.execute("CREATE TABLE IF NOT EXISTS invoice (id INTEGER PRIMARY KEY, order_id TEXT, number INTEGER)")

    async def _invoice(self, event: Event[OrderPlaced], tx: Tx) -> InvoiceIssued:
        await tx.execute(
            "INSERT INTO invoice (order_id, number) VALUES (?, ?)", (event.data.order_id, event.data.number)
        )
        if event.data.order_id == "slow" and event.data.number == 2:
            self.begun.set()
            await self.go_on.wait()
        if event.data.order_id in self.broken:
            raise RuntimeError("the ledger is closed")
        return InvoiceIssued(order_id=event.data.order_id, number=event.data.number)

    async def place(self, order_id: str, *numbers: int) -> None:
        for number in numbers:
            async with self.orders.transaction("t1") as tx:
                tx.publish(OrderPlaced(order_id=order_id, number=number))

    async def invoices(self) -> dict[str, list[object]]:
        found: dict[str, list[object]] = {}
        async with self.billing.transaction("t1") as tx:
            for order_id, number in await tx.execute("SELECT order_id, number FROM invoice ORDER BY id"):
                found.setdefault(str(order_id), []).append(number)
        return found

    async def unsent(self) -> int:
        return sum((await app_of(self.orders).store.counts()).unsent.values())

    async def line(self) -> Line:
        """What `status` says of what was placed."""
        [line] = [line for line in (await status(self.services)).lines if line.topic == self.topic]
        return line

    async def held(self) -> list[tuple[int | None, str]]:
        return [
            (event.entry.sequence, event.state) for event in await app_of(self.billing).store.held.find(HeldFilter())
        ]


class BrokerPathContract:
    """Subclass it and give `make_broker`: every call a new instance on the one log of this test."""

    pytestmark = pytest.mark.asyncio
    deadline: float = 30.0
    can_count: bool = True
    """Whether the broker knows that nothing was hidden from a group, and what waits for it."""
    knows_what_was_given_back: bool = True
    """Whether it knows of a member that left in good order that what it had in hand was not dealt with."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    async def make_broker(self) -> Broker:
        raise NotImplementedError("give make_broker()")

    async def lose_frames(self, topic: str, group: str) -> int:
        """Remove on the server, behind our back, at least one frame that this group has not received; say how many."""
        pytest.skip("nothing can be taken out of this broker by hand")

    async def empty(self, topic: str) -> int:
        """Remove all frames of a topic on the server, behind our back; how many."""
        pytest.skip("nobody empties a topic of this broker by hand")

    async def test_events_are_applied_once_and_in_the_order_of_their_key(self) -> None:
        async with self.house() as house:
            names = [f"o{n}" for n in range(6)]
            await asyncio.gather(*(house.place(name, *range(10)) for name in names))
            await self.until(house.invoices, lambda found: sum(map(len, found.values())) >= 60)
            assert await house.invoices() == {name: list(range(10)) for name in names}

    async def test_what_was_rolled_back_is_never_seen(self) -> None:
        async with self.house() as house:
            with contextlib.suppress(ZeroDivisionError):
                async with house.orders.transaction("t1") as tx:
                    tx.publish(OrderPlaced(order_id="lost", number=1))
                    raise ZeroDivisionError
            await house.place("kept", 1)
            await self.until(house.invoices, bool)
            assert await house.invoices() == {"kept": [1]}

    async def test_duplicates_on_the_broker_are_applied_once(self) -> None:
        async with self.house() as house:
            broker = app_of(house.orders).broker
            spy = await broker.subscribe("spy", [house.topic])
            await house.place("o1", 1, 2)
            frames = [delivery.frame for delivery in await self.collect(spy, 2)]
            for _ in range(3):
                assert all(verdict.accepted for verdict in await broker.publish(frames))
            await house.place("o1", 3)
            await self.until(house.invoices, lambda found: 3 in found.get("o1", []))
            assert await house.invoices() == {"o1": [1, 2, 3]}
            assert await house.held() == []

    async def test_poison_reaches_the_dead_letters_once_with_headers_and_reason(self) -> None:
        async with self.house() as house:
            house.broken.add("bad")
            letters = await app_of(house.billing).broker.subscribe("undertaker", [f"{house.topic}.dlq"])
            await house.place("bad", 1, 2)
            await house.place("good", 1)
            [letter] = await self.collect(letters, 1)
            await self.until(house.held, lambda held: held == [(1, "dead"), (2, "blocked")])
            assert letter.frame.headers["ph-consumer"] == "billing"
            assert letter.frame.headers["ph-topic"] == house.topic
            assert "the ledger is closed" in letter.frame.headers["ph-error"]
            assert letter.frame.headers["ph-attempts"] == "2"
            assert letter.frame.key == "t1:bad"
            assert b'"number":1' in letter.frame.body.replace(b" ", b"")
            assert list(await letters.receive(10, 0.5)) == []
            assert await house.invoices() == {"good": [1]}

    async def test_dead_letters_come_back_in_order(self) -> None:
        async with self.house() as house:
            house.broken.add("bad")
            await house.place("bad", 1, 2, 3)
            await self.until(house.held, lambda held: held == [(1, "dead"), (2, "blocked"), (3, "blocked")])
            house.broken.clear()
            [dead, *_] = await app_of(house.billing).store.held.find(HeldFilter(state="dead"))
            await house.billing.held.retry(dead.id)
            await self.until(house.invoices, lambda found: 3 in found.get("bad", []))
            assert await house.invoices() == {"bad": [1, 2, 3]}
            assert await house.held() == []

    async def test_a_dead_letter_said_again_on_its_topic_changes_nothing(self) -> None:
        async with self.house() as house:
            house.broken.add("bad")
            broker = app_of(house.billing).broker
            letters = await broker.subscribe("undertaker", [f"{house.topic}.dlq"])
            await house.place("bad", 1)
            [letter] = await self.collect(letters, 1)
            story = {name: text for name, text in letter.frame.headers.items() if not name.startswith("ph-")}
            again = type(letter.frame)(
                topic=house.topic, id=letter.frame.id, key=letter.frame.key, body=letter.frame.body, headers=story
            )
            assert [verdict.accepted for verdict in await broker.publish([again])] == [True]
            house.broken.clear()
            await house.place("good", 1)
            await self.until(house.invoices, lambda found: found == {"good": [1]})
            assert await house.held() == [(1, "dead")]

    async def test_a_replay_by_seek_applies_nothing_twice(self) -> None:
        async with self.house() as house:
            broker = app_of(house.billing).broker
            if not broker.sheet.seek:
                pytest.skip("this broker cannot go back")
            await house.place("o1", *range(5))
            await self.until(house.invoices, lambda found: len(found.get("o1", [])) == 5)
            await broker.seek("billing", house.topic, time=0.0)
            await house.place("o1", 5)
            await self.until(house.invoices, lambda found: 5 in found["o1"])
            assert await house.invoices() == {"o1": list(range(6))}
            assert await house.held() == []

    async def test_a_trace_finds_what_a_request_caused_and_leaves_nothing_behind(self) -> None:
        async with self.house() as house:
            services = (house.orders, house.billing)
            broker = app_of(house.orders).broker
            await house.place("before", *range(20))
            async with house.orders.transaction("t1", correlation="req-1") as tx:
                first = tx.publish(OrderPlaced(order_id="o1", number=1))
            await self.until(house.invoices, lambda found: len(found.get("before", [])) == 20 and "o1" in found)
            answered = f"{house.orders.namespace}.billing.invoice"
            spy = await broker.subscribe("spy", [answered]) if broker.sheet.history else None
            if spy is not None:
                await self.collect(spy, 21)  # the answers are in the log
                await spy.aclose()
            found = await trace(services, "req-1")
            kinds = [(branch.depth, branch.spot.event.type.split(".", 1)[1]) for branch in found.branches]
            assert kinds == [(0, "orders.order.placed.v1"), (1, "billing.invoice.issued.v1")]
            assert [(heard.consumer, heard.state) for heard in found.heard[first]] == [("billing", "applied")]
            readable = refusal(broker) is None
            assert not found.notes if readable else found.notes
            assert {branch.spot.place for branch in found.branches} == {"log" if readable else "outbox"}
            if readable and isinstance(broker, Surveyed):
                later = await trace(services, "req-1", time.time() + 60)
                assert later.read == 0
                groups = {thing.group for thing in await broker.survey(Topology()) if thing.group}
                assert not [group for group in groups if group.startswith(PASSING)]

    async def test_figures_show_what_waits_and_for_how_long_and_nothing_is_missing(self) -> None:
        async with self.prepared() as house:
            standing = Standing(apps_of(house.services))
            line = {"service": "billing", "consumer": "billing", "topic": house.topic}

            async def look() -> Found:
                found = Found(await standing.samples())
                assert found.of("broker_up") == [1, 1]
                assert found.of("consumer_unaccounted", **line) == [0]
                return found

            async with self.running(house.orders):
                async with self.running(house.billing):
                    await house.place("o1", 1)
                    await self.until(house.invoices, bool)
                await house.place("o1", 2, 3, 4)
                await self.until(house.unsent, lambda unsent: unsent == 0)
            waiting = await self.until(look, lambda found: found.of("consumer_in_flight", **line) in ([3], []))
            counted = waiting.of("consumer_in_flight", **line) == [3]
            assert counted or not self.can_count
            assert len(waiting.of("consumer_lag_seconds", **line)) == counted
            if counted:
                await self.until(look, lambda found: found.one("consumer_lag_seconds", **line) > 0.3)
            async with self.running(house.billing):
                await self.until(house.invoices, lambda found: 4 in found["o1"])
            over = await self.until(look, lambda found: found.of("consumer_in_flight", **line) in ([0], []))
            assert over.of("consumer_lag_seconds", **line) == ([0] if counted else [])
            assert over.one("consumer_unknown", **line) == 0

    async def test_what_was_removed_behind_our_back_is_sent_again_and_applied_once_and_in_order(self) -> None:
        """At once: a broker that drops repeats must not take for one what it has lost."""
        async with self.prepared() as house:
            names = [f"o{number}" for number in range(10)]
            async with self.running(house.orders), self.running(house.billing):
                await asyncio.gather(
                    *(house.place(name, 1) for name in names)
                )  # where there is no history, keys begin here
                await self.until(house.invoices, lambda found: len(found) == 10)
            async with self.running(house.orders):
                await asyncio.gather(*(house.place(name, 2, 3) for name in names))
                await self.until(house.unsent, lambda unsent: unsent == 0)
            assert await self.lose_frames(house.topic, "billing") > 0
            results = await resend(apps_of(house.services), Choice(topic=house.topic))
            assert [(result.service, result.sent, result.refused) for result in results] == [
                ("orders", 30, {}),
                ("billing", 0, {}),
            ]
            async with self.running(house.orders), self.running(house.billing):
                await house.place("o0", 4)
                await self.until(house.invoices, lambda found: sum(map(len, found.values())) >= 31)
                await self.until(house.held, lambda held: not held)
            assert await house.invoices() == {name: [1, 2, 3] for name in names} | {"o0": [1, 2, 3, 4]}

    async def test_status_notices_a_frame_that_was_removed_behind_our_back(self) -> None:
        """An equation that cannot fail proves nothing: it is broken on purpose."""
        async with self.prepared() as house:
            async with self.running(house.orders):
                for number in range(40):
                    await house.place(f"o{number}", number)
                await self.until(house.unsent, lambda unsent: unsent == 0)
            lost = await self.lose_frames(house.topic, "billing")
            assert 0 < lost < 40
            if self.can_count:
                await self.until(house.line, lambda line: line.difference == lost)
                assert (await house.line()).verdict == "does not add up", "before anybody reads"
            async with self.running(house.billing):
                await self.until(house.invoices, lambda found: len(found) == 40 - lost)
                await self.until(house.line, lambda line: line.in_flight == 0)
            line = await house.line()
            assert (line.committed, line.applied, line.difference) == (40, 40 - lost, lost)
            assert line.verdict == ("does not add up" if self.can_count else "cannot tell"), line
            assert self.can_count or line.reason

    async def test_status_raises_no_alarm_at_a_slow_handler_nor_at_one_that_was_stopped(self) -> None:
        """What was applied behind the slow one is not in flight; as long as somebody is at work, nobody can tell."""
        async with self.prepared() as house:
            names = [f"o{number}" for number in range(10)]
            async with self.running(house.orders):
                await house.place("slow", *range(1, 21))
                for name in names:
                    await house.place(name, 1)
                await self.until(house.unsent, lambda unsent: unsent == 0)
            async with self.looking(house) as looker:
                async with self.running(house.billing):
                    async with asyncio.timeout(self.deadline):
                        await house.begun.wait()
                    await self.until(looker.line, lambda line: line.applied > 0)
                    line = await looker.line()
                    assert (line.verdict, bool(line.reason)) == ("cannot tell", True), line
                    house.go_on.set()
                line = await looker.line()
                assert line.committed == 30
                assert 0 < line.applied < 30
                assert line.verdict == ("adds up" if self.knows_what_was_given_back else "cannot tell"), line
                assert line.difference == 0 or not self.can_count
                async with self.running(house.billing):
                    await self.until(looker.line, lambda line: line.applied == 30 and line.in_flight == 0)
                assert (await looker.line()).verdict == "adds up"

    async def test_status_notices_a_topic_that_a_stranger_emptied(self) -> None:
        """A frame that is gone is not in flight, and a group that was there from the beginning did not begin after it."""
        async with self.prepared() as house:
            async with self.running(house.orders), self.running(house.billing):
                await house.place("o", *range(5))
                await self.until(house.line, lambda line: line.applied == 5 and line.in_flight == 0)
            async with self.running(house.orders):
                await house.place("o", *range(5, 9))
                await self.until(house.unsent, lambda unsent: unsent == 0)
            assert await self.empty(house.topic) >= 4
            await self.until(house.line, lambda line: line.difference == 4)
            async with self.running(house.billing):
                await self.until(house.line, lambda line: line.difference == 4)
            line = await house.line()
            assert (line.committed, line.applied, line.in_flight) == (9, 5, 0)
            assert line.verdict == "does not add up"
            assert line.reason in (f"4 of them not found: {DROPPED}", f"4 of them not found: {GONE}")

    # What the tests are written with

    @contextlib.asynccontextmanager
    async def house(self) -> AsyncIterator[House]:
        """Both services at work, each with an instance of its own."""
        async with self.prepared() as house, self.running(house.orders), self.running(house.billing):
            yield house

    @contextlib.asynccontextmanager
    async def prepared(self) -> AsyncIterator[House]:
        """Everything is made, and nobody at work."""
        house = House(self.folder, (await self.make_broker(), await self.make_broker()))
        try:
            for service in house.services:
                await app_of(service).opened.prepare()
            yield house
        finally:
            for service in house.services:
                await service.aclose()

    @contextlib.asynccontextmanager
    async def looking(self, house: House) -> AsyncIterator[House]:
        """The same services, as another process opens them: a handler at work keeps nobody from looking."""
        brokers = (await self.make_broker(), await self.make_broker())
        looker = House(self.folder, brokers, house.orders.namespace or "")
        async with contextlib.AsyncExitStack() as stack:
            for service in looker.services:
                await app_of(service).open()
                stack.push_async_callback(service.aclose)
            yield looker

    @contextlib.asynccontextmanager
    async def running(self, service: Service) -> AsyncIterator[None]:
        async with at_work((await app_of(service).opened.prepare()).run):
            yield

    async def until(self, look: Callable[[], Awaitable[T]], right: Callable[[T], bool]) -> T:
        return await eventually(look, right=right, within=self.deadline)

    async def collect(self, stream: Stream, count: int) -> list[Delivery]:
        return await collect(stream, count, within=self.deadline)
