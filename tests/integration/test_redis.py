"""What is special to Redis: servers that are full, paused, replicas or forget; groups of others; and other people's
clients."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cloudevents.core.bindings import http
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from benchmarks import brokers
from benchmarks.reading import Scale
from posthouse.broker import Delivery, Frame, Topology
from posthouse.brokers import open_broker
from posthouse.brokers.group.member import GroupMember
from posthouse.brokers.redis import RedisBroker
from posthouse.brokers.redis.buffer import PartitionBuffer
from posthouse.brokers.redis.client import Asked, Client, Read, Value
from posthouse.brokers.redis.log import RedisLog
from posthouse.brokers.redis.scripts import ADD, BEGIN, Script
from posthouse.clock import ManualClock, SystemClock, new_id
from posthouse.errors import BrokerError, BrokerUnavailable, ConfigurationError
from tests.kit.frames import collect, frames
from tests.kit.servers.proxy import Proxy
from tests.kit.servers.redis import RedisServer, running
from tests.kit.strangers import KEY, WIRES, hearing, telling
from tests.kit.waiting import eventually

Bare = Any
"""The driver's client, whose types say of most answers that they may be anything."""


@pytest_asyncio.fixture
async def broker(redis_server: RedisServer) -> AsyncIterator[RedisBroker]:
    broker = RedisBroker(redis_server.url, clock=SystemClock(), lease=0.6)
    yield broker
    await broker.aclose()


@pytest_asyncio.fixture
async def other(redis_server: RedisServer) -> AsyncIterator[RedisBroker]:
    """As another process would open it."""
    broker = RedisBroker(redis_server.url, clock=SystemClock(), lease=0.6, partitions=3)
    yield broker
    await broker.aclose()


@pytest_asyncio.fixture
async def bare(redis_server: RedisServer) -> AsyncIterator[Bare]:
    """Somebody else's client."""
    client: Bare = Redis.from_url(redis_server.url, protocol=2)
    yield client
    await client.aclose()


@pytest_asyncio.fixture
async def topic(broker: RedisBroker) -> str:
    name = f"shop.orders.order{new_id()[-6:]}"
    await broker.ensure(Topology(topics=[name]))
    return name


def lane_of(topic: str, number: int) -> str:
    return f"{topic}:{number}"


async def lanes_with_frames(bare: Bare, topic: str) -> list[str]:
    lanes = [*(lane_of(topic, number) for number in range(8)), topic]
    return [lane for lane in lanes if await bare.xlen(lane)]


# Streams that are full, gone, or not ours


async def test_a_full_server_refuses_for_now_and_nothing_overtakes() -> None:
    with running() as server:
        broker = RedisBroker(server.url, clock=SystemClock())
        bare: Bare = Redis.from_url(server.url, protocol=2)
        await broker.ensure(Topology(topics=["t"]))
        await bare.config_set("maxmemory", "1mb")
        sent = frames("t", 3)
        verdicts = await broker.publish(sent)
        assert [(verdict.accepted, verdict.final) for verdict in verdicts] == [(False, False)] * 3
        assert "memory" in verdicts[0].reason
        assert (await broker.progress("g", ["t"]))["t"].stored == 0
        await bare.config_set("maxmemory", "0")
        assert all(verdict.accepted for verdict in await broker.publish(sent))
        stream = await broker.subscribe("g", ["t"])
        assert [delivery.frame for delivery in await collect(stream, 3)] == sent
        await bare.aclose()
        await broker.aclose()


async def test_a_lane_that_takes_nothing_refuses_its_keys_and_others_flow(
    broker: RedisBroker, bare: Bare, topic: str
) -> None:
    """One of the topic's keys was overwritten with something else: what belongs there waits, in order."""
    sent = frames(topic, 40, keys=20)
    await broker.publish(sent)
    lane, *_ = await lanes_with_frames(bare, topic)
    await bare.delete(lane)
    await bare.set(lane, "mine now")
    verdicts = await broker.publish(sent)
    refused = {frame.key for frame, verdict in zip(sent, verdicts, strict=True) if not verdict.accepted}
    accepted = {frame.key for frame, verdict in zip(sent, verdicts, strict=True) if verdict.accepted}
    assert refused
    assert accepted
    assert not refused & accepted
    assert not any(verdict.final for verdict in verdicts)
    with pytest.raises(BrokerError, match="is not a stream"):
        await broker.ensure(Topology(topics=[topic]))
    await bare.delete(lane)


async def test_a_topic_deleted_while_running_refuses_its_frames_and_others_flow(
    broker: RedisBroker, bare: Bare, topic: str
) -> None:
    neighbour = f"{topic}.other"
    await broker.ensure(Topology(topics=[neighbour]))
    stream = await broker.subscribe("g", [topic, neighbour])
    await broker.publish(frames(topic, 3))
    await collect(stream, 3)
    await delete(bare, topic)
    lost, stored = await broker.publish([*frames(topic, 1), *frames(neighbour, 1)])
    assert (lost.accepted, lost.final) == (False, False)
    assert "does not exist" in lost.reason
    assert stored.accepted
    assert [delivery.frame.topic for delivery in await collect(stream, 1)] == [neighbour]
    assert not (await broker.publish(frames(topic, 1)))[0].accepted


async def test_a_deleted_topic_keeps_no_other_waiting(redis_server: RedisServer, bare: Bare) -> None:
    """Neither for a lease nor for a moment, again and again."""
    broker = RedisBroker(redis_server.url, clock=SystemClock(), lease=60.0)
    gone, stays = f"gone{new_id()[-6:]}", f"stays{new_id()[-6:]}"
    await broker.ensure(Topology(topics=[gone, stays]))
    stream = await broker.subscribe("g", [gone, stays])
    await broker.publish(frames(gone, 1))
    await collect(stream, 1)
    await delete(bare, gone)
    for _ in range(3):
        await broker.publish(frames(stays, 20, keys=20))
        assert {delivery.frame.topic for delivery in await collect(stream, 20, within=10.0)} == {stays}
    await broker.aclose()


async def test_a_topic_that_was_made_anew_hides_nothing(
    broker: RedisBroker, other: RedisBroker, bare: Bare, topic: str
) -> None:
    stream = await broker.subscribe("g", [topic])
    await broker.publish(frames(topic, 20))
    await collect(stream, 20)
    for number in range(8):
        await bare.delete(lane_of(topic, number))
    await other.ensure(Topology(topics=[topic]))
    new = frames(topic, 3)
    assert all(verdict.accepted for verdict in await other.publish(new))
    assert [delivery.frame.id for delivery in await collect(stream, 3)] == [frame.id for frame in new]


async def delete(bare: Bare, topic: str) -> None:
    await bare.delete(f"posthouse:topic:{topic}", topic, *(lane_of(topic, number) for number in range(8)))


async def test_ensure_changes_nothing_that_exists(
    broker: RedisBroker, other: RedisBroker, bare: Bare, topic: str
) -> None:
    """A number of partitions that was fixed stays, whatever a later process was told (fault 50)."""
    sent = frames(topic, 30, keys=10)
    await broker.publish(sent[:15])
    await other.ensure(Topology(topics=[topic]))
    await other.publish(sent[15:])
    assert await bare.hget(f"posthouse:topic:{topic}", "partitions") == b"8"
    got = [delivery.frame for delivery in await collect(await other.subscribe("g", [topic]), 30)]
    for key in {frame.key for frame in sent}:
        assert [frame.id for frame in got if frame.key == key] == [frame.id for frame in sent if frame.key == key]


async def test_a_topic_that_cannot_have_keys_of_its_own_is_refused(broker: RedisBroker) -> None:
    with pytest.raises(ConfigurationError, match="no colon"):
        await broker.ensure(Topology(topics=["shop:orders"]))
    (verdict,) = await broker.publish([Frame(topic="shop:orders", id="1", body=b"")])
    assert not verdict.accepted


async def test_a_header_that_would_hide_the_body_is_refused_for_good(broker: RedisBroker, topic: str) -> None:
    verdicts = await broker.publish(
        [
            Frame(topic=topic, id="1", key="k", body=b"x", headers={"body": "y"}),
            Frame(topic=topic, id="2", key="k", body=b"x"),
            Frame(topic=topic, id="3", key="j", body=b"x"),
        ]
    )
    assert [(verdict.accepted, verdict.final) for verdict in verdicts] == [(False, True), (False, False), (True, False)]


# Groups, cursors and retention


async def test_whoever_leaves_hands_on_what_was_never_handed_out_as_new(
    broker: RedisBroker, other: RedisBroker, topic: str
) -> None:
    """It was read ahead; only what somebody had in hand may have been applied."""
    sent = frames(topic, 100, keys=10)
    await broker.publish(sent)
    leaver = await broker.subscribe("g", [topic])
    in_hand = {delivery.frame.id for delivery in await collect(leaver, 10, ack=False)}
    await leaver.aclose()
    assert (await other.progress("g", [topic]))[topic].pending == 100
    got = await collect(await other.subscribe("g", [topic]), 100)
    assert {delivery.frame.id for delivery in got if delivery.redelivered} == in_hand
    for key in {frame.key for frame in sent}:
        ids = [delivery.frame.id for delivery in got if delivery.frame.key == key]
        assert ids == [frame.id for frame in sent if frame.key == key]


async def test_progress_is_exact_after_a_seek_into_the_middle(broker: RedisBroker, bare: Bare, topic: str) -> None:
    await broker.publish(frames(topic, 2500))
    stream = await broker.subscribe("g", [topic], window=2500)
    got = await collect(stream, 2500)
    await stream.aclose()
    await broker.seek("g", topic, position=got[700].position)
    assert (await broker.progress("g", [topic]))[topic].pending == 1800
    await bare.xdel((await lanes_with_frames(bare, topic))[0], str(got[2000].position))
    progress = (await broker.progress("g", [topic]))[topic]
    assert (progress.stored, progress.pending, progress.truncated) == (2500, 1799, False)


async def test_a_replay_to_one_group_touches_no_other(broker: RedisBroker, topic: str) -> None:
    sent = frames(topic, 10)
    await broker.publish(sent)
    one, two = await broker.subscribe("one", [topic]), await broker.subscribe("two", [topic])
    await collect(one, 10)
    await collect(two, 10)
    await broker.seek("one", topic, position=0)
    assert [delivery.frame.id for delivery in await collect(one, 10)] == [frame.id for frame in sent]
    assert list(await two.receive(10, 0.3)) == []
    assert (await broker.progress("two", [topic]))[topic].pending == 0


async def test_a_position_of_another_log_is_refused(broker: RedisBroker, topic: str) -> None:
    for position in ("yesterday", "-5", "1-2-3"):
        with pytest.raises(BrokerError, match="id of an entry"):
            await broker.seek("g", topic, position=position)
    with pytest.raises(BrokerError, match="either a position or a time"):
        await broker.seek("g", topic)


async def test_an_entry_that_somebody_deleted_holds_up_nothing(broker: RedisBroker, bare: Bare, topic: str) -> None:
    await broker.publish(frames(topic, 5))
    stream = await broker.subscribe("g", [topic])
    got = await collect(stream, 5, ack=False)
    await bare.xdel((await lanes_with_frames(bare, topic))[0], str(got[1].position))
    await stream.aclose()
    again = await collect(await broker.subscribe("g", [topic]), 4)
    assert [delivery.position for delivery in again] == [got[n].position for n in (0, 2, 3, 4)]
    assert (await broker.progress("g", [topic]))[topic].pending == 0


async def test_retention_waits_for_groups_of_others_too(bare: Bare, redis_server: RedisServer, topic: str) -> None:
    broker = RedisBroker(redis_server.url, clock=SystemClock(), retention=0.0)
    await broker.publish(frames(topic, 10))
    (lane,) = await lanes_with_frames(bare, topic)
    await bare.xgroup_create(lane, "theirs", 0)
    await collect(await broker.subscribe("g", [topic]), 10)
    assert await broker.prune() == 0
    [(_, entries)] = await bare.xreadgroup("theirs", "one", {lane: ">"})
    assert await broker.prune() == 0
    await bare.xack(lane, "theirs", *(entry for entry, _ in entries[:7]))
    assert await broker.prune() == 7
    await bare.xack(lane, "theirs", *(entry for entry, _ in entries[7:]))
    assert await broker.prune() == 2, "the last entry shows where the group stands"
    assert not (await broker.progress("g", [topic]))[topic].truncated
    await broker.aclose()


async def test_retention_keeps_what_is_young(broker: RedisBroker, topic: str) -> None:
    await broker.publish(frames(topic, 10))
    await collect(await broker.subscribe("g", [topic]), 10)
    assert await broker.prune() == 0


async def test_what_was_deleted_unread_shows(broker: RedisBroker, bare: Bare, topic: str) -> None:
    await broker.ensure(Topology(groups={"g": [topic]}))
    await broker.publish(frames(topic, 5))
    assert not (await broker.progress("g", [topic]))[topic].truncated
    (lane,) = await lanes_with_frames(bare, topic)
    for left in (2, 0):
        await bare.xtrim(lane, maxlen=left, approximate=False)
        progress = (await broker.progress("g", [topic]))[topic]
        assert (progress.stored, progress.pending, progress.truncated) == (5, left, True)
        assert (progress.dropped, progress.whole) == (True, True)


async def test_what_was_deleted_in_hand_is_not_pending(broker: RedisBroker, bare: Bare, topic: str) -> None:
    await broker.publish(frames(topic, 5))
    stream = await broker.subscribe("g", [topic])
    await collect(stream, 5, ack=False)
    await bare.xtrim((await lanes_with_frames(bare, topic))[0], maxlen=2, approximate=False)
    assert (await broker.progress("g", [topic]))[topic].pending == 2
    await stream.aclose()


async def test_a_group_counts_right_once_it_has_read_past_what_was_deleted(
    broker: RedisBroker, bare: Bare, topic: str
) -> None:
    await broker.ensure(Topology(groups={"g": [topic]}))
    await broker.publish(frames(topic, 5))
    (lane,) = await lanes_with_frames(bare, topic)
    await bare.xtrim(lane, maxlen=0, approximate=False)
    await broker.publish(frames(topic, 3))
    stream = await broker.subscribe("g", [topic])
    await collect(stream, 3)
    await stream.aclose()
    assert (await broker.progress("g", [topic]))[topic].pending == 0


async def test_a_link_that_breaks_again_and_again_keeps_the_order(redis_server: RedisServer) -> None:
    """A question whose answer was lost may reach the server late: it must not take frames that nobody then hands out."""
    chance = random.Random(5)
    async with Proxy("127.0.0.1", redis_server.port) as proxy:
        near = RedisBroker(redis_server.url, clock=SystemClock())
        far = RedisBroker(f"redis://127.0.0.1:{proxy.port}", clock=SystemClock(), lease=1.0, timeout=0.25)
        topic = f"flaky{new_id()[-6:]}"
        await near.ensure(Topology(topics=[topic]))
        stream = await far.subscribe("g", [topic], window=20)
        sent: list[Frame] = []
        got: list[Delivery] = []

        async def consume() -> None:
            while len({delivery.frame.id for delivery in got}) < 400:
                try:
                    batch = await stream.receive(7, 1.0)
                    got.extend(batch)
                    await stream.ack(batch)
                except BrokerUnavailable:
                    await asyncio.sleep(0.01)

        consuming = asyncio.create_task(consume())
        for turn in range(20):
            sent += (batch := frames(topic, 20, keys=4))
            await near.publish(batch)
            await asyncio.sleep(chance.random() * 0.02)
            await (proxy.cut() if turn % 3 else proxy.stall())
            await asyncio.sleep(chance.random() * (0.02 if turn % 3 else 0.4))
            await proxy.heal()
        async with asyncio.timeout(30):
            await consuming
        first: dict[str | None, dict[str, None]] = defaultdict(dict)
        for delivery in got:
            first[delivery.frame.key][delivery.frame.id] = None
        for key, ids in first.items():
            assert list(ids) == [frame.id for frame in sent if frame.key == key]
        new = [delivery.frame.id for delivery in got if not delivery.redelivered]
        assert len(new) == len(set(new))
        await far.aclose()
        await near.aclose()


# Answers that are lost, questions that come late, and news that must be heard at once


class Deaf(Client):
    """Loses answers: the server has done what it was asked, and nobody hears of it."""

    def __init__(self, url: str) -> None:
        super().__init__(url, timeout=5.0, driver={})
        self.lost = self.away = self.away_then = self.heard = self.disturbed = 0

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Value]) -> Any:
        if self.away and script is BEGIN:
            self.away -= 1
            raise BrokerUnavailable("still away")
        return await super().run(script, keys, arguments)

    async def hear(self, streams: Mapping[str, str]) -> list[str]:
        self.heard += 1
        return await super().hear(streams)

    async def read(self, group: str, member: str, count: int, lanes: Sequence[Asked]) -> Read:
        answer = await super().read(group, member, count, lanes)
        if self.lost and answer.entries and any(answer.entries.values()):
            self.lost -= 1
            self.away = self.away_then
            raise BrokerUnavailable("the answer was lost")
        self.disturbed += answer == Read()
        return answer


async def test_what_was_in_a_lost_answer_comes_before_anything_newer(
    broker: RedisBroker, redis_server: RedisServer, topic: str
) -> None:
    deaf = Deaf(redis_server.url)
    await broker.aclose()
    broker = RedisBroker(redis_server.url, clock=SystemClock())
    broker._client = broker._topics._client = deaf
    sent = frames(topic, 10)
    await broker.publish(sent[:5])
    stream = await broker.subscribe("g", [topic])
    deaf.lost = 1
    with pytest.raises(BrokerUnavailable, match="lost"):
        await stream.receive(10, 5.0)
    await broker.publish(sent[5:])
    got = await collect(stream, 10)
    assert [delivery.frame.id for delivery in got] == [frame.id for frame in sent]
    assert all(delivery.redelivered for delivery in got[:5]), "nobody can know whether they were handed out"
    await broker.aclose()


async def test_nothing_newer_comes_before_a_lost_answer_though_the_lease_cannot_be_renewed_yet(
    redis_server: RedisServer, topic: str
) -> None:
    deaf = Deaf(redis_server.url)
    broker = RedisBroker(redis_server.url, clock=SystemClock())
    broker._client = broker._topics._client = deaf
    sent = frames(topic, 15)
    stream = await broker.subscribe("g", [topic])
    await broker.publish(sent[:5])
    await collect(stream, 5)
    assert await stream.receive(10, 0.1) == []
    deaf.lost, deaf.away_then = 1, 2
    await broker.publish(sent[5:10])
    with pytest.raises(BrokerUnavailable, match="lost"):
        await stream.receive(10, 5.0)
    await broker.publish(sent[10:])
    got = await collect(stream, 10)
    assert not deaf.away
    assert [delivery.frame.id for delivery in got] == [frame.id for frame in sent[5:]]
    await stream.aclose()
    heir = await broker.subscribe("g", [topic])
    assert await heir.receive(10, 0.3) == [], "it was left behind on the server"
    await broker.aclose()


async def test_a_member_that_renews_its_lease_disturbs_no_question_of_its_own(
    redis_server: RedisServer, topic: str
) -> None:
    deaf = Deaf(redis_server.url)
    broker = RedisBroker(redis_server.url, clock=SystemClock())
    broker._client = broker._topics._client = deaf
    await broker.publish(frames(topic, 3000, keys=40))
    stream = await broker.subscribe("g", [topic])
    got = 0
    async with asyncio.timeout(40):
        while got < 3000:
            received, _ = await asyncio.gather(stream.receive(100, 1.0), stream._sync())
            got += len(received)
            await stream.ack(received)
    assert deaf.disturbed == 0
    await broker.aclose()


async def test_an_idle_member_waits_for_a_server_that_is_away() -> None:
    with running() as server:
        deaf = Deaf(server.url)
        broker = RedisBroker(server.url, clock=SystemClock(), lease=60.0)
        broker._client = broker._topics._client = deaf
        await broker.ensure(Topology(topics=["t"]))
        stream = await broker.subscribe("g", ["t"])
        assert await stream.receive(10, 0.1) == []
        server.end(signal.SIGKILL)
        deaf.heard = 0
        assert await stream.receive(10, 2.0) == []
        assert 0 < deaf.heard < 20
        await broker.aclose()


async def test_a_frame_that_comes_behind_a_burst_is_heard(broker: RedisBroker, topic: str) -> None:
    """What was read ahead is handed out without a question; then somebody must listen."""
    stream = await broker.subscribe("g", [topic])
    log = stream._log
    assert isinstance(log, RedisLog)
    log.polls = 60.0, 60.0
    await broker.publish(frames(topic, 10))
    await collect(stream, 6)
    await broker.publish(frames(topic, 10))
    await eventually(lambda: log._listening is not None and log._listening.done(), "hearing of the burst")
    for lane in log._lanes.values():
        lane.dry = False
    while await log._ask():
        pass
    got = await stream.receive(100, 5.0)
    assert len(got) == 14
    await stream.ack(got)
    await broker.publish(frames(topic, 1))
    await collect(stream, 1, within=5.0)


async def test_partitions_with_nothing_to_read_take_no_part_of_a_batch(broker: RedisBroker, topic: str) -> None:
    stream = await broker.subscribe("g", [topic])
    log = stream._log
    assert isinstance(log, RedisLog)
    for _ in range(9):  # each lane is the first in its turn
        await broker.publish(frames(topic, 200))
        for lane in log._lanes.values():
            lane.dry = False
        while await log._ask():
            pass
        got = await stream.receive(200, 5.0)
        assert len(got) == 200
        await stream.ack(got)


async def test_whoever_was_replaced_takes_nothing_even_if_it_has_not_noticed(
    redis_server: RedisServer, other: RedisBroker, bare: Bare, topic: str
) -> None:
    sleeper = RedisBroker(redis_server.url, clock=ManualClock(), lease=0.3)
    asleep = await sleeper.subscribe("g", [topic])
    heir = await other.subscribe("g", [topic])
    await taken_over(bare, topic, asleep)
    log = asleep._log
    assert isinstance(log, RedisLog)
    asleep._until, log.stale = math.inf, False  # it looked at its clock, and then it slept
    for lane in asleep._held.values():
        lane.dry = False
    sent = frames(topic, 20, keys=20)
    await other.publish(sent)
    assert asleep._held
    for _ in range(2):  # what was pending, then what is new
        await log._ask()
    assert not await asleep._take(100)
    assert {delivery.frame.id for delivery in await collect(heir, 20)} == {frame.id for frame in sent}
    await sleeper.aclose()


async def taken_over(bare: Bare, topic: str, sleeper: GroupMember[PartitionBuffer]) -> None:
    async with asyncio.timeout(20):
        while True:
            ledger = await bare.hgetall(f"posthouse:group:g:{topic}")
            if sleeper._log.me.encode() not in ledger.values():
                return
            await asyncio.sleep(0.02)


async def test_a_question_that_is_overtaken_on_its_way_takes_nothing(
    broker: RedisBroker, bare: Bare, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between looking and reading somebody else takes the lanes."""
    await broker.publish(frames(topic, 10, keys=10))
    stream = await broker.subscribe("g", [topic])
    log = stream._log
    assert isinstance(log, RedisLog)
    await log._ask()  # what is pending
    execute = Pipeline.execute

    async def overtaken(pipeline: Pipeline, raise_on_error: bool = True) -> list[Any]:
        monkeypatch.setattr(Pipeline, "execute", execute)
        await bare.hincrby(f"posthouse:group:g:{topic}", "epoch:0", 1)
        return await execute(pipeline, raise_on_error)

    monkeypatch.setattr(Pipeline, "execute", overtaken)
    assert await log._ask()
    assert not await stream._take(100)
    for lane in await lanes_with_frames(bare, topic):
        assert (await bare.xpending(lane, "g"))["pending"] == 0
    assert len(await collect(stream, 10)) == 10


async def test_another_run_of_the_server_is_noticed_on_a_connection_that_never_failed(
    redis_server: RedisServer, bare: Bare, topic: str
) -> None:
    """A pool finds the server again without a word; the place of the group may have fallen back meanwhile."""
    broker = RedisBroker(redis_server.url, clock=SystemClock(), lease=60.0)
    sent = frames(topic, 5)
    await broker.publish(sent)
    stream = await broker.subscribe("g", [topic])
    await collect(stream, 5)
    assert list(await stream.receive(1, 0.1)) == []
    (lane,) = await lanes_with_frames(bare, topic)
    await bare.hset(f"posthouse:group:g:{topic}", mapping={f"run:{number}": "another" for number in range(9)})
    await bare.xgroup_setid(lane, "g", 0)
    await broker.publish(sent[:1])
    got = await collect(stream, 6)
    assert [delivery.frame.id for delivery in got] == [frame.id for frame in [*sent, sent[0]]]
    assert all(delivery.redelivered for delivery in got[:5])
    await broker.aclose()


async def test_an_epoch_that_is_given_again_after_a_loss_belongs_to_its_new_owner_alone() -> None:
    """The server is killed with the last epochs in its memory only, and gives the same ones to somebody else."""
    with running(appendonly="no") as server:
        early = RedisBroker(server.url, clock=ManualClock(), lease=600.0)
        late = RedisBroker(server.url, clock=ManualClock(), lease=600.0)
        await early.ensure(Topology(topics=["t"], groups={"g": ["t"]}))
        bare: Bare = Redis.from_url(server.url, protocol=2)
        sent = frames("t", 20, keys=20)
        await early.publish(sent[:10])
        await bare.save()
        first = await early.subscribe("g", ["t"])
        handed = await collect(first, 10, ack=False)
        await server.kill()
        second = await late.subscribe("g", ["t"])
        assert [lane.holding.epoch for lane in first._held.values()] == [
            lane.holding.epoch for lane in second._held.values()
        ]
        again = await collect(second, 10, ack=False)
        await first.ack(handed)
        assert (await late.progress("g", ["t"]))["t"].pending == 10, "what the new owner has in hand is its own"
        await late.publish(sent[10:])
        got = list(again)
        await second.ack(again)
        async with asyncio.timeout(20):
            while len(got) < 20:
                for stream in (first, second):  # from here on they share the work
                    batch = await stream.receive(20, 0.1)
                    await stream.ack(batch)
                    got += batch
        assert sorted(delivery.frame.id for delivery in got) == sorted(frame.id for frame in sent), (
            "each to one of them"
        )
        assert (await late.progress("g", ["t"]))["t"].pending == 0
        await bare.aclose()
        await early.aclose()
        await late.aclose()


async def test_a_group_that_began_at_the_end_and_is_lost_with_the_server_misses_nothing_that_came_since() -> None:
    with running(appendonly="no") as server:
        broker = RedisBroker(server.url, clock=ManualClock(), lease=600.0)
        await broker.ensure(Topology(topics=["t"]))
        await broker.publish(frames("t", 3))
        stream = await broker.subscribe("g", ["t"], start="latest")
        await server.kill()
        publisher = RedisBroker(server.url, clock=SystemClock())
        await publisher.ensure(Topology(topics=["t"]))
        sent = frames("t", 5)
        assert all(verdict.accepted for verdict in await publisher.publish(sent))
        got: list[Delivery] = []
        async with asyncio.timeout(20):
            while len(got) < 5:
                with contextlib.suppress(BrokerUnavailable):
                    got += await stream.receive(10, 0.5)
        assert [delivery.frame.id for delivery in got] == [frame.id for frame in sent]
        await publisher.aclose()
        await broker.aclose()


async def test_a_receive_returns_by_its_deadline_though_others_change_the_ledger_all_the_time(
    broker: RedisBroker, bare: Bare, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = await broker.subscribe("g", [topic])
    await stream.receive(1, 0)
    execute = Pipeline.execute

    async def overtaken(pipeline: Pipeline, raise_on_error: bool = True) -> list[Any]:
        if pipeline.watching:
            await bare.hincrby(f"posthouse:group:g:{topic}", "epoch:0", 1)
        return await execute(pipeline, raise_on_error)

    monkeypatch.setattr(Pipeline, "execute", overtaken)
    await broker.publish(frames(topic, 10, keys=10))
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(10):
        assert list(await stream.receive(10, 0.5)) == []
    assert loop.time() - began < 3.0
    monkeypatch.setattr(Pipeline, "execute", execute)
    assert len(await collect(stream, 10)) == 10


async def test_a_subscribe_that_fails_half_way_leaves_nothing(broker: RedisBroker, bare: Bare, topic: str) -> None:
    bell = f"posthouse:bell:half{topic}"
    await bare.set(bell, "not a stream")
    for _ in range(3):
        with pytest.raises(BrokerError):
            await broker.subscribe(f"half{topic}", [topic])
    ledger = await bare.hgetall(f"posthouse:group:half{topic}:{topic}")
    assert [field for field in ledger if field.startswith((b"member:", b"owner:"))] == []
    assert broker._streams == set()
    assert [task for task in asyncio.all_tasks() if f"half{topic}" in task.get_name()] == []
    await bare.delete(bell)
    await broker.publish(frames(topic, 1))
    assert len(await collect(await broker.subscribe(f"half{topic}", [topic]), 1)) == 1


async def test_the_end_of_a_members_background_work_is_told(redis_server: RedisServer, topic: str) -> None:
    clock = ManualClock()
    broker = RedisBroker(redis_server.url, clock=clock)
    stream = await broker.subscribe("g", [topic])

    async def broken() -> None:
        raise RuntimeError("nobody expected this")

    stream._on_beat = broken
    async with asyncio.timeout(20):
        while stream._beating is not None and not stream._beating.done():
            clock.advance(10.0)
            await asyncio.sleep(0.01)
    with pytest.raises(BrokerError, match="subscribe again"):
        await stream.receive(1, 0)
    with pytest.raises(BrokerError, match="subscribe again"):
        await stream.ack([])
    await broker.aclose()


async def test_behind_an_entry_that_is_refused_nothing_of_its_lane_is_stored(
    broker: RedisBroker, bare: Bare, topic: str
) -> None:
    """The server refuses a field without a value; what follows in the same script would be fine."""
    lanes = [lane_of(topic, 0), lane_of(topic, 1)]
    refused = await broker._client.run(ADD, lanes, [1, 2, "a", "1", 1, 1, "odd", 1, 2, "b", "2", 2, 2, "c", "3"])
    assert [number for number, _ in refused] == [1, 2]
    assert [await bare.xlen(lane) for lane in lanes] == [1, 1]


async def test_a_member_that_joins_or_leaves_is_heard_at_once(redis_server: RedisServer, topic: str) -> None:
    """Long before a lease would have to be renewed."""
    first, second = (RedisBroker(redis_server.url, clock=SystemClock(), lease=60.0) for _ in range(2))
    stayer = await first.subscribe("g", [topic])
    waiting = asyncio.create_task(stayer.receive(1, 30.0))
    async with asyncio.timeout(10):
        guest = await second.subscribe("g", [topic])
        while not guest._held:
            assert list(await guest.receive(1, 0.05)) == []
        await guest.aclose()
        while len(stayer._held) < 9:  # noqa: ASYNC110 - lanes come without an Event
            await asyncio.sleep(0.01)
    await first.publish(frames(topic, 1))
    assert len(await waiting) == 1
    await first.aclose()
    await second.aclose()


async def test_frames_in_lanes_of_a_dead_member_wake_its_heir(
    redis_server: RedisServer, bare: Bare, topic: str
) -> None:
    """Its heir waited when it took them over: from then on it listens to them too."""
    sleeper = RedisBroker(redis_server.url, clock=ManualClock(), lease=0.6)
    heir = RedisBroker(redis_server.url, clock=SystemClock(), lease=0.6, timeout=20.0)
    asleep = await sleeper.subscribe("g", [topic])
    stream = await heir.subscribe("g", [topic])
    waiting = asyncio.create_task(stream.receive(100, 30.0))
    await taken_over(bare, topic, asleep)
    await asyncio.sleep(0.1)  # until it listens again; nothing tells when
    sent = frames(topic, 40, keys=40)
    async with asyncio.timeout(2):
        await heir.publish(sent)
        got = list(await waiting)
        got += await collect(stream, 40 - len(got))
    assert {delivery.frame.id for delivery in got} == {frame.id for frame in sent}
    await heir.aclose()
    await sleeper.aclose()


# Servers that stop, forget, or may not write


async def test_a_paused_server_is_unavailable_in_time_and_used_when_it_goes_on() -> None:
    with running() as server:
        broker = RedisBroker(server.url, clock=SystemClock(), timeout=0.5)
        await broker.ensure(Topology(topics=["t"]))
        sent = frames("t", 5)
        server.pause()
        async with asyncio.timeout(5):
            with pytest.raises(BrokerUnavailable):
                await broker.publish(sent)
        server.resume()
        await insist(broker, sent)
        stream = await broker.subscribe("g", ["t"])
        got = list(dict.fromkeys(delivery.frame.id for delivery in await collect(stream, 5)))
        assert got == [frame.id for frame in sent]
        await broker.aclose()


async def insist(broker: RedisBroker, sent: list[Frame]) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                assert all(verdict.accepted for verdict in await broker.publish(sent))
                return
            except BrokerUnavailable:
                await asyncio.sleep(0.05)


async def test_a_server_that_is_not_there_is_unavailable_at_once_and_used_when_it_comes() -> None:
    with running() as server:
        server.end(signal.SIGKILL)
        broker = RedisBroker(server.url, clock=SystemClock(), timeout=0.5)
        with pytest.raises(BrokerUnavailable, match=str(server.port)):
            await broker.ensure(Topology(topics=["t"]))
        server.start()
        await broker.ensure(Topology(topics=["t"]))
        assert (await broker.publish(frames("t", 1)))[0].accepted
        await broker.aclose()


async def test_a_replica_takes_nothing_and_says_so(redis_server: RedisServer) -> None:
    """As after a failover, when the name still leads to the old master."""
    with running() as server:
        broker = RedisBroker(server.url, clock=SystemClock())
        bare: Bare = Redis.from_url(server.url, protocol=2)
        await broker.ensure(Topology(topics=["t"]))
        await bare.execute_command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(BrokerUnavailable, match="read only"):
            await broker.publish(frames("t", 2))
        checks = {check.name: check for check in await broker.checks()}
        assert (checks["place"].judgement, checks["place"].found) == ("fail", "slave")
        await bare.execute_command("REPLICAOF", "NO", "ONE")
        assert all(verdict.accepted for verdict in await broker.publish(frames("t", 2)))
        await bare.aclose()
        await broker.aclose()


async def test_a_server_that_loads_or_runs_a_long_script_is_unavailable() -> None:
    with running(**{"busy-reply-threshold": "50"}) as server:
        broker = RedisBroker(server.url, clock=SystemClock())
        bare: Bare = Redis.from_url(server.url, protocol=2)
        await broker.ensure(Topology(topics=["t"]))
        endless = asyncio.create_task(bare.eval("while true do end", 0))
        with pytest.raises(BrokerUnavailable, match="busy"):
            await publish_until_told(broker)
        killer: Bare = Redis.from_url(server.url, protocol=2)
        await killer.execute_command("SCRIPT", "KILL")
        await asyncio.wait([endless])
        assert endless.exception() is not None
        assert (await broker.publish(frames("t", 1)))[0].accepted
        for client in (bare, killer, broker):
            await client.aclose()


async def publish_until_told(broker: RedisBroker) -> None:
    async with asyncio.timeout(10):
        while True:
            await broker.publish(frames("t", 1))
            await asyncio.sleep(0.02)


async def test_a_server_that_forgets_is_not_durable_and_goes_on_afterwards() -> None:
    """Redis as it comes out of the box: nothing is written down before the answer (fault 14)."""
    with running(appendonly="no") as server:
        broker = RedisBroker(server.url, clock=SystemClock())
        await broker.ensure(Topology(topics=["t"]))
        checks = {check.name: check for check in await broker.checks()}
        assert checks["durability"].judgement == "warn"
        assert not broker.sheet.durable_ack
        assert any("appendfsync always" in note for note in broker.sheet.notes)
        assert all(verdict.accepted for verdict in await broker.publish(frames("t", 100)))
        await server.kill()
        (verdict,) = await broker.publish(frames("t", 1))
        assert (verdict.accepted, verdict.final) == (False, False), "the topic went with the frames"
        await broker.ensure(Topology(topics=["t"]))
        sent = frames("t", 3)
        assert all(verdict.accepted for verdict in await broker.publish(sent))
        got = await collect(await broker.subscribe("g", ["t"]), 3)
        assert [delivery.frame.id for delivery in got] == [frame.id for frame in sent]
        await broker.aclose()


async def test_what_a_restarted_server_may_have_forgotten_comes_as_repeats() -> None:
    """With `everysec` the place of a group may fall back by a second: the same frames are then read as new."""
    with running(appendfsync="no") as server:
        broker = RedisBroker(server.url, clock=SystemClock(), lease=0.6)
        await broker.ensure(Topology(topics=["t"]))
        sent = frames("t", 10)
        await broker.publish(sent)
        stream = await broker.subscribe("g", ["t"], window=10)
        await collect(stream, 10)
        bare: Bare = Redis.from_url(server.url, protocol=2)
        (lane,) = await lanes_with_frames(bare, "t")
        await server.restart()
        await bare.xgroup_setid(lane, "g", 0)  # what the lost second would have done
        async with asyncio.timeout(20):
            got: list[Delivery] = []
            while len(got) < 10:
                try:
                    got += await stream.receive(10, 1.0)
                except BrokerUnavailable:
                    await asyncio.sleep(0.02)
        assert [delivery.frame.id for delivery in got] == [frame.id for frame in sent]
        assert all(delivery.redelivered for delivery in got)
        await bare.aclose()
        await broker.aclose()


async def test_checks_of_a_durable_server_find_nothing(redis_server: RedisServer) -> None:
    broker = RedisBroker(redis_server.url, clock=SystemClock())
    assert {check.judgement for check in await broker.checks()} == {"ok"}
    assert broker.sheet.durable_ack
    assert broker.sheet.notes == ()
    assert {check.name for check in await broker.checks()} - {
        check.name for check in await broker.checks(today=False)
    } == {"memory"}
    await broker.aclose()


async def test_a_server_that_evicts_stops_the_start() -> None:
    with running(maxmemory="100mb", **{"maxmemory-policy": "allkeys-lru"}) as server:
        broker = RedisBroker(server.url, clock=SystemClock())
        checks = {check.name: check for check in await broker.checks()}
        assert (checks["eviction"].judgement, checks["eviction"].found) == ("fail", "allkeys-lru")
        assert not broker.sheet.durable_ack
        await broker.aclose()


async def test_a_server_that_may_not_be_asked_is_believed_what_was_declared() -> None:
    rights = "clerk on >clerk ~* +@all -config"
    with running(user=rights) as server:
        url = server.url.replace("redis://", "redis://clerk:clerk@")
        unsure = open_broker(url, clock=SystemClock())
        checks = {check.name: check for check in await unsure.checks()}
        assert (checks["durability"].judgement, checks["durability"].found) == ("warn", "the server does not say")
        assert not unsure.sheet.durable_ack
        declared = open_broker(f"{url}?sync=always", clock=SystemClock())
        assert {check.judgement for check in await declared.checks()} == {"ok"}
        assert declared.sheet.durable_ack
        await unsure.aclose()
        await declared.aclose()


async def test_a_user_without_rights_is_refused_and_keeps_nobody_else_waiting(
    broker: RedisBroker, redis_server: RedisServer, topic: str
) -> None:
    """One of two topics is not his: the other flows (fault 13)."""
    mine = f"guest.{topic}"
    await broker.ensure(Topology(topics=[mine]))
    guest = RedisBroker(redis_server.url_of_guest(), clock=SystemClock())
    refused, stored = await guest.publish([*frames(topic, 1), *frames(mine, 1)])
    assert (refused.accepted, refused.final) == (False, False)
    assert "permission" in refused.reason.lower()
    assert stored.accepted
    await guest.aclose()
    stranger = RedisBroker(redis_server.url.replace("//", "//guest:wrong@"), clock=SystemClock())
    with pytest.raises(BrokerUnavailable, match="username-password"):
        await stranger.publish(frames(topic, 1))
    await stranger.aclose()


async def test_the_rights_on_the_page_are_enough() -> None:
    """As docs/brokers/redis.md has them."""
    page = (Path(__file__).parents[2] / "docs" / "brokers" / "redis.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith("user orders ")]
    with running(user=line.removeprefix("user ")) as server:
        broker = RedisBroker(server.url.replace("//", "//orders:secret@"), clock=SystemClock(), retention=0.0)
        await broker.ensure(Topology(topics=["shop.a"], groups={"g": ["shop.a"]}))
        assert {check.judgement for check in await broker.checks()} == {"ok"}
        sent = frames("shop.a", 10)
        assert all(verdict.accepted for verdict in await broker.publish(sent))
        stream = await broker.subscribe("g", ["shop.a"])
        got = await collect(stream, 10)
        await broker.seek("g", "shop.a", position=got[5].position)
        await collect(stream, 5)
        await stream.aclose()
        assert (await broker.progress("g", ["shop.a"]))["shop.a"].pending == 0
        assert await broker.prune() > 0
        with pytest.raises(BrokerError):
            await broker.ensure(Topology(topics=["other.a"]))
        await broker.aclose()


# Other people's clients


@WIRES
async def test_a_bare_consumer_and_the_cloudevents_sdk_read_what_we_publish(
    broker: RedisBroker, bare: Bare, tmp_path: Path, wire: str
) -> None:
    async with telling(broker, tmp_path, wire) as orders:
        lanes = [lane_of(orders.topic, number) for number in range(8)]
        for lane in lanes:
            await bare.xgroup_create(lane, "theirs", 0)
        await orders.tell()
        [(lane, [(entry, fields)])] = await eventually(
            lambda: bare.xreadgroup("theirs", "one", dict.fromkeys(lanes, ">"))
        )
        await bare.xack(lane, "theirs", entry)
        body = fields.pop(b"body")
        headers = {name.decode(): value.decode() for name, value in fields.items()}
        event = http.from_http_event(http.HTTPMessage(headers=headers, body=body))
        orders.assert_told(event)
        assert event.get_extension("partitionkey") == KEY


@WIRES
async def test_we_apply_what_a_bare_publisher_and_the_cloudevents_sdk_say(
    broker: RedisBroker, bare: Bare, tmp_path: Path, wire: str
) -> None:
    async with hearing(broker, tmp_path) as billing:
        message = billing.message(wire)
        await bare.xadd(billing.topic, {**message.headers, "body": message.body})
        await billing.assert_heard()


async def test_an_entry_of_any_kind_is_a_frame(broker: RedisBroker, bare: Bare, topic: str) -> None:
    place = await bare.xadd(topic, {"body": b"\xff\x00", "X-Colour": "blue"})
    await bare.xadd(topic, {"id": "their id", "key": "k", b"\xff": b"\xfe"})
    first, second = await collect(await broker.subscribe("g", [topic]), 2)
    assert first.frame == Frame(
        topic=topic, id=f"{topic}:{place.decode()}", body=b"\xff\x00", headers={"x-colour": "blue"}
    )
    assert second.frame == Frame(topic=topic, id="their id", key="k", body=b"", headers={"\ufffd": "\ufffd"})


async def test_the_benchmark_of_redis_measures_what_it_says(tmp_path: Path) -> None:
    readings = await brokers.measure("redis", tmp_path, Scale(share=0.0, rounds=1))
    assert [reading.measure for reading in readings] == ["redis publish", "redis receive", "redis consume, once only"]
    assert all(reading.ours > 0 and reading.ratio for reading in readings)
