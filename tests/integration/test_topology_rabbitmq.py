"""A survey of RabbitMQ, with its management API and by AMQP alone: what each can see, and what can be mended."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from urllib.request import Request, urlopen

import aio_pika
import pytest
import pytest_asyncio
from aio_pika.abc import AbstractChannel
from pamqp.common import FieldTable

from posthouse.broker import Frame, Topology
from posthouse.brokers.rabbitmq import RabbitmqBroker
from posthouse.clock import SystemClock, new_id
from posthouse.errors import BrokerError, BrokerUnavailable
from posthouse.survey import Resource
from posthouse.topology import Step, carry_out, plan
from tests.integration.grounds import Ground
from tests.kit.servers.rabbitmq import RabbitmqServer

LANE: FieldTable = {"x-queue-type": "quorum", "x-single-active-consumer": True, "x-delivery-limit": 1_000_000_000}
PATIENCE = 30.0


class OurGround(Ground):
    def lane(self, number: int) -> str:
        return f"{self.group}.{self.topic}.{number}of2"


@pytest.fixture
def ground() -> OurGround:
    return OurGround()


@pytest.fixture(params=["managed", "by AMQP alone"])
def managed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "managed")


def opened(server: RabbitmqServer, *, managed: bool = True, partitions: int = 2) -> RabbitmqBroker:
    management = server.management if managed else None
    return RabbitmqBroker(
        server.url, clock=SystemClock(), partitions=partitions, heartbeat=1, settle=0, management=management
    )


@pytest_asyncio.fixture
async def broker(managed_rabbitmq_server: RabbitmqServer, managed: bool) -> AsyncIterator[RabbitmqBroker]:
    made = opened(managed_rabbitmq_server, managed=managed)
    yield made
    await made.aclose()


@pytest_asyncio.fixture
async def seeing(managed_rabbitmq_server: RabbitmqServer) -> AsyncIterator[RabbitmqBroker]:
    made = opened(managed_rabbitmq_server)
    yield made
    await made.aclose()


@pytest_asyncio.fixture
async def bare(managed_rabbitmq_server: RabbitmqServer) -> AsyncIterator[AbstractChannel]:
    """Somebody else's client."""
    async with await aio_pika.connect(managed_rabbitmq_server.url.replace("rabbitmq", "amqp")) as connection:
        yield await connection.channel()


def differences(step: Step) -> set[tuple[str, str, str]]:
    return {(drift.setting, drift.found, drift.wanted) for drift in step.drift}


async def test_arguments_of_a_queue_stay_for_life_and_are_shown_with_what_to_do(
    broker: RabbitmqBroker, bare: AbstractChannel, ground: OurGround
) -> None:
    await broker.ensure(Topology(topics=[ground.topic]))
    for number in range(2):
        await bare.declare_queue(ground.lane(number), durable=True, arguments={**LANE, "x-max-length": 9})
    await broker.ensure(ground.wanted)
    exchange = await bare.get_exchange(ground.topic)
    for number, patterns in enumerate((["0.#", ""], ["1.#"])):
        for pattern in patterns:
            await (await bare.get_queue(ground.lane(number))).bind(exchange, pattern)
    (step,) = await plan(broker, ground.wanted, ground.scope)
    assert differences(step) == {("x-max-length", "9", "none")}
    assert "make it anew" in step.blocked
    assert await carry_out(broker, ground.wanted, [step], allow_delete=True) == []


async def test_a_lane_that_is_gone_is_made_again_with_its_bindings(
    broker: RabbitmqBroker, bare: AbstractChannel, ground: OurGround
) -> None:
    await broker.ensure(ground.wanted)
    await bare.queue_delete(ground.lane(1))
    (step,) = await plan(broker, ground.wanted, ground.scope)
    assert differences(step) == {("lanes", "1", "2")}
    assert await carry_out(broker, ground.wanted, [step], allow_delete=False) == [step]
    assert await plan(broker, ground.wanted, ground.scope) == []
    await every_key_arrives(broker, ground)


async def test_a_binding_that_is_gone_is_seen_with_the_management_api_and_mended(
    seeing: RabbitmqBroker, bare: AbstractChannel, ground: OurGround
) -> None:
    """The worst of all: what is published goes to the other lanes, and nobody says a word."""
    await seeing.ensure(ground.wanted)
    queue = await bare.get_queue(ground.lane(1))
    await queue.unbind(ground.topic, "1.#")
    (step,) = await plan(seeing, ground.wanted, ground.scope)
    assert differences(step) == {("bindings", "2", "3")}
    await carry_out(seeing, ground.wanted, [step], allow_delete=False)
    assert await plan(seeing, ground.wanted, ground.scope) == []
    await every_key_arrives(seeing, ground)


async def every_key_arrives(broker: RabbitmqBroker, ground: OurGround) -> None:
    sent = [Frame(topic=ground.topic, id=new_id(), key=f"k{n}", body=b"x") for n in range(20)]
    assert all(verdict.accepted for verdict in await broker.publish(sent))
    stream = await broker.subscribe(ground.group, [ground.topic])
    got: set[str] = set()
    async with asyncio.timeout(PATIENCE):
        while len(got) < len(sent):
            deliveries = await stream.receive(20, 1.0)
            got |= {delivery.frame.id for delivery in deliveries}
            await stream.ack(deliveries)
    assert got == {frame.id for frame in sent}


async def test_a_group_that_lost_every_binding_is_still_found(
    seeing: RabbitmqBroker, bare: AbstractChannel, ground: OurGround
) -> None:
    await seeing.ensure(ground.wanted)
    for number, patterns in enumerate((["0.#", ""], ["1.#"])):
        for pattern in patterns:
            await (await bare.get_queue(ground.lane(number))).unbind(ground.topic, pattern)
    (step,) = await plan(seeing, ground.wanted, ground.scope)
    assert differences(step) == {("bindings", "0", "3")}


async def test_what_keeps_unread_frames_is_made_again(
    broker: RabbitmqBroker, bare: AbstractChannel, ground: OurGround
) -> None:
    rest = f"{ground.topic}.unread"
    await broker.ensure(Topology(topics=[ground.topic]))
    await bare.queue_delete(rest)
    wanted = Topology(topics=[ground.topic])
    (step,) = await plan(broker, wanted, ground.scope)
    assert differences(step) == {(f"queue {rest}", "missing", "there")}
    await carry_out(broker, wanted, [step], allow_delete=False)
    assert await plan(broker, wanted, ground.scope) == []
    (verdict,) = await broker.publish([Frame(topic=ground.topic, id=new_id(), body=b"x")])
    assert verdict.accepted


async def test_a_number_of_lanes_is_fixed_and_an_exchange_of_another_kind_is_told(
    managed_rabbitmq_server: RabbitmqServer,
    broker: RabbitmqBroker,
    bare: AbstractChannel,
    ground: OurGround,
    managed: bool,
) -> None:
    await broker.ensure(ground.wanted)
    theirs = f"{ground.topic}.theirs"
    await bare.declare_exchange(theirs, "fanout", durable=True)
    four = opened(managed_rabbitmq_server, managed=managed, partitions=4)
    try:
        wanted = Topology(topics=[ground.topic, theirs], groups=ground.wanted.groups)
        places = {(resource.topic, resource.group): resource for resource in await four.survey(wanted)}
        (lanes,) = places[ground.topic, ground.group].drift
        assert (lanes.setting, lanes.found, lanes.repairable) == ("partitions", "2", False)
        kind = {drift.setting: drift for drift in places[theirs, None].drift}["type"]
        assert (kind.found, kind.wanted, kind.repairable) == ("fanout", "topic", False)
    finally:
        await four.aclose()


def told(server: RabbitmqServer, method: str, path: str, value: object) -> None:
    """To the management API."""
    word = base64.b64encode(b"shop:shop").decode()
    headers = {"Authorization": f"Basic {word}", "Content-Type": "application/json"}
    request = Request(f"{server.management}/api/{path}", json.dumps(value).encode(), headers, method=method)
    with urlopen(request, timeout=PATIENCE):
        pass


async def test_a_policy_that_takes_frames_away_is_named(
    managed_rabbitmq_server: RabbitmqServer, seeing: RabbitmqBroker, ground: OurGround
) -> None:
    await seeing.ensure(ground.wanted)
    policy = {"pattern": f"^{ground.group}", "definition": {"max-length": 5}, "apply-to": "queues"}
    told(managed_rabbitmq_server, "PUT", f"policies/%2F/{ground.group}", policy)
    async with asyncio.timeout(PATIENCE):
        while not (steps := await plan(seeing, ground.wanted, ground.scope)):
            pass  # what the server lists is a little old
    (step,) = steps
    assert differences(step) == {("policy max-length", "5", "none")}
    assert repr(ground.group) in step.blocked


async def test_a_topic_that_somebody_elses_queue_takes_from_is_not_removed(
    broker: RabbitmqBroker, bare: AbstractChannel, ground: OurGround, managed: bool
) -> None:
    await broker.ensure(ground.wanted)
    theirs = await bare.declare_queue(f"theirs{ground.namespace}", durable=True)
    await theirs.bind(ground.topic, "#")
    resources = await ours(broker, ground)
    assert {resource.group for resource in resources} == {None, ground.group}
    with pytest.raises(BrokerError, match=f"read by {theirs.name}" if managed else "AMQP does not name"):
        await broker.remove(resources)
    assert [resource.group for resource in await ours(broker, ground) if resource.exists] == [None]


async def ours(broker: RabbitmqBroker, ground: OurGround) -> Sequence[Resource]:
    return [resource for resource in await broker.survey(ground.wanted) if resource.topic == ground.topic]


async def test_exchanges_of_other_people_are_not_ours_to_see(
    seeing: RabbitmqBroker, bare: AbstractChannel, ground: OurGround
) -> None:
    await bare.declare_exchange(f"{ground.namespace}.orders.old", "topic", durable=True)
    assert await plan(seeing, Topology(), ground.scope) == []


async def test_nothing_is_left_of_what_was_removed(
    broker: RabbitmqBroker, bare: AbstractChannel, ground: OurGround
) -> None:
    await broker.ensure(ground.wanted)
    await broker.remove(await ours(broker, ground))
    for queue in (f"{ground.topic}.unread", ground.lane(0), ground.lane(1)):
        with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity):
            await (await bare_again(bare)).declare_queue(queue, passive=True)


async def bare_again(bare: AbstractChannel) -> AbstractChannel:
    """A wrong question closes its channel."""
    if bare.is_closed:
        await bare.reopen()
    return bare


async def test_a_management_api_that_refuses_or_is_not_there_is_told(managed_rabbitmq_server: RabbitmqServer) -> None:
    refused = managed_rabbitmq_server.management.replace("http://", "http://shop:wrong@")
    for url, error, says in (
        (refused, BrokerError, "management"),
        ("http://127.0.0.1:1", BrokerUnavailable, "127.0.0.1:1"),
        (f"{managed_rabbitmq_server.management}/elsewhere", BrokerError, "elsewhere"),
    ):
        broker = RabbitmqBroker(managed_rabbitmq_server.url, clock=SystemClock(), management=url)
        try:
            with pytest.raises(error, match=says):
                await broker.survey(Topology())
        finally:
            await broker.aclose()


async def test_a_survey_tells_rabbitmq_what_to_judge(
    managed_rabbitmq_server: RabbitmqServer, broker: RabbitmqBroker, ground: OurGround, managed: bool
) -> None:
    await broker.ensure(ground.wanted)
    judge = opened(managed_rabbitmq_server, managed=managed)
    try:
        await judge.survey(ground.wanted)
        names = {check.name for check in await judge.checks()}
        assert {f"topic {ground.topic}", f"lanes of {ground.group} in {ground.topic}"} <= names
    finally:
        await judge.aclose()


async def test_what_a_user_may_not_compare_is_not_said_to_be_right(
    managed_rabbitmq_server: RabbitmqServer, seeing: RabbitmqBroker, ground: OurGround
) -> None:
    await seeing.ensure(ground.wanted)
    reader = RabbitmqBroker(managed_rabbitmq_server.url_of("reader"), clock=SystemClock(), partitions=2)
    try:
        (step,) = await plan(reader, Topology(topics=[ground.topic]), ground.scope)
        assert [(drift.setting, drift.found) for drift in step.drift] == [("settings", "hidden")]
        assert "configure" in step.blocked
        topic = {check.name: check for check in await reader.checks()}[f"topic {ground.topic}"]
        assert topic.judgement == "warn"
    finally:
        await reader.aclose()
