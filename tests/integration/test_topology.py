"""Surveys of real servers: what is shown, mended and removed, beside other people's things and paused members."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

import asyncpg
import msgspec
import nats
import pytest
from nats.js.api import StreamConfig

from posthouse.broker import Broker, Delivery, Frame, Stream, Topology
from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.brokers.kafka import KafkaBroker
from posthouse.brokers.nats import NatsBroker
from posthouse.brokers.postgres import PostgresBroker
from posthouse.clock import Clock, ManualClock, SystemClock, new_id
from posthouse.errors import BrokerError
from posthouse.survey import Age, Surveyed
from posthouse.topology import carry_out, plan
from tests.integration.grounds import Ground
from tests.kit.servers.nats import NatsServer

PATIENCE = 20.0


@pytest.fixture
def ground() -> Ground:
    return Ground()


async def test_settings_of_a_stream_that_somebody_changed_are_shown_and_mended(
    nats_server: NatsServer, ground: Ground
) -> None:
    broker = NatsBroker(nats_server.url, clock=SystemClock())
    client = await nats.connect(nats_server.url)
    try:
        await broker.ensure(ground.wanted)
        stream = ground.topic.replace(".", "_")
        jetstream = client.jetstream()
        config = (await jetstream.stream_info(stream)).config
        config.duplicate_window, config.max_age, config.description = 30, 3600, "theirs"
        await jetstream.update_stream(config)
        (step,) = await plan(broker, ground.wanted, ground.scope)
        assert {(drift.setting, drift.found, drift.wanted) for drift in step.drift} == {
            ("duplicate_window", "30 s", "120 s"),
            ("max_age", "3,600 s", "none"),
        }
        assert not step.loses
        assert step.resource.called == f"stream {stream}"
        assert await carry_out(broker, ground.wanted, [step], allow_delete=False) == [step]
        assert await plan(broker, ground.wanted, ground.scope) == []
        mended = (await jetstream.stream_info(stream)).config
        assert (mended.duplicate_window, mended.max_age, mended.description) == (120, 0, "theirs")
    finally:
        await client.close()
        await broker.aclose()


async def test_a_shorter_age_deletes_frames_and_so_must_be_allowed(nats_server: NatsServer, ground: Ground) -> None:
    broker = NatsBroker(nats_server.url, clock=SystemClock())
    shorter = NatsBroker(nats_server.url, clock=SystemClock(), retention=600.0)
    try:
        await broker.ensure(ground.wanted)
        planned = await plan(shorter, ground.wanted, ground.scope)
        assert [step.loses for step in planned] == ["frames older than 600 s"]
        assert await carry_out(shorter, ground.wanted, planned, allow_delete=False) == []
        assert await plan(shorter, ground.wanted, ground.scope) == planned
        await carry_out(shorter, ground.wanted, planned, allow_delete=True)
        assert await plan(shorter, ground.wanted, ground.scope) == []
    finally:
        await broker.aclose()
        await shorter.aclose()


async def test_a_topic_is_kept_as_long_as_its_class_says_and_the_others_as_the_url_does(
    nats_server: NatsServer, ground: Ground
) -> None:
    broker = NatsBroker(nats_server.url, clock=SystemClock())
    later = NatsBroker(nats_server.url, clock=SystemClock())
    classed = msgspec.structs.replace(ground.wanted, retention={ground.topic: 604_800.0})
    try:
        await broker.ensure(ground.wanted)
        assert await later.ages([ground.topic, "shop.nobodys"]) == {ground.topic: Age(None, False, True)}
        planned = await plan(later, classed, ground.scope)
        assert [[(d.setting, d.found, d.wanted) for d in step.drift] for step in planned] == [
            [("max_age", "none", "604,800 s")]
        ]
        assert [step.loses for step in planned] == ["frames older than 604,800 s"]
        await carry_out(later, classed, planned, allow_delete=True)
        assert await plan(later, classed, ground.scope) == []
        assert await later.ages([ground.topic]) == {ground.topic: Age(604_800.0, False, True)}
        found = {check.name: check.judgement for check in await later.checks()}
        assert found[f"topic {ground.topic}, age"] == "ok", "somebody decided it"
        assert not later.sheet.retains_unacked, "and what nobody has read by then is gone"
        found = {check.name: check.judgement for check in await broker.checks()}
        assert found[f"topic {ground.topic}, age"] == "warn"
    finally:
        await broker.aclose()
        await later.aclose()


async def test_streams_of_other_people_are_not_ours_to_see(nats_server: NatsServer, ground: Ground) -> None:
    broker = NatsBroker(nats_server.url, clock=SystemClock())
    client = await nats.connect(nats_server.url)
    try:
        name = f"{ground.namespace}_orders_old"
        await client.jetstream().add_stream(StreamConfig(name=name, subjects=[f"{ground.namespace}.orders.old"]))
        assert await plan(broker, Topology(), ground.scope) == []
    finally:
        await client.close()
        await broker.aclose()


async def test_a_group_whose_name_is_no_word_of_nats_is_found_by_its_name(
    nats_server: NatsServer, ground: Ground
) -> None:
    broker = NatsBroker(nats_server.url, clock=SystemClock())
    try:
        group = f"{ground.group}.mail & more=%"
        await broker.ensure(Topology(groups={group: [ground.topic]}))
        planned = await plan(broker, Topology(topics=[ground.topic]), ground.scope)
        assert [(step.verb, step.resource.group) for step in planned] == [("delete", group)]
        await carry_out(broker, Topology(), planned, allow_delete=True)
        assert await plan(broker, Topology(topics=[ground.topic]), ground.scope) == []
    finally:
        await broker.aclose()


async def test_a_plan_makes_no_schema_in_postgresql(postgres_url: str, ground: Ground) -> None:
    schema = f"log_{new_id()[-8:]}"
    broker = PostgresBroker(postgres_url, clock=SystemClock(), schema=schema)
    connection = await asyncpg.connect(postgres_url)
    try:
        planned = await plan(broker, ground.wanted, ground.scope)
        assert [step.verb for step in planned] == ["create", "create"]
        assert not await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", schema)
        await carry_out(broker, ground.wanted, planned, allow_delete=False)
        assert await plan(broker, ground.wanted, ground.scope) == []
    finally:
        await connection.close()
        await broker.aclose()


async def test_frames_of_a_removed_topic_leave_postgresql(postgres_url: str, ground: Ground) -> None:
    schema = f"log_{new_id()[-8:]}"
    broker = PostgresBroker(postgres_url, clock=SystemClock(), schema=schema)
    connection = await asyncpg.connect(postgres_url)
    try:
        await broker.ensure(Topology(topics=[ground.topic, "other.topic"]))
        for topic in (ground.topic, "other.topic"):
            await broker.publish([Frame(topic=topic, id=new_id(), body=b"x") for _ in range(50)])
        await carry_out(broker, Topology(), await plan(broker, Topology(), ground.scope), allow_delete=True)
        assert await connection.fetchval(f"SELECT count(*) FROM {schema}.frames") == 50
        assert await connection.fetchval(f"SELECT count(DISTINCT topic) FROM {schema}.heads") == 1
    finally:
        await connection.close()
        await broker.aclose()


@pytest.fixture(params=["embedded", "kafka", "nats", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param


async def test_a_member_that_slept_through_the_removal_of_its_place_is_told(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, ground: Ground
) -> None:
    """Its lease ends while it sleeps; when it wakes it must not wait for frames that can never come."""

    def opened(clock: Clock) -> Broker:
        if kind == "kafka":
            return KafkaBroker(request.getfixturevalue("kafka_server").servers, clock=clock, lease=1.0)
        if kind == "nats":
            return NatsBroker(request.getfixturevalue("nats_server").url, clock=clock, lease=0.4)
        if kind == "postgres":
            return PostgresBroker(request.getfixturevalue("postgres_url"), clock=clock, lease=0.4)
        return EmbeddedBroker(tmp_path / "log.db", clock=clock, lease=0.4)

    asleep = ManualClock(time.time())
    sleeper, other = opened(asleep), opened(SystemClock())
    assert isinstance(other, Surveyed)
    try:
        await sleeper.ensure(ground.wanted)
        stream = await sleeper.subscribe(ground.group, [ground.topic])
        await removed(other, ground)
        asleep.advance(60)
        with pytest.raises(BrokerError, match="was removed from"):
            await first_of(stream, asleep)
        await stream.aclose()
        again = await sleeper.subscribe(ground.group, [ground.topic])
        await other.publish([Frame(topic=ground.topic, id="e1", body=b"x")])
        got = await first_of(again, asleep)
        assert [delivery.frame.id for delivery in got] == ["e1"]
    finally:
        await sleeper.aclose()
        await other.aclose()


async def removed(broker: Surveyed, ground: Ground) -> None:
    """The group's place, as soon as its member counts as gone."""
    deadline = time.monotonic() + PATIENCE
    while True:
        places = [resource for resource in await broker.survey(ground.wanted) if resource.group == ground.group]
        if not any(place.at_work for place in places):
            await broker.remove(places)
            return
        assert time.monotonic() < deadline, "the sleeper still counts as at work"
        await asyncio.sleep(0.05)


async def first_of(stream: Stream, clock: ManualClock) -> Sequence[Delivery]:
    """While its clock goes on."""
    async with asyncio.timeout(PATIENCE):
        while not (got := await stream.receive(10, 0.2)):
            clock.advance(0.2)
    return got


async def test_what_nats_promises_before_any_stream_is_known_is_what_it_would_make(
    nats_server: NatsServer, ground: Ground
) -> None:
    for sync, durable in (("default", False), ("always", True)):
        broker = NatsBroker(nats_server.url, clock=SystemClock(), sync=sync)  # type: ignore[arg-type]  # both are modes
        try:
            await broker.checks()
            assert broker.sheet.durable_ack == durable
        finally:
            await broker.aclose()


async def test_a_survey_tells_nats_which_streams_to_judge(nats_server: NatsServer, ground: Ground) -> None:
    maker, judge = (NatsBroker(nats_server.url, clock=SystemClock()) for _ in range(2))
    try:
        await maker.ensure(ground.wanted)
        assert len(await judge.checks()) == 1
        await judge.survey(ground.wanted)
        assert f"topic {ground.topic}, durability" in {check.name for check in await judge.checks()}
    finally:
        await maker.aclose()
        await judge.aclose()


async def test_a_removed_topic_leaves_no_trace_but_its_number_in_the_embedded_log(
    tmp_path: Path, ground: Ground
) -> None:
    """A process that still knows the number must find nothing, not another topic."""
    broker = EmbeddedBroker(tmp_path / "log.db", clock=SystemClock())

    def numbers() -> dict[str, int]:
        with contextlib.closing(sqlite3.connect(tmp_path / "log.db")) as log:
            return dict(log.execute("SELECT name, id FROM topics").fetchall())

    try:
        await broker.ensure(ground.wanted)
        before = numbers()[ground.topic]
        await broker.remove(await broker.survey(ground.wanted))
        assert list(await broker.survey(Topology())) == []
        await broker.ensure(Topology(topics=["another", ground.topic]))
        assert before not in (numbers()["another"], numbers()[ground.topic])
    finally:
        await broker.aclose()
