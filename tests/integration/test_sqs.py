"""What is special to SNS and SQS: entries of a batch that are refused, queues and topics that are gone, renewed
visibility, and other people's clients. The emulator is moto; what AWS alone would say is said by a scripted server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import pytest_asyncio
from aiobotocore.session import get_session
from aiohttp import web
from cloudevents.core.bindings import http

from benchmarks import brokers
from benchmarks.reading import Scale
from posthouse.broker import Broker, Delivery, Frame, Stream, Topology
from posthouse.brokers import open_broker
from posthouse.brokers.sqs import SqsBroker
from posthouse.brokers.sqs.messages import queue_name, topic_name
from posthouse.clock import SystemClock, new_id
from posthouse.errors import BrokerError, BrokerUnavailable, ConfigurationError
from tests.kit.frames import collect, frames, ids
from tests.kit.servers.proxy import Proxy
from tests.kit.servers.sqs import SqsServer, running, url_at
from tests.kit.strangers import KEY, WIRES, hearing, telling

ARN = "arn:aws:{}:eu-central-1:123456789012:{}"


def opened(url: str) -> SqsBroker:
    broker = open_broker(f"{url}&visibility=3&poll=1", clock=SystemClock())
    assert isinstance(broker, SqsBroker)
    return broker


@pytest_asyncio.fixture
async def broker(sqs_server: SqsServer) -> AsyncIterator[SqsBroker]:
    broker = opened(sqs_server.url)
    yield broker
    await broker.aclose()


class Bare:
    """Somebody else's clients, which have no types."""

    def __init__(self, sns: Any, sqs: Any) -> None:
        self.sns = sns
        self.sqs = sqs

    async def queue(self, group: str, topic: str) -> str:
        return str((await self.sqs.get_queue_url(QueueName=queue_name(group, topic)))["QueueUrl"])


@pytest_asyncio.fixture
async def bare(sqs_server: SqsServer) -> AsyncIterator[Bare]:
    session, given = get_session(), {"region_name": "eu-central-1", "aws_access_key_id": "x"}
    given |= {"aws_secret_access_key": "y", "endpoint_url": f"http://127.0.0.1:{sqs_server.port}"}
    async with session.create_client("sns", **given) as sns, session.create_client("sqs", **given) as sqs:
        yield Bare(sns, sqs)


@pytest_asyncio.fixture
async def topic(broker: SqsBroker) -> str:
    name = f"shop.orders.order{new_id()[-6:]}"
    await broker.ensure(Topology(topics=[name], groups={"g": [name]}))
    return name


class Shifting(SystemClock):
    """The machine's clock, so many seconds off."""

    off = 0.0

    def now(self) -> float:
        return super().now() + self.off


@pytest.mark.parametrize("shift", [-3600.0, 3600.0], ids=["an hour back", "an hour ahead"])
async def test_a_clock_that_is_set_keeps_what_is_in_hand(sqs_server: SqsServer, topic: str, shift: float) -> None:
    """Renewed in time it stays with one member, and what waits there is not taken for lost."""
    clock = Shifting()
    first, second = (open_broker(f"{sqs_server.url}&visibility=3&poll=1", clock=of) for of in (clock, SystemClock()))
    try:
        assert all(verdict.accepted for verdict in await first.publish(frames(topic, 4)))
        holder, other = await first.subscribe("g", [topic]), await second.subscribe("g", [topic])
        in_hand = list(await holder.receive(2, 10))
        clock.off = shift
        seen: list[Delivery] = []
        for _ in range(6):  # twice as long as what is not renewed stays hidden
            seen += await other.receive(4, 1.0)
        assert len(in_hand) == 2
        assert seen == []
        await other.aclose()
        await holder.ack(in_hand)
        assert len(await collect(holder, 2)) == 2
        assert (await first.progress("g", [topic]))[topic].pending == 0
    finally:
        await first.aclose()
        await second.aclose()


# Publishing: what AWS says of each entry


@contextlib.asynccontextmanager
async def scripted(answer: Callable[[list[str]], tuple[int, str]]) -> AsyncIterator[tuple[SqsBroker, list[list[str]]]]:
    """A broker on a server that answers every PublishBatch as the script says, and what it was sent: one list of
    deduplication ids for each call. The script gives a status, and the error's code or the ids that are refused; those
    with a hyphen before them get no answer."""
    calls: list[list[str]] = []

    async def serve(request: web.Request) -> web.Response:
        form = parse_qs(await request.text())
        if form["Action"] != ["PublishBatch"]:
            return web.Response(text="<r><GetTopicAttributesResult/></r>", content_type="text/xml")
        prefix = "PublishBatchRequestEntries.member."
        numbers = [n for n in range(1, 11) if f"{prefix}{n}.Id" in form]
        calls.append([form[f"{prefix}{n}.MessageDeduplicationId"][0] for n in numbers])
        status, failures = answer(calls[-1])
        refused = failures.split(",") if status == 200 else []
        lines = []
        for n in numbers:
            entry, id_ = form[f"{prefix}{n}.Id"][0], form[f"{prefix}{n}.MessageDeduplicationId"][0]
            if f"-{id_}" in refused:
                continue
            if id_ in refused:
                lines.append(f"<Failed><member><Id>{entry}</Id><Code>Busy</Code><Message>m</Message></member></Failed>")
            else:
                lines.append(f"<Successful><member><Id>{entry}</Id><MessageId>m</MessageId></member></Successful>")
        failed = "".join(line[8:-9] for line in lines if line.startswith("<Failed>"))
        stored = "".join(line[12:-13] for line in lines if line.startswith("<Successful>"))
        text = f"<r><PublishBatchResult><Failed>{failed}</Failed><Successful>{stored}</Successful></PublishBatchResult></r>"
        if status != 200:
            text = f"<ErrorResponse><Error><Code>{failures}</Code><Message>no</Message></Error></ErrorResponse>"
        return web.Response(status=status, text=text, content_type="text/xml")

    application = web.Application()
    application.router.add_post("/", serve)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    url = f"sqs://a:b@eu-central-1?account=123456789012&endpoint=http://127.0.0.1:{port}"
    broker = open_broker(url, clock=SystemClock())
    assert isinstance(broker, SqsBroker)
    try:
        yield broker, calls
    finally:
        await broker.aclose()
        await runner.cleanup()


def numbered(*names: str) -> list[Frame]:
    """`a1` is the frame 1 of the key a."""
    return [Frame(topic="t", id=name, key=name[0], body=b"x") for name in names]


async def test_an_entry_that_is_refused_holds_back_its_key_and_no_other() -> None:
    async with scripted(lambda ids: (200, "a2")) as (broker, calls):
        verdicts = await broker.publish(numbered("a1", "b1", "a2", "b2", "a3", "b3"))
    assert [verdict.accepted for verdict in verdicts] == [True, True, False, True, False, True]
    assert "Busy" in verdicts[2].reason
    assert "earlier frame" in verdicts[4].reason
    assert not any(verdict.final for verdict in verdicts)
    assert "a3" not in {id_ for call in calls for id_ in call}


async def test_no_call_holds_two_frames_of_a_key_and_each_waits_for_its_elder() -> None:
    async with scripted(lambda ids: (200, "")) as (broker, calls):
        sent = numbered(*(f"{key}{n}" for n in range(5) for key in "abcdefghijklmnopqrstuvwxyz"))
        assert all(verdict.accepted for verdict in await broker.publish(sent))
    assert all(len({id_[0] for id_ in call}) == len(call) <= 10 for call in calls)
    for key in "az":
        assert [id_ for call in calls for id_ in call if id_[0] == key] == [f"{key}{n}" for n in range(5)]


@pytest.mark.parametrize(("status", "code"), [(503, "ServiceUnavailable"), (400, "Throttling"), (500, "InternalError")])
async def test_an_answer_that_says_nothing_is_unavailable_and_nothing_more_is_sent(status: int, code: str) -> None:
    async with scripted(lambda ids: (status, code)) as (broker, calls):
        with pytest.raises(BrokerUnavailable, match=code):
            await broker.publish(numbered("a1", "a2", "a3"))
    assert calls == [["a1"]]


async def test_an_entry_without_an_answer_counts_as_refused() -> None:
    async with scripted(lambda ids: (200, "-a1")) as (broker, _):
        verdicts = await broker.publish(numbered("a1", "b1", "a2"))
    assert [verdict.accepted for verdict in verdicts] == [False, True, False]
    assert "did not answer" in verdicts[0].reason


async def test_after_an_unknown_outcome_the_other_batches_are_not_sent() -> None:
    async with scripted(lambda ids: (500, "InternalError") if "0" in ids else (200, "")) as (broker, calls):
        with pytest.raises(BrokerUnavailable):
            await broker.publish([Frame(topic="t", id=str(n), body=b"x") for n in range(1000)])
    assert 0 < len(calls) < 100


async def test_a_batch_stays_under_the_bytes_that_sns_takes() -> None:
    async with scripted(lambda ids: (200, "")) as (broker, calls):
        sent = [Frame(topic="t", id=str(n), body=b"x" * 100_000) for n in range(12)]
        assert all(verdict.accepted for verdict in await broker.publish(sent))
    assert [len(call) for call in calls] == [2] * 6


async def test_a_right_that_is_missing_refuses_the_frames_of_its_topic() -> None:
    async with scripted(lambda ids: (403, "AuthorizationError")) as (broker, calls):
        verdicts = await broker.publish(numbered("a1", "a2"))
    assert [(verdict.accepted, verdict.final) for verdict in verdicts] == [(False, False)] * 2
    assert "AuthorizationError" in verdicts[0].reason
    assert calls == [["a1"]]


async def test_headers_that_make_a_frame_too_large_on_the_wire_refuse_it_for_good(
    broker: SqsBroker, topic: str
) -> None:
    """A control character is one byte for us, and six in the attribute."""
    large = Frame(topic=topic, id=new_id(), key="k", body=b"x", headers={"h": "\x01" * 60_000})
    verdict, behind = await broker.publish([large, Frame(topic=topic, id=new_id(), key="k", body=b"")])
    assert (verdict.accepted, verdict.final) == (False, True)
    assert "on the wire" in verdict.reason
    assert (behind.accepted, behind.final) == (False, False)


# Topics and queues that are gone, or not as we make them


async def test_a_topic_deleted_while_running_refuses_its_frames_and_others_flow(
    broker: SqsBroker, bare: Bare, topic: str
) -> None:
    other = f"{topic}.other"
    await broker.ensure(Topology(groups={"g": [other]}))
    await broker.publish(frames(topic, 1))
    await bare.sns.delete_topic(TopicArn=ARN.format("sns", topic_name(topic)))
    for _ in range(2):
        lost, stored = await broker.publish([*frames(topic, 1), *frames(other, 1)])
        assert (lost.accepted, lost.final) == (False, False)
        assert stored.accepted
    assert "does not exist" in lost.reason
    await broker.ensure(Topology(groups={"g": [topic]}))
    new = frames(topic, 1)
    assert (await broker.publish(new))[0].accepted
    assert new[0].id in ids(await collect(await broker.subscribe("g", [topic]), 2))


async def test_a_queue_deleted_while_running_is_told_and_made_again(broker: SqsBroker, bare: Bare, topic: str) -> None:
    stream = await broker.subscribe("g", [topic])
    await bare.sqs.delete_queue(QueueUrl=await bare.queue("g", topic))
    with pytest.raises(BrokerUnavailable, match="receive_message"):
        await stream.receive(10, 20.0)
    assert [check.judgement for check in await broker.checks() if "queue" in check.name] == ["fail"]
    await stream.aclose()
    again = await broker.subscribe("g", [topic])
    sent = frames(topic, 2)
    await broker.publish(sent)
    assert ids(await collect(again, 2)) == [frame.id for frame in sent]


async def test_a_server_that_is_not_there_is_unavailable_and_used_when_it_comes() -> None:
    """It comes back without anything, as a region of one's own that was made anew."""
    with running() as server:
        broker = opened(server.url)
        await broker.ensure(Topology(topics=["t"], groups={"g": ["t"]}))
        stream = await broker.subscribe("g", ["t"])
        server.end(signal.SIGKILL)
        with pytest.raises(BrokerUnavailable):
            await broker.publish(frames("t", 1))
        with pytest.raises(BrokerUnavailable):
            await stream.receive(1, 20.0)
        server.start()
        assert not (await broker.publish(frames("t", 1)))[0].accepted
        await broker.ensure(Topology(topics=["t"], groups={"g": ["t"]}))
        sent = frames("t", 3)
        assert all(verdict.accepted for verdict in await broker.publish(sent))
        assert ids(await collect(await broker.subscribe("g", ["t"]), 3)) == [frame.id for frame in sent]
        await broker.aclose()


async def test_subscribing_to_a_topic_that_does_not_exist_says_so(broker: SqsBroker, topic: str) -> None:
    with pytest.raises(BrokerError, match="Did you mean"):
        await broker.subscribe("g", [f"{topic}x"])


async def test_a_topic_that_cannot_be_named_is_refused(broker: SqsBroker) -> None:
    with pytest.raises(ConfigurationError, match="cannot be an SNS topic"):
        await broker.ensure(Topology(topics=["größe"]))
    (verdict,) = await broker.publish([Frame(topic="größe", id="1", body=b"")])
    assert not verdict.accepted


async def test_ensure_changes_nothing_that_exists(broker: SqsBroker, bare: Bare, topic: str) -> None:
    url = await bare.queue("g", topic)
    await bare.sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "77"})
    listed = await bare.sns.list_subscriptions_by_topic(TopicArn=ARN.format("sns", topic_name(topic)))
    (subscription,) = [found["SubscriptionArn"] for found in listed["Subscriptions"]]
    raw = {"SubscriptionArn": subscription, "AttributeName": "RawMessageDelivery", "AttributeValue": "false"}
    await bare.sns.set_subscription_attributes(**raw)
    await broker.ensure(Topology(topics=[topic], groups={"g": [topic]}))
    found = await bare.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])
    assert int(found["Attributes"]["VisibilityTimeout"]) == 77
    settings = await bare.sns.get_subscription_attributes(SubscriptionArn=subscription)
    assert settings["Attributes"]["RawMessageDelivery"] == "false"


async def test_checks_say_what_weakens_the_promise(broker: SqsBroker, bare: Bare, topic: str) -> None:
    assert {check.judgement for check in await broker.checks()} == {"ok"}
    assert not broker.sheet.notes
    url, grave = await bare.queue("g", topic), f"grave{new_id()[-6:]}.fifo"
    await bare.sqs.create_queue(QueueName=grave, Attributes={"FifoQueue": "true"})
    redrive = json.dumps({"deadLetterTargetArn": ARN.format("sqs", grave), "maxReceiveCount": 3})
    changes = {"RedrivePolicy": redrive, "FifoThroughputLimit": "perQueue", "MessageRetentionPeriod": "3600"}
    await bare.sqs.set_queue_attributes(QueueUrl=url, Attributes=changes)
    found = {check.name.rpartition(", ")[2]: check.judgement for check in await broker.checks()}
    assert (found["dead letters"], found["speed"], found["retention"]) == ("fail", "warn", "warn")
    assert any("perQueue" in note for note in broker.sheet.notes)


async def test_a_broker_that_has_used_nothing_checks_whose_account_it_is(broker: SqsBroker) -> None:
    (check,) = await broker.checks()
    assert "123456789012" in check.found


# Consuming: what is in a member's hands


async def test_what_is_handed_back_takes_along_what_waits_of_its_key(broker: SqsBroker, topic: str) -> None:
    """All ten came with one answer of SQS; the first is handed out and back before the others were handed out."""
    sent = frames(topic, 10)
    await broker.publish(sent)
    stream = await broker.subscribe("g", [topic])
    async with asyncio.timeout(20):
        while not stream._ready:
            assert list(await stream.receive(10, 0.0)) == []
            await asyncio.sleep(0.01)
    first = await collect(stream, 1, ack=False)
    assert ids(first) == [sent[0].id]
    await stream.nack(first)
    again = await collect(stream, 10)
    assert ids(again) == [frame.id for frame in sent]
    assert all(delivery.redelivered for delivery in again)


async def test_no_more_frames_are_in_hand_than_the_window_holds(broker: SqsBroker, topic: str) -> None:
    """Of many keys, so that SQS itself would give all of them; those that wait in the member count too."""
    await broker.publish(frames(topic, 30, keys=30))
    stream = await broker.subscribe("g", [topic], window=12)
    first = await collect(stream, 12, ack=False)
    assert list(await stream.receive(10, 0.5)) == []
    settings = await broker._topics.attributes(broker._topics.queues["g", topic])
    assert settings["ApproximateNumberOfMessagesNotVisible"] == "12"
    await stream.ack(first)
    assert len({*ids(first), *ids(await collect(stream, 18))}) == 30


async def test_what_waited_too_long_is_left_to_others_with_all_that_follows_of_its_key(
    broker: SqsBroker, topic: str
) -> None:
    """The renewal of the first never came through, that of the second did: the second must not be handed out."""
    sent = frames(topic, 2) + frames(topic, 3, keys=3)[1:]
    await broker.publish(sent)
    stream = await broker.subscribe("g", [topic])
    async with asyncio.timeout(20):
        while len(stream._ready) < 4:
            assert list(await stream.receive(10, 0.0)) == []
            await asyncio.sleep(0.01)
    stream._until[next(iter(stream._until))] = 0.0
    assert {delivery.frame.key for delivery in await stream.receive(10, 0.0)} == {"k1", "k2"}
    again = await collect(stream, 2)
    assert ids(again) == [frame.id for frame in sent[:2]]
    assert all(delivery.redelivered for delivery in again)


async def test_a_member_that_leaves_hands_over_at_once(sqs_server: SqsServer, topic: str) -> None:
    """And not after the 30 s of its visibility."""
    broker = open_broker(f"{sqs_server.url}&visibility=30&poll=1", clock=SystemClock())
    leaver, stayer = await broker.subscribe("g", [topic]), await broker.subscribe("g", [topic])
    sent = frames(topic, 4, keys=4)
    await broker.publish(sent)
    await collect(leaver, 4, ack=False)
    await leaver.aclose()
    async with asyncio.timeout(20):
        assert set(ids(await collect(stayer, 4))) == {frame.id for frame in sent}
    await broker.aclose()


@contextlib.asynccontextmanager
async def unheard(server: SqsServer, topic: str) -> AsyncIterator[tuple[Broker, Stream, Sequence[Delivery]]]:
    """Three frames whose acknowledgement did not arrive, long before they would come again; the link is well again."""
    async with Proxy("127.0.0.1", server.port) as proxy:
        broker = open_broker(f"{url_at(proxy.port)}&visibility=30&poll=1&timeout=5", clock=SystemClock())
        stream = await broker.subscribe("g", [topic])
        await broker.publish(frames(topic, 3))
        got = await collect(stream, 3, ack=False)
        await proxy.cut()
        with pytest.raises(BrokerUnavailable, match="did not delete 3"):
            await stream.ack(got)
        await proxy.heal()
        yield broker, stream, got
        await broker.aclose()


async def test_an_acknowledgement_that_did_not_arrive_is_told_and_can_be_said_again(
    sqs_server: SqsServer, topic: str
) -> None:
    async with unheard(sqs_server, topic) as (broker, stream, got):
        await stream.ack(got)
        assert (await broker.progress("g", [topic]))[topic].pending == 0


async def test_an_acknowledgement_that_did_not_arrive_is_said_again_by_itself(
    sqs_server: SqsServer, topic: str
) -> None:
    """Nobody asks for it, and long before the 30 s after which the frames would come again: the next of the key comes."""
    async with unheard(sqs_server, topic) as (broker, stream, _):
        later = frames(topic, 2)
        await broker.publish(later)
        async with asyncio.timeout(20):
            assert ids(await received(stream, 2)) == [frame.id for frame in later]


async def received(stream: Stream, count: int) -> list[Delivery]:
    """As `collect`; polls that failed with the link are begun again."""
    while True:
        with contextlib.suppress(BrokerUnavailable):
            return await collect(stream, count)


async def test_a_poll_that_was_on_its_way_hands_back_what_it_brings(sqs_server: SqsServer, topic: str) -> None:
    broker = open_broker(f"{sqs_server.url}&visibility=30&poll=1", clock=SystemClock())
    leaver, stayer = await broker.subscribe("g", [topic]), await broker.subscribe("g", [topic])
    assert list(await leaver.receive(10, 0.2)) == []
    closing = asyncio.create_task(leaver.aclose())
    sent = frames(topic, 3, keys=3)
    await broker.publish(sent)
    await closing
    async with asyncio.timeout(20):
        assert set(ids(await collect(stayer, 3))) == {frame.id for frame in sent}
    await broker.aclose()


async def test_frames_in_hand_are_renewed_until_they_are_acknowledged(broker: SqsBroker, topic: str) -> None:
    """For two visibility timeouts and more nobody else gets them, and the receipt still holds."""
    await broker.publish(frames(topic, 3, keys=3))
    got = await collect(await broker.subscribe("g", [topic]), 3, ack=False)
    other = await broker.subscribe("g", [topic])
    assert list(await other.receive(10, 7.0)) == []
    (holder,) = [stream for stream in broker._streams if stream is not other]
    await holder.ack(got)
    assert (await broker.progress("g", [topic]))[topic].pending == 0


async def test_a_repeat_of_a_key_without_order_is_dropped_within_the_window(broker: SqsBroker, topic: str) -> None:
    frame = Frame(topic=topic, id=new_id(), body=b"x")
    for _ in range(3):
        assert (await broker.publish([frame]))[0].accepted
    stream = await broker.subscribe("g", [topic])
    assert ids(await collect(stream, 1)) == [frame.id]
    assert list(await stream.receive(10, 0.5)) == []


# Other people's clients


@WIRES
async def test_a_bare_consumer_and_the_cloudevents_sdk_read_what_we_publish(
    broker: SqsBroker, bare: Bare, tmp_path: Path, wire: str
) -> None:
    """Structured events are the body; of binary ones the headers are in the attribute `posthouse`, which is JSON."""
    async with telling(broker, tmp_path, wire) as orders:
        await broker.ensure(Topology(groups={"theirs": [orders.topic]}))
        event_id = await orders.tell()
        url = await bare.queue("theirs", orders.topic)
        got = await bare.sqs.receive_message(QueueUrl=url, WaitTimeSeconds=10, MessageAttributeNames=["All"])
        (message,) = got["Messages"]
        note = json.loads(message["MessageAttributes"]["posthouse"]["StringValue"])
        orders.assert_told(
            http.from_http_event(http.HTTPMessage(headers=note["headers"], body=message["Body"].encode()))
        )
        assert note["key"] == KEY
        if wire == "structured":
            assert json.loads(message["Body"])["id"] == event_id


@WIRES
async def test_we_apply_what_a_bare_publisher_and_the_cloudevents_sdk_say(
    broker: SqsBroker, bare: Bare, tmp_path: Path, wire: str
) -> None:
    async with hearing(broker, tmp_path) as billing:
        message = billing.message(wire)
        await bare.sns.publish(
            TopicArn=ARN.format("sns", topic_name(billing.topic)),
            Message=message.body.decode(),
            MessageGroupId="t1:o1",
            MessageDeduplicationId="their-1",
            MessageAttributes={
                name: {"DataType": "String", "StringValue": value} for name, value in message.headers.items()
            },
        )
        await billing.assert_heard()


async def test_a_bare_message_has_its_deduplication_id_as_id(broker: SqsBroker, bare: Bare, topic: str) -> None:
    arn = ARN.format("sns", topic_name(topic))
    await bare.sns.publish(TopicArn=arn, Message="hello", MessageGroupId="theirs", MessageDeduplicationId="d1")
    (delivery,) = await collect(await broker.subscribe("g", [topic]), 1)
    assert delivery.frame == Frame(topic=topic, id="d1", key="theirs", body=b"hello")


async def test_the_benchmark_of_sqs_measures_what_it_says(sqs_server: SqsServer, tmp_path: Path) -> None:
    readings = await brokers.measure("sqs", tmp_path, Scale(share=0.0, rounds=1))
    assert [reading.measure for reading in readings] == ["sqs publish", "sqs receive", "sqs consume, once only"]
    assert all(reading.ours > 0 and reading.ratio for reading in readings)
