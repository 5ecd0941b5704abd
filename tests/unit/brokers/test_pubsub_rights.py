"""A service whose account may make nothing on Pub/Sub works with what was made beforehand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import pytest
from google.pubsub_v1.types import GetTopicRequest, Topic

from posthouse.broker import Topology
from posthouse.brokers.pubsub import PubSubBroker
from posthouse.clock import SystemClock
from posthouse.errors import BrokerError

SERVICE = "google.pubsub.v1.Publisher"


class Project:
    """A server that refuses to make topics and shows those in `there`; the ones in `hidden` it does not show either."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.hidden: set[str] = set()

    async def create(self, _: Topic, context: grpc.aio.ServicerContext[Topic, Topic]) -> Topic:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "pubsub.topics.create")

    async def get(self, request: GetTopicRequest, context: grpc.aio.ServicerContext[GetTopicRequest, Topic]) -> Topic:
        name = request.topic.rpartition("/")[2]
        if name in self.hidden:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "pubsub.topics.get")
        if name not in self.there:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such topic")
        return Topic(name=request.topic)

    @property
    def handler(self) -> grpc.GenericRpcHandler:
        methods: dict[str, tuple[Callable[..., Awaitable[Topic]], type[Topic] | type[GetTopicRequest]]] = {
            "CreateTopic": (self.create, Topic),
            "GetTopic": (self.get, GetTopicRequest),
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                method, request_deserializer=kind.deserialize, response_serializer=Topic.serialize
            )
            for name, (method, kind) in methods.items()
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)


@pytest.fixture
async def project() -> AsyncIterator[tuple[Project, PubSubBroker]]:
    made = Project()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((made.handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    broker = PubSubBroker("acme", clock=SystemClock(), emulator=f"127.0.0.1:{port}")
    yield made, broker
    await broker.aclose()
    await server.stop(None)


async def test_topics_that_exist_are_enough(project: tuple[Project, PubSubBroker]) -> None:
    made, broker = project
    made.there = {"shop.orders", "shop.orders.dlq"}
    await broker.ensure(Topology(topics=["shop.orders", "shop.orders.dlq"]))


async def test_a_topic_that_is_missing_is_named(project: tuple[Project, PubSubBroker]) -> None:
    made, broker = project
    made.there = {"shop.orders"}
    with pytest.raises(BrokerError, match=r"may not make topic 'shop\.billing'.*there is none: make it beforehand"):
        await broker.ensure(Topology(topics=["shop.orders", "shop.billing"]))


async def test_who_may_not_even_look_is_told_which_right_is_missing(project: tuple[Project, PubSubBroker]) -> None:
    made, broker = project
    made.hidden = {"shop.orders"}
    with pytest.raises(BrokerError, match=r"may not see it: grant it pubsub\.viewer"):
        await broker.ensure(Topology(topics=["shop.orders"]))
