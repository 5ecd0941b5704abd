import asyncio
import time
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from posthouse.broker import Broker, Delivery, Frame
from posthouse.brokers.admission import BEHIND
from posthouse.brokers.rabbitmq import RabbitmqBroker, publishing
from posthouse.clock import ManualClock, SystemClock
from posthouse.testing.broker_contract import BrokerContract
from posthouse.testing.broker_contract.fixtures import Link
from posthouse.testing.broker_contract.frames import ids, ids_of
from posthouse.testing.broker_contract.surveying import SurveyingContract
from tests.conformance.broker_path import BrokerPathContract
from tests.conformance.losing import from_rabbitmq
from tests.kit.servers.proxy import Proxy
from tests.kit.servers.rabbitmq import RabbitmqServer
from tests.kit.spoiling import in_rabbitmq


class TestRabbitmq(BrokerContract):
    tells_ages = False  # AMQP shows what is in a queue only to those who take it out
    knows_what_was_given_back = False
    deadline = 60.0  # a node takes seconds to start
    lists = False  # AMQP does not
    heartbeat = 1

    @pytest.fixture(autouse=True)
    def _server(self, rabbitmq_server: RabbitmqServer) -> None:
        self.node = rabbitmq_server
        self.server = rabbitmq_server if rabbitmq_server.ours else None

    @pytest_asyncio.fixture(autouse=True)
    async def _proxies(self, rabbitmq_server: RabbitmqServer) -> AsyncIterator[None]:
        async with Proxy("127.0.0.1", rabbitmq_server.port) as self.proxy, asyncio.TaskGroup() as self.tasks:
            yield

    async def spoil_frame(self, topic: str) -> None:
        await in_rabbitmq(self.node.url, topic)

    @pytest.mark.parametrize("kind", ["timestamp", "value", "name", "route", "deep"])
    async def test_a_message_that_the_driver_cannot_decode_comes_with_a_defect(self, kind: str) -> None:
        got = await self._beside_a_stranger(kind)
        assert [delivery.frame.body for delivery in got if delivery.defect] == ([] if kind == "route" else [b"junk"])

    async def test_a_time_that_no_calendar_has_stays_as_it_was_said(self) -> None:
        (odd,) = [delivery for delivery in await self._beside_a_stranger("time") if delivery.frame.body == b"junk"]
        assert odd.frame.headers == {"ce-time": str(2**62)}

    @pytest.mark.parametrize("known", [True, False])
    async def test_headers_too_long_for_the_server_are_refused_for_good_and_the_others_are_stored(
        self, known: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Seen or not: where the measure is wrong, the server ends the connection, and all would be said again for ever."""
        if not known:
            monkeypatch.setattr(publishing, "too_long", lambda *_: "")
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            frames = [Frame(topic=topic, id=str(n), key=f"k{n % 10}", body=b"x") for n in range(20)]
            frames[3] = msgspec.structs.replace(frames[3], headers={"h": "x" * 140_000})
            verdicts = await broker.publish(frames)
            assert [n for n, verdict in enumerate(verdicts) if not verdict.accepted] == [3, 13]
            assert (verdicts[3].final, verdicts[13]) == (True, BEHIND)
            again = await broker.publish(frames[:3])
            assert all(verdict.accepted for verdict in again), "the next call finds a connection"
            stream = await broker.subscribe(group, [topic])
            got = await self.gather_ids(stream, ids_of(frame for frame in frames if frame.key != "k3"))
            assert not ids(got) & {"3", "13"}

    async def _beside_a_stranger(self, kind: str) -> list[Delivery]:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            sent = await self.publish(broker, topic, 10, keys=8)
            await in_rabbitmq(self.node.url, topic, kind)
            sent += await self.publish(broker, topic, 10, keys=8)
            got = await self.collect(await broker.subscribe(group, [topic]), len(sent) + 1)
            assert ids_of(sent) < ids(got)
            return got

    async def make_broker(self) -> Broker:
        return RabbitmqBroker(self.node.url, clock=SystemClock(), partitions=4, settle=0, heartbeat=self.heartbeat)

    async def test_stress_10k(self) -> None:
        """With the heartbeat that is the default: who works hard beside others is late for one of a second, and the server
        ends its connections."""
        self.heartbeat = 5
        await super().test_stress_10k()

    async def make_doomed(self) -> Broker:
        """It is cut off as soon as it has nothing more to say, and its clock stands still."""
        self.tasks.create_task(self.proxy.cut_when_silent(0.5))
        url = self.node.url_of("shop", self.proxy.port)
        return RabbitmqBroker(url, clock=ManualClock(time.time()), partitions=4, settle=0, heartbeat=60, timeout=1.0)

    async def make_linked(self) -> tuple[Broker, Link]:
        url = self.node.url_of("shop", self.proxy.port)
        return RabbitmqBroker(url, clock=SystemClock(), partitions=4, settle=0, heartbeat=1, timeout=1.0), self.proxy

    async def make_restricted(self, topic: str) -> Broker:
        return RabbitmqBroker(self.node.url_of("reader"), clock=SystemClock())

    async def lose_frames(self, topic: str, group: str) -> int:
        return await from_rabbitmq(self.node.url, topic, group, lanes=4)


class TestRabbitmqManaged(SurveyingContract):
    """With the management API a survey sees everything."""

    @pytest.fixture(autouse=True)
    def _server(self, managed_rabbitmq_server: RabbitmqServer) -> None:
        self.node = managed_rabbitmq_server

    async def make_broker(self) -> Broker:
        return RabbitmqBroker(
            self.node.url, clock=SystemClock(), partitions=4, settle=0, heartbeat=1, management=self.node.management
        )


class TestRabbitmqPath(BrokerPathContract):
    knows_what_was_given_back = False
    can_count = False  # nobody knows whether a group was there before the first frame

    @pytest.fixture(autouse=True)
    def _server(self, rabbitmq_server: RabbitmqServer) -> None:
        self.url = rabbitmq_server.url

    async def make_broker(self) -> Broker:
        return RabbitmqBroker(self.url, clock=SystemClock(), partitions=4, settle=0)

    async def lose_frames(self, topic: str, group: str) -> int:
        return await from_rabbitmq(self.url, topic, group, lanes=4)
