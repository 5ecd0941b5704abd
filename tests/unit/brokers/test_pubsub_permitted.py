"""What an account of Pub/Sub may do, as the service says it: an answer names those permissions that whoever asks has, and of a resource
that is not there none. The server here answers so; no emulator knows policies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from google.iam.v1 import iam_policy_pb2 as iam  # type: ignore[import-untyped]  # Google types its newer clients alone
from google.pubsub_v1.types import (
    ListSubscriptionsRequest,
    ListSubscriptionsResponse,
    ListTopicsRequest,
    ListTopicsResponse,
    Subscription,
    Topic,
)

from posthouse.brokers.pubsub import PubSubBroker
from posthouse.clock import SystemClock
from posthouse.survey import Wish

HERE = "projects/acme"
PUBLISH, ATTACH, CONSUME = "pubsub.topics.publish", "pubsub.topics.attachSubscription", "pubsub.subscriptions.consume"
WISHES = [
    Wish("publish", "town.bills"),
    Wish("read", "town.orders"),
    Wish("publish", "town.orders"),
    Wish("publish"),
    Wish("read"),
]


class Project:
    """With policies; `hides`: whoever asks may list nothing."""

    def __init__(self) -> None:
        self.allowed: set[tuple[str, str]] = set()
        self.hides = False

    async def topics(self, _: Any, context: Any) -> ListTopicsResponse:
        if self.hides:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "pubsub.topics.list")
        names = ("town.bills", "town.orders", "town.letters")
        return ListTopicsResponse(topics=[Topic(name=f"{HERE}/topics/{name}") for name in names])

    async def subscriptions(self, _: Any, context: Any) -> ListSubscriptionsResponse:
        names = ("town.orders", "town.letters")
        return ListSubscriptionsResponse(
            subscriptions=[
                Subscription(name=f"{HERE}/subscriptions/billing.{name}.sub", topic=f"{HERE}/topics/{name}")
                for name in names
            ]
        )

    async def judge(self, asked: Any, context: Any) -> Any:
        name = asked.resource.rpartition("/")[2]
        return iam.TestIamPermissionsResponse(
            permissions=[one for one in asked.permissions if (name, one) in self.allowed]
        )

    def handlers(self, *, judges: bool) -> list[grpc.GenericRpcHandler]:
        def method(call: Callable[..., Any], reads: Any, writes: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(call, request_deserializer=reads, response_serializer=writes)

        found = [
            ("google.pubsub.v1.Publisher", "ListTopics", method(self.topics, ListTopicsRequest.deserialize, ListTopicsResponse.serialize)),
            ("google.pubsub.v1.Subscriber", "ListSubscriptions", method(self.subscriptions, ListSubscriptionsRequest.deserialize, ListSubscriptionsResponse.serialize)),
        ]  # fmt: skip
        if judges:
            writes = iam.TestIamPermissionsResponse.SerializeToString
            reads = iam.TestIamPermissionsRequest.FromString
            found.append(("google.iam.v1.IAMPolicy", "TestIamPermissions", method(self.judge, reads, writes)))
        return [grpc.method_handlers_generic_handler(service, {name: handler}) for service, name, handler in found]


@pytest.fixture(params=[True])
async def project(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Project, PubSubBroker]]:
    made, server = Project(), grpc.aio.server()
    server.add_generic_rpc_handlers(tuple(made.handlers(judges=request.param)))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    broker = PubSubBroker("acme", clock=SystemClock(), emulator=f"127.0.0.1:{port}")
    yield made, broker
    await broker.aclose()
    await server.stop(None)


async def test_an_account_that_fits_may_what_it_needs_and_nothing_else(project: tuple[Project, PubSubBroker]) -> None:
    made, broker = project
    made.allowed = {("town.bills", PUBLISH), ("billing.town.orders.sub", CONSUME)}
    assert await broker.permitted(WISHES) == [True, True, False, False, False]


async def test_what_is_lacking_and_what_is_too_much_is_seen(project: tuple[Project, PubSubBroker]) -> None:
    made, broker = project
    made.allowed = {("town.orders", PUBLISH), ("town.letters", PUBLISH), ("billing.town.letters.sub", CONSUME)}
    assert await broker.permitted(WISHES) == [False, False, True, True, True]
    made.allowed = {("town.letters", ATTACH)}
    assert await broker.permitted(WISHES) == [False, False, False, False, True]


async def test_of_a_topic_that_is_not_there_nobody_can_tell(project: tuple[Project, PubSubBroker]) -> None:
    assert await project[1].permitted([Wish("publish", "town.nowhere")]) == [None]


async def test_an_account_that_may_list_nothing_is_not_judged(project: tuple[Project, PubSubBroker]) -> None:
    made, broker = project
    made.hides = True
    assert await broker.permitted(WISHES) == [None] * len(WISHES)


@pytest.mark.parametrize("project", [False], indirect=True)
async def test_an_emulator_without_policies_is_not_taken_for_a_yes_or_a_no(
    project: tuple[Project, PubSubBroker],
) -> None:
    assert await project[1].permitted(WISHES) == [None] * len(WISHES)
