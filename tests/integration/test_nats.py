"""What is special to NATS: full, deleted and foreign streams, servers that take no batches, and other people's clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
import pytest_asyncio
from cloudevents.core.bindings import http
from nats.js import JetStreamContext, api

from benchmarks import brokers
from benchmarks.reading import Scale
from posthouse.broker import Delivery, Frame, Stream, Topology
from posthouse.brokers.nats import NatsBroker
from posthouse.brokers.nats.log import NatsLog
from posthouse.brokers.nats.reader import Reader
from posthouse.clock import SystemClock, new_id
from posthouse.errors import BrokerError, BrokerUnavailable, ConfigurationError
from tests.kit.frames import collect, frames
from tests.kit.servers.nats import NatsServer, running
from tests.kit.servers.proxy import Proxy
from tests.kit.strangers import KEY, WIRES, hearing, telling
from tests.kit.waiting import eventually


@pytest_asyncio.fixture
async def broker(nats_server: NatsServer) -> AsyncIterator[NatsBroker]:
    broker = NatsBroker(nats_server.url, clock=SystemClock(), lease=0.6, dedup=2.0)
    yield broker
    await broker.aclose()


@pytest_asyncio.fixture
async def bare(nats_server: NatsServer) -> AsyncIterator[JetStreamContext]:
    """Somebody else's client."""
    client = await nats.connect(nats_server.url)
    yield client.jetstream()
    await client.close()


@pytest_asyncio.fixture
async def topic(broker: NatsBroker) -> str:
    name = f"shop.orders.order{new_id()[-6:]}"
    await broker.ensure(Topology(topics=[name]))
    return name


def stream_of(topic: str) -> str:
    return topic.replace(".", "_")


# Streams that are full, gone, or not ours


async def test_a_full_stream_refuses_and_nothing_overtakes(
    broker: NatsBroker, bare: JetStreamContext, topic: str
) -> None:
    """A small frame would still fit where a large one of its key did not."""
    config = (await bare.stream_info(stream_of(topic))).config
    config.max_bytes = 3000
    await bare.update_stream(config)
    large, small, other = (
        Frame(topic=topic, id=new_id(), key="k1", body=bytes(5000)),
        Frame(topic=topic, id=new_id(), key="k1", body=b"small"),
        Frame(topic=topic, id=new_id(), key="k2", body=b"other"),
    )
    verdicts = await broker.publish([large, small, other])
    assert [(verdict.accepted, verdict.final) for verdict in verdicts] == [
        (False, False),
        (False, False),
        (True, False),
    ]
    assert "maximum bytes" in verdicts[0].reason
    config.max_bytes = 1_000_000
    await bare.update_stream(config)
    assert all(verdict.accepted for verdict in await broker.publish([large, small]))
    stream = await broker.subscribe("g", [topic])
    got = [delivery.frame.body for delivery in await collect(stream, 3) if delivery.frame.key == "k1"]
    assert got == [bytes(5000), b"small"]


async def test_a_topic_deleted_while_running_refuses_its_frames_and_others_flow(
    broker: NatsBroker, bare: JetStreamContext, topic: str
) -> None:
    other = f"{topic}.other"
    await broker.ensure(Topology(topics=[other]))
    stream = await broker.subscribe("g", [topic, other])
    await broker.publish(frames(topic, 3))
    await collect(stream, 3)
    await bare.delete_stream(stream_of(topic))
    lost, stored = await broker.publish([*frames(topic, 1), *frames(other, 1)])
    assert (lost.accepted, lost.final) == (False, False)
    assert "does not exist" in lost.reason
    assert stored.accepted
    assert [delivery.frame.topic for delivery in await collect(stream, 1)] == [other]


async def test_a_stream_that_was_made_anew_hides_nothing(
    broker: NatsBroker, bare: JetStreamContext, topic: str
) -> None:
    """Its positions begin at 1 again, below the cursor of the group."""
    stream = await broker.subscribe("g", [topic])
    await broker.publish(frames(topic, 20))
    await collect(stream, 20)
    await bare.delete_stream(stream_of(topic))
    maker = NatsBroker(broker._client._servers[0], clock=SystemClock())
    await maker.ensure(Topology(topics=[topic]))
    new = frames(topic, 3)
    assert all(verdict.accepted for verdict in await maker.publish(new))
    assert [delivery.frame.id for delivery in await collect(stream, 3)] == [frame.id for frame in new]
    await maker.aclose()


async def test_a_group_knows_whether_it_was_there_before_frames_went(
    broker: NatsBroker, bare: JetStreamContext, topic: str
) -> None:
    await broker.ensure(Topology(groups={"g": [topic]}))
    await broker.publish(frames(topic, 6))
    await bare.purge_stream(stream_of(topic))
    await broker.ensure(Topology(groups={"later": [topic]}))
    await broker.publish(frames(topic, 2))
    found = {group: (await broker.progress(group, [topic]))[topic] for group in ("g", "later", "never")}
    assert {group: (one.pending, one.truncated, one.whole) for group, one in found.items()} == {
        "g": (2, True, True),
        "later": (2, True, False),
        "never": (2, True, False),
    }


async def test_a_stream_that_was_emptied_goes_on(broker: NatsBroker, bare: JetStreamContext, topic: str) -> None:
    """A purge leaves the positions as they are, and so the cursors."""
    stream = await broker.subscribe("g", [topic])
    await broker.publish(frames(topic, 5))
    await collect(stream, 5)
    await bare.purge_stream(stream_of(topic))
    new = frames(topic, 2)
    await broker.publish(new)
    assert [delivery.frame.id for delivery in await collect(stream, 2)] == [frame.id for frame in new]


@pytest.mark.parametrize("new", [3, 40], ids=["fewer than were lost", "more than were lost"])
async def test_a_stream_restored_without_its_end_hides_nothing_that_it_took_since(new: int) -> None:
    """The positions of what was lost are given again, to other frames."""
    with running() as server:
        broker = NatsBroker(server.url, clock=SystemClock(), lease=0.6)
        await broker.ensure(Topology(topics=["t"]))
        await broker.publish(frames("t", 5, keys=4))
        server.back_up("t")
        stream = await _subscribed(broker, "t")
        await _published(broker, frames("t", 20, keys=4))
        await collect(stream, 25)
        server.restore("t")
        sent = frames("t", new, keys=4)
        await _published(broker, sent)
        got: set[str] = set()
        async with asyncio.timeout(20):
            while not {frame.id for frame in sent} <= got:
                with contextlib.suppress(BrokerUnavailable):
                    batch = await stream.receive(100, 1.0)
                    got |= {delivery.frame.id for delivery in batch}
                    await stream.ack(batch)
        await broker.aclose()


@pytest.mark.parametrize("knew", [True, False], ids=["whoever read it goes on", "an heir goes on"])
async def test_a_stream_restored_without_its_end_hides_nothing_where_it_was_acknowledged_out_of_order(
    knew: bool,
) -> None:
    """The positions of what was acknowledged behind the cursor are given again, to other frames."""
    with running() as server:
        broker = NatsBroker(server.url, clock=SystemClock(), lease=0.6)
        await broker.ensure(Topology(topics=["t"]))
        await broker.publish(frames("t", 3))
        server.back_up("t")
        stream = await _subscribed(broker, "t")
        await _published(broker, frames("t", 5))
        got = await collect(stream, 8, ack=False)
        await stream.ack([*got[:3], *got[6:]])
        await stream.aclose()
        if knew:
            stream = await broker.subscribe("g", ["t"])
            assert len(await collect(stream, 3, ack=False)) == 3
        server.restore("t")
        sent = frames("t", 5)
        await _published(broker, sent)
        if not knew:
            stream = await _subscribed(broker, "t")
        seen: set[str] = set()
        async with asyncio.timeout(20):
            while not {frame.id for frame in sent} <= seen:
                with contextlib.suppress(BrokerUnavailable):
                    seen |= {delivery.frame.id for delivery in await stream.receive(100, 1.0)}
        await broker.aclose()


async def _published(broker: NatsBroker, frames: list[Frame]) -> None:
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(BrokerUnavailable):
                if all(verdict.accepted for verdict in await broker.publish(frames)):
                    return
            await asyncio.sleep(0.05)


async def test_two_topics_that_would_share_a_stream_are_told_apart(broker: NatsBroker, topic: str) -> None:
    with pytest.raises(BrokerError, match="rename one of them"):
        await broker.ensure(Topology(topics=[stream_of(topic)]))


async def test_a_topic_that_cannot_be_a_subject_is_refused(broker: NatsBroker) -> None:
    with pytest.raises(ConfigurationError, match=r"no blanks, no wildcards"):
        await broker.ensure(Topology(topics=["shop.*"]))
    (verdict,) = await broker.publish([Frame(topic="not a topic", id="1", body=b"")])
    assert not verdict.accepted


async def test_ensure_changes_nothing_that_exists(broker: NatsBroker, bare: JetStreamContext, topic: str) -> None:
    config = (await bare.stream_info(stream_of(topic))).config
    config.max_bytes = 12345
    await bare.update_stream(config)
    other = NatsBroker(broker._client._servers[0], clock=SystemClock(), partitions=3, dedup=99.0)
    await other.ensure(Topology(topics=[topic]))
    after = (await bare.stream_info(stream_of(topic))).config
    assert (after.max_bytes, after.duplicate_window, len(after.subjects or [])) == (12345, 2.0, 9)
    await other.aclose()


async def test_without_batches_each_frame_waits_for_its_elder(
    broker: NatsBroker, bare: JetStreamContext, topic: str
) -> None:
    """As on a server older than 2.12."""
    config = (await bare.stream_info(stream_of(topic))).config
    config.allow_atomic = False
    await bare.update_stream(config)
    old = NatsBroker(broker._client._servers[0], clock=SystemClock())
    sent = frames(topic, 60, keys=3)
    assert all(verdict.accepted for verdict in await old.publish(sent))
    stream = await broker.subscribe("g", [topic])
    got = [delivery.frame for delivery in await collect(stream, 60)]
    for key in ("k0", "k1", "k2"):
        assert [frame.id for frame in got if frame.key == key] == [frame.id for frame in sent if frame.key == key]
    message = await bare.get_msg(stream_of(topic), 1)
    assert "Nats-Batch-Id" not in (message.headers or {})
    await old.aclose()


async def test_a_batch_with_a_repeat_in_it_stores_the_rest(broker: NatsBroker, topic: str) -> None:
    """The server refuses such a batch as a whole; one by one the repeat is dropped."""
    sent = frames(topic, 10, keys=2)
    await broker.publish(sent[:4])
    assert all(verdict.accepted for verdict in await broker.publish(sent))
    stream = await broker.subscribe("g", [topic])
    got = [delivery.frame for delivery in await collect(stream, 10)]
    assert list(await stream.receive(10, 0.3)) == []
    for key in ("k0", "k1"):
        assert [frame.id for frame in got if frame.key == key] == [frame.id for frame in sent if frame.key == key]


async def test_retention_that_does_not_wait_shows_what_is_gone(nats_server: NatsServer) -> None:
    broker = NatsBroker(nats_server.url, clock=SystemClock(), retention=1.0)
    topic = f"short{new_id()[-6:]}"
    await broker.ensure(Topology(topics=[topic], groups={"g": [topic]}))
    assert not broker.sheet.retains_unacked
    await broker.publish(frames(topic, 4))
    async with asyncio.timeout(20):
        while True:
            progress = (await broker.progress("g", [topic]))[topic]
            if progress.truncated and progress.pending == 0:
                break
            await asyncio.sleep(0.05)
    assert progress.stored == 4
    stream = await broker.subscribe("g", [topic])
    new = frames(topic, 1)
    await broker.publish(new)
    assert [delivery.frame.id for delivery in await collect(stream, 1)] == [new[0].id]
    await broker.aclose()


# Messages and answers that never come


async def test_a_message_that_went_astray_is_read_again(
    broker: NatsBroker, bare: JetStreamContext, nats_server: NatsServer, topic: str
) -> None:
    """Somebody else pulls from our consumers, so that each of them misses some."""
    stream = await broker.subscribe("g", [topic])
    thief = await nats.connect(nats_server.url)
    loot = await thief.subscribe(thief.new_inbox())
    for consumer in await bare.consumers_info(stream_of(topic)):
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream_of(topic)}.{consumer.name}"
        await thief.publish(subject, b'{"batch":10,"expires":10000000000}', loot.subject)
    await thief.flush()
    sent = frames(topic, 40, keys=4)
    await broker.publish(sent)
    got = [delivery.frame for delivery in await collect(stream, 40)]
    for key in ("k0", "k1", "k2", "k3"):
        assert [frame.id for frame in got if frame.key == key] == [frame.id for frame in sent if frame.key == key]
    assert loot.pending_msgs > 0, "nothing was stolen"
    await thief.close()


async def test_a_lost_connection_ends_what_waits_for_an_answer_at_once(nats_server: NatsServer) -> None:
    async with Proxy("127.0.0.1", nats_server.port) as proxy:
        broker = NatsBroker(f"nats://127.0.0.1:{proxy.port}", clock=SystemClock(), timeout=60.0)
        topic = f"waiting{new_id()[-6:]}"
        await broker.ensure(Topology(topics=[topic]))
        await proxy.stall()
        call = asyncio.create_task(broker.publish(frames(topic, 1)))
        done, _ = await asyncio.wait([call], timeout=0.3)
        assert not done
        await proxy.cut()
        async with asyncio.timeout(10):
            with pytest.raises(BrokerUnavailable, match="the connection was lost"):
                await call
        await proxy.heal()
        await broker.aclose()


async def test_a_subscribe_that_fails_half_way_leaves_nothing_behind(
    nats_server: NatsServer, broker: NatsBroker, bare: JetStreamContext, topic: str
) -> None:
    """A guest may read one of two topics: the readers of the first are open when the second is refused."""
    closed = "closed"
    await broker.ensure(Topology(topics=[closed], groups={"g": [topic, closed]}))
    sent = frames(topic, 400, keys=40)
    await broker.publish(sent)
    guest = NatsBroker(nats_server.url_of("reader"), clock=SystemClock(), lease=0.6, timeout=1.0)
    failed = 0
    for _ in range(3):
        with contextlib.suppress(BrokerUnavailable):
            await guest.subscribe("g", [topic, closed])
            continue
        failed += 1
    assert failed == 3
    assert guest._streams == set()
    assert len((await guest._client.connection())._subs) == 2  # the inboxes for answers, ours and the driver's
    async with asyncio.timeout(5):
        while await bare.consumers_info(stream_of(topic)):  # noqa: ASYNC110 - the server deletes them in its own time
            await asyncio.sleep(0.02)
    stream = await broker.subscribe("g", [topic, closed])
    assert {delivery.frame.id for delivery in await collect(stream, 400)} == {frame.id for frame in sent}
    await guest.aclose()


async def test_readers_of_what_was_taken_in_vain_are_closed(
    nats_server: NatsServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partitions of another are taken, and an answer is lost on the way: they are taken again."""
    broker = NatsBroker(nats_server.url, clock=SystemClock(), lease=0.6)
    stays, leaves = await broker.subscribe("g", [topic]), await broker.subscribe("g", [topic])
    log = stays._log
    assert isinstance(log, NatsLog)
    await eventually(lambda: bool(leaves._held), "sharing")
    opened, fails = Reader.open, 0

    async def flaky(reader: Reader) -> None:
        nonlocal fails
        await opened(reader)
        if reader._buffer not in held and fails < 3:
            fails += 1
            raise BrokerUnavailable("no answer in time")

    held = set(stays._held.values())
    monkeypatch.setattr(Reader, "open", flaky)
    await leaves.aclose()

    async def whole() -> bool:
        with contextlib.suppress(BrokerUnavailable):
            await stays.receive(1, 0.05)
        return len(stays._held) == 9

    await eventually(whole, "taking over")
    assert fails == 3
    assert log._readers.keys() == set(stays._held.values())
    await broker.aclose()


# What the server is asked before anything starts


async def test_checks_say_what_weakens_the_promise(broker: NatsBroker, bare: JetStreamContext, topic: str) -> None:
    checks = {check.name: check for check in await broker.checks()}
    assert checks["server"].judgement == "ok"
    durability = checks[f"topic {topic}, durability"]
    assert (durability.judgement, durability.found) == ("warn", "file storage, 1 replica(s), sync_interval default")
    assert not broker.sheet.durable_ack
    assert any("durability" in note for note in broker.sheet.notes)
    assert {
        check.judgement for name, check in checks.items() if "durability" not in name and "repeats" not in name
    } == {"ok"}


async def test_a_server_declared_to_sync_always_is_durable() -> None:
    with running(sync="always") as server:
        broker = NatsBroker(server.url, clock=SystemClock(), sync="always")
        await broker.ensure(Topology(topics=["t"]))
        checks = await broker.checks()
        assert {check.judgement for check in checks} == {"ok"}
        assert broker.sheet.durable_ack
        assert broker.sheet.notes == ()
        sent = frames("t", 20)
        assert all(verdict.accepted for verdict in await broker.publish(sent))
        await server.kill()
        stream = await _subscribed(broker, "t")
        assert [delivery.frame.id for delivery in await collect(stream, 20)] == [frame.id for frame in sent]
        await broker.aclose()


async def _subscribed(broker: NatsBroker, topic: str) -> Stream:
    async with asyncio.timeout(20):
        while True:
            try:
                return await broker.subscribe("g", [topic])
            except BrokerUnavailable:
                await asyncio.sleep(0.05)


async def test_a_server_that_is_not_there_is_unavailable_at_once_and_used_when_it_comes() -> None:
    with running() as server:
        server.end(signal.SIGKILL)
        broker = NatsBroker(server.url, clock=SystemClock(), timeout=0.5)
        with pytest.raises(BrokerUnavailable, match="nothing listens at"):
            await broker.ensure(Topology(topics=["t"]))
        server.start()
        await broker.ensure(Topology(topics=["t"]))
        assert (await broker.publish(frames("t", 1)))[0].accepted
        await broker.aclose()


# Other people's clients


@WIRES
async def test_a_bare_consumer_and_the_cloudevents_sdk_read_what_we_publish(
    broker: NatsBroker, bare: JetStreamContext, tmp_path: Path, wire: str
) -> None:
    async with telling(broker, tmp_path, wire) as orders:
        await orders.tell()
        consumer = await bare.pull_subscribe(f"{orders.topic}.*", durable="theirs", stream=stream_of(orders.topic))
        (message,) = await consumer.fetch(1, timeout=10)
        await message.ack()
        headers = {name.lower(): value for name, value in (message.headers or {}).items()}
        event = http.from_http_event(http.HTTPMessage(headers=headers, body=message.data))
        orders.assert_told(event)
        assert event.get_extension("partitionkey") == KEY


@WIRES
async def test_we_apply_what_a_bare_publisher_and_the_cloudevents_sdk_say(
    broker: NatsBroker, bare: JetStreamContext, tmp_path: Path, wire: str
) -> None:
    async with hearing(broker, tmp_path) as billing:
        message = billing.message(wire)
        await bare.publish(billing.topic, message.body, headers=dict(message.headers))
        await billing.assert_heard()


async def test_a_bare_message_without_any_header_has_its_place_as_id(
    broker: NatsBroker, bare: JetStreamContext, topic: str
) -> None:
    await bare.publish(topic, json.dumps({"hello": "world"}).encode())
    await bare.publish(topic, b"second", headers={"Nats-Msg-Id": "their id", "X-Colour": "blue"})
    first, second = await collect(await broker.subscribe("g", [topic]), 2)
    assert first.frame == Frame(topic=topic, id=f"{topic}:1", body=b'{"hello": "world"}')
    assert second.frame == Frame(topic=topic, id="their id", body=b"second", headers={"x-colour": "blue"})


async def test_streams_say_in_their_settings_what_the_promise_rests_on(bare: JetStreamContext, topic: str) -> None:
    config = (await bare.stream_info(stream_of(topic))).config
    assert (config.storage, config.retention, config.discard) == (
        api.StorageType.FILE,
        api.RetentionPolicy.LIMITS,
        api.DiscardPolicy.NEW,
    )
    assert config.max_age == 0
    assert config.allow_atomic


async def test_the_benchmark_of_nats_measures_what_it_says(nats_server: NatsServer, tmp_path: Path) -> None:
    readings = await brokers.measure("nats", tmp_path, Scale(share=0.0, rounds=1))
    assert [reading.measure for reading in readings] == ["nats publish", "nats receive", "nats consume, once only"]
    assert all(reading.ours > 0 and reading.ratio for reading in readings)


async def test_a_group_that_was_only_declared_may_still_start_at_the_end(broker: NatsBroker, topic: str) -> None:
    """A service declares its groups before it reads with them."""
    old, new, newest = ([Frame(topic=topic, id=new_id(), key=f"k{n}", body=b"x") for n in range(3)] for _ in range(3))
    await broker.publish(old)
    await broker.ensure(Topology(groups={"late": [topic]}))
    stream = await broker.subscribe("late", [topic], start="latest")
    await broker.publish(new)
    got = await collect(stream, 3)
    assert {delivery.frame.id for delivery in got} == {frame.id for frame in new}
    assert (await broker.progress("late", [topic]))[topic].truncated
    await stream.aclose()
    await broker.publish(newest)
    got = await collect(await broker.subscribe("late", [topic], start="latest"), 3)
    assert {delivery.frame.id for delivery in got} == {frame.id for frame in newest}, "it is not new any more"


async def test_an_heir_that_takes_one_at_a_time_passes_over_what_was_acknowledged_at_once(
    nats_server: NatsServer, topic: str
) -> None:
    """A member looks again when its lease ends, so here that is far away."""
    broker = NatsBroker(nats_server.url, clock=SystemClock(), lease=300.0)
    try:
        sent = frames(topic, 5)
        await broker.publish(sent)
        first = await broker.subscribe("g", [topic])
        got: list[Delivery] = []
        async with asyncio.timeout(20):
            while len(got) < 5:
                got += await first.receive(5, 20)
        await first.ack(got[1:4])
        await first.aclose()
        heir = await broker.subscribe("g", [topic])
        for frame in (sent[0], sent[4]):
            async with asyncio.timeout(20):
                (delivery,) = await heir.receive(1, 60.0)  # the frames are all here: it need not wait for news
            assert delivery.frame.id == frame.id
    finally:
        await broker.aclose()


IDLE = """
import asyncio, sys
from posthouse.brokers.nats import NatsBroker
from posthouse.clock import SystemClock

async def main(url, topic):
    broker = NatsBroker(url, clock=SystemClock(), lease=0.6)
    stream = await broker.subscribe("g", [topic])
    (delivery,) = await stream.receive(1, 20)
    print(delivery.frame.id, flush=True)
    await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_after_a_killed_consumer_only_what_it_may_have_had_in_hand_is_a_repeat(
    nats_server: NatsServer, broker: NatsBroker, topic: str
) -> None:
    """Most of its partitions were idle: the window that it might have filled there must not cover what comes later."""
    (doubtful,) = frames(topic, 1)
    await broker.publish([doubtful])
    consumer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", IDLE, nats_server.url, topic, stdout=asyncio.subprocess.PIPE
    )
    assert consumer.stdout is not None
    try:
        async with asyncio.timeout(30):
            assert (await consumer.stdout.readline()).decode().strip() == doubtful.id
    finally:
        consumer.kill()
        await consumer.wait()
    stream = await broker.subscribe("g", [topic])
    (again,) = await collect(stream, 1)
    assert (again.frame.id, again.redelivered) == (doubtful.id, True)
    for _ in range(3):  # each with a clean restart
        sent = frames(topic, 40, keys=40)
        await broker.publish(sent)
        got = await collect(stream, 40)
        assert {delivery.frame.id for delivery in got} == {frame.id for frame in sent}
        assert sum(delivery.redelivered for delivery in got) == 0
        await stream.aclose()
        stream = await broker.subscribe("g", [topic])
