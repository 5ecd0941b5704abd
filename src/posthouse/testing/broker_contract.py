"""The contract of a broker as tests. A new adapter is proven by a class of ten lines:

    class TestMyBroker(BrokerContract):
        async def make_broker(self) -> Broker:
            return MyBroker("my://localhost")

Needs pytest with pytest-asyncio. Each test makes topics and groups of its own, so one server serves all of them. What a
capability sheet denies is tested too: the adapter must then refuse, not pretend.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable

import pytest

from posthouse.broker import Broker, Delivery, Frame, Stream, Topology
from posthouse.clock import new_id
from posthouse.errors import BrokerError, SeekUnsupported


class Opened:
    """Opens brokers for one test and remembers them, so that all are closed in the end."""

    def __init__(self, contract: BrokerContract) -> None:
        self._contract = contract
        self.brokers: list[Broker] = []

    async def __call__(self) -> Broker:
        self.brokers.append(await self._contract.make_broker())
        return self.brokers[-1]

    async def doomed(self) -> Broker:
        self.brokers.append(await self._contract.make_doomed())
        return self.brokers[-1]


class BrokerContract:
    """Subclass it, give `make_broker`, and `make_doomed` and `expire` where the technology has them."""

    pytestmark = pytest.mark.asyncio

    deadline: float = 20.0
    """Seconds after which something that should have come counts as lost."""
    quiet: float = 0.3
    """Seconds without a frame that count as proof that none will come."""

    async def make_broker(self) -> Broker:
        """A new instance on the one log of this test, as another process would open it."""
        raise NotImplementedError("give make_broker()")

    async def make_doomed(self) -> Broker:
        """An instance that the group gives up within `deadline` though nobody closes it: it hangs, or was killed."""
        pytest.skip("a member of this broker cannot fall silent")

    async def expire(self, broker: Broker) -> None:
        """Delete now whatever retention allows to delete."""
        pytest.skip("retention of this broker cannot be hurried")

    # Publishing

    async def test_publish_is_durable_after_ack(self) -> None:
        async with self.brokers() as make:
            publisher = await make()
            topic = await self.topic(publisher)
            sent = await self.publish(publisher, topic, 3)
            await publisher.aclose()
            reader = await (await make()).subscribe(self.name("group"), [topic])
            assert ids(await self.collect(reader, 3)) == ids_of(sent)

    async def test_publish_of_nothing_is_nothing(self) -> None:
        async with self.brokers() as make:
            assert list(await (await make()).publish([])) == []

    async def test_publish_retry_is_idempotent_within_window(self) -> None:
        """Without native dedup both copies must come: a broker that drops some of them promises nothing useful."""
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            frame = Frame(topic=topic, id=new_id(), key="k", body=b"once")
            await broker.publish([frame])
            await broker.publish([frame])
            stream = await broker.subscribe(self.name("group"), [topic])
            await self.collect(stream, 1 if broker.sheet.native_dedup_s > 0 else 2)
            await self.nothing_more(stream)

    async def test_publish_unroutable_fails(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            lost, stored = await broker.publish(
                [
                    Frame(topic=self.name("never-made"), id=new_id(), body=b"lost"),
                    Frame(topic=topic, id=new_id(), body=b"stored"),
                ]
            )
            assert not lost.accepted
            assert not lost.final, "the topic may be made later"
            assert lost.reason
            assert stored.accepted

    async def test_a_topic_made_later_takes_frames(self) -> None:
        async with self.brokers() as make:
            broker, other = await make(), await make()
            frame = Frame(topic=self.name("late"), id=new_id(), body=b"x")
            assert not (await broker.publish([frame]))[0].accepted
            await other.ensure(Topology(topics=[frame.topic]))
            assert (await broker.publish([frame]))[0].accepted

    async def test_publish_too_large_fails_fast(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            huge = bytes(broker.sheet.max_bytes + 1)
            large, follower, neighbour = await broker.publish(
                [
                    Frame(topic=topic, id=new_id(), key="a", body=huge),
                    Frame(topic=topic, id=new_id(), key="a", body=b"follower"),
                    Frame(topic=topic, id=new_id(), key="b", body=b"neighbour"),
                ]
            )
            assert (large.accepted, large.final) == (False, True)
            assert (follower.accepted, follower.final) == (False, False), "it must not overtake its key's elder"
            assert neighbour.accepted
            stream = await broker.subscribe(self.name("group"), [topic])
            assert [delivery.frame.body for delivery in await self.collect(stream, 1)] == [b"neighbour"]
            await self.nothing_more(stream)

    async def test_a_frame_of_exactly_the_largest_size_passes(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            body = bytes(broker.sheet.max_bytes)
            assert (await broker.publish([Frame(topic=topic, id=new_id(), body=body)]))[0].accepted
            stream = await broker.subscribe(self.name("group"), [topic])
            assert (await self.collect(stream, 1))[0].frame.body == body

    async def test_publish_order_per_key_serial(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            sent = [frame for _ in range(10) for frame in await self.publish(broker, topic, 20, keys=5)]
            stream = await broker.subscribe(self.name("group"), [topic])
            got = await self.collect(stream, len(sent))
            assert ids(got) == ids_of(sent)
            if broker.sheet.ordered_publish:
                assert by_key(delivery.frame for delivery in got) == by_key(sent)

    async def test_text_that_is_not_unicode_is_refused_for_good(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            broken, fine = await broker.publish(
                [
                    Frame(topic=topic, id=new_id(), key="a\ud800", body=b"x"),
                    Frame(topic=topic, id=new_id(), key="b", body=b"y"),
                ]
            )
            assert (broken.accepted, broken.final) == (False, True)
            assert fine.accepted

    async def test_two_destinations_same_id_both_stored(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topics = [await self.topic(broker), await self.topic(broker)]
            one = new_id()
            verdicts = await broker.publish([Frame(topic=topic, id=one, body=b"x") for topic in topics])
            assert all(verdict.accepted for verdict in verdicts)
            stream = await broker.subscribe(self.name("group"), topics)
            assert {delivery.frame.topic for delivery in await self.collect(stream, 2)} == set(topics)

    async def test_headers_binary_utf8_and_limits(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            limit = broker.sheet.header_limit
            headers = {f"h{n}": f"wört {n} \N{SNOWMAN}" for n in range(min(20, limit or 20))}
            body = bytes(range(256)) if broker.sheet.binary_body else "ü".encode()
            frame = Frame(topic=topic, id=new_id(), key="tenant:ключ", body=body, headers=headers)
            await broker.publish([frame])
            stream = await broker.subscribe(self.name("group"), [topic])
            assert (await self.collect(stream, 1))[0].frame == frame

    async def test_empty_body(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            frame = Frame(topic=topic, id=new_id(), body=b"")
            await broker.publish([frame])
            stream = await broker.subscribe(self.name("group"), [topic])
            assert (await self.collect(stream, 1))[0].frame == frame

    # Consuming

    async def test_consume_at_least_once(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            stream = await broker.subscribe(self.name("group"), [topic])
            waiting = asyncio.create_task(self.collect(stream, 50))
            sent = [frame for _ in range(5) for frame in await self.publish(broker, topic, 10, keys=3)]
            got = await waiting
            assert ids(got) == ids_of(sent)
            assert not any(delivery.redelivered for delivery in got)
            await self.nothing_more(stream)

    async def test_a_frame_of_another_instance_wakes_the_reader(self) -> None:
        async with self.brokers() as make:
            broker, other = await make(), await make()
            topic = await self.topic(broker)
            stream = await broker.subscribe(self.name("group"), [topic])
            waiting = asyncio.create_task(stream.receive(10, self.deadline))
            await self.publish(other, topic, 1)
            async with asyncio.timeout(self.deadline / 2):
                assert len(await waiting) == 1

    async def test_receive_gives_at_most_the_limit_and_nothing_when_there_is_nothing(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            stream = await broker.subscribe(self.name("group"), [topic])
            await self.nothing_more(stream)
            await self.publish(broker, topic, 10, keys=5)
            assert 0 < len(await stream.receive(3, self.deadline)) <= 3

    async def test_cancelling_receive_loses_nothing(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            stream = await broker.subscribe(self.name("group"), [topic])
            got: list[Delivery] = []
            for turn in range(30):
                task = asyncio.create_task(stream.receive(10, self.deadline))
                for _ in range(turn % 6):
                    await asyncio.sleep(0)
                await self.publish(broker, topic, 1, keys=3)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    got += await task
            await stream.ack(got)
            missing = 30 - len(ids(got))
            if missing:
                got += await self.collect(stream, missing)
            assert len(ids(got)) == 30

    async def test_two_groups_each_get_everything(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            streams = [await broker.subscribe(self.name("group"), [topic]) for _ in range(2)]
            sent = await self.publish(broker, topic, 10, keys=3)
            for stream in streams:
                assert ids(await self.collect(stream, 10)) == ids_of(sent)

    async def test_new_group_reads_history(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            sent = await self.publish(broker, topic, 5, keys=2)
            stream = await broker.subscribe(self.name("group"), [topic], start="earliest")
            assert ids(await self.collect(stream, 5)) == ids_of(sent)

    async def test_a_group_that_starts_at_the_end_gets_only_what_is_new(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic, group = await self.topic(broker), self.name("group")
            await self.publish(broker, topic, 5, keys=5)
            stream = await broker.subscribe(group, [topic], start="latest")
            sent = await self.publish(broker, topic, 3, keys=5)
            assert ids(await self.collect(stream, 3)) == ids_of(sent)
            assert (await broker.progress(group, [topic]))[topic].truncated

    async def test_start_matters_only_to_a_new_group(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic, group = await self.topic(broker), self.name("group")
            await (await broker.subscribe(group, [topic])).aclose()
            sent = await self.publish(broker, topic, 3)
            stream = await broker.subscribe(group, [topic], start="latest")
            assert ids(await self.collect(stream, 3)) == ids_of(sent)

    async def test_nack_redelivers(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            sent = await self.publish(broker, topic, 1)
            stream = await broker.subscribe(self.name("group"), [topic])
            for turn in range(3):
                (delivery,) = await self.collect(stream, 1, ack=False)
                assert delivery.frame == sent[0]
                assert delivery.redelivered == (turn > 0)
                await stream.nack([delivery])
            await self.collect(stream, 1)
            await self.nothing_more(stream)

    async def test_nack_keeps_key_order(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            sent = await self.publish(broker, topic, 12, keys=2)
            stream = await broker.subscribe(self.name("group"), [topic])
            first = await self.collect(stream, 8, ack=False)
            await stream.nack(list(reversed(first)))
            again = await self.collect(stream, 12)
            assert ids(again) == ids_of(sent)
            if broker.sheet.ordered_redelivery:
                assert by_key(delivery.frame for delivery in again) == by_key(sent)

    async def test_acks_in_any_order_are_never_handed_out_again(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic, group = await self.topic(broker), self.name("group")
            await self.publish(broker, topic, 10)
            stream = await broker.subscribe(group, [topic])
            got = await self.collect(stream, 10, ack=False)
            for delivery in reversed(got):
                await stream.ack([delivery, delivery])
            await self.nothing_more(stream)
            await stream.aclose()
            await self.nothing_more(await broker.subscribe(group, [topic]))

    async def test_slow_consumer_bounded_memory(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            await self.publish(broker, topic, 100)
            stream = await broker.subscribe(self.name("group"), [topic], window=10)
            first = await self.collect(stream, 10, ack=False)
            await self.nothing_more(stream)
            await stream.ack(first)
            rest = await self.collect(stream, 90)
            assert len(ids(first) | ids(rest)) == 100

    async def test_progress_counts_what_is_stored_and_what_is_left(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic, group = await self.topic(broker), self.name("group")
            await self.publish(broker, topic, 5)
            stream = await broker.subscribe(group, [topic])
            got = await self.collect(stream, 5, ack=False)
            await stream.ack(got[:2])
            progress = (await broker.progress(group, [topic]))[topic]
            assert (progress.stored, progress.pending, progress.truncated) == (5, 3, False)

    # Members that come, go and fall silent

    async def test_a_key_goes_to_one_member_at_a_time(self) -> None:
        """A second member joins while frames flow; every frame is acknowledged a moment after it was received."""
        async with self.brokers() as make:
            broker, other = await make(), await make()
            topic, group = await self.topic(broker), self.name("group")
            in_hand: set[tuple[str | None, Stream]] = set()
            seen: dict[Stream, set[str]] = defaultdict(set)
            shared: set[str | None] = set()
            progressed = asyncio.Event()

            async def work(stream: Stream) -> None:
                while True:
                    batch = await stream.receive(20, self.quiet)
                    mine = {(delivery.frame.key, stream) for delivery in batch}
                    shared.update(key for key, holder in in_hand if (key, stream) in mine and holder is not stream)
                    in_hand.update(mine)
                    await asyncio.sleep(0)
                    seen[stream].update(ids(batch))
                    in_hand.difference_update(mine)
                    await stream.ack(batch)
                    progressed.set()

            sent: set[str] = set()
            tasks = [asyncio.create_task(work(await broker.subscribe(group, [topic])))]
            async with asyncio.timeout(self.deadline):
                while len([stream for stream in seen if seen[stream]]) < 2:
                    sent |= ids_of(await self.publish(broker, topic, 40, keys=20))
                    if len(tasks) == 1:
                        tasks.append(asyncio.create_task(work(await other.subscribe(group, [topic]))))
                    await asyncio.sleep(0.01)
                while set[str]().union(*seen.values()) != sent:
                    progressed.clear()
                    await progressed.wait()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            if broker.sheet.ordered_redelivery:
                assert not shared

    async def test_graceful_close_no_orphan(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic, group = await self.topic(broker), self.name("group")
            sent = await self.publish(broker, topic, 10, keys=4)
            leaver = await broker.subscribe(group, [topic])
            got = await self.collect(leaver, 10, ack=False)
            done = [delivery for delivery in got if delivery.frame.key == got[0].frame.key]
            await leaver.ack(done)
            stayer = await (await make()).subscribe(group, [topic])
            await leaver.aclose()
            rest = await self.collect(stayer, 10 - len(done))
            assert ids(rest) == ids_of(sent) - ids(done)
            assert all(delivery.redelivered for delivery in rest)
            await self.nothing_more(stayer)

    async def test_crash_consumer_redelivers(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic, group = await self.topic(broker), self.name("group")
            sent = await self.publish(broker, topic, 10, keys=4)
            doomed = await make.doomed()
            await self.collect(await doomed.subscribe(group, [topic]), 10, ack=False)
            heir = await broker.subscribe(group, [topic])
            got = await self.collect(heir, 10)
            assert ids(got) == ids_of(sent)
            assert all(delivery.redelivered for delivery in got)
            if broker.sheet.ordered_redelivery:
                assert by_key(delivery.frame for delivery in got) == by_key(sent)

    async def test_hang_is_reclaimed_and_ack_after_reclaim_is_harmless(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic, group = await self.topic(broker), self.name("group")
            await self.publish(broker, topic, 6)
            sleeper = await (await make.doomed()).subscribe(group, [topic])
            stale = await self.collect(sleeper, 6, ack=False)
            heir = await broker.subscribe(group, [topic])
            got = await self.collect(heir, 6, ack=False)
            await sleeper.ack(stale)
            assert (await broker.progress(group, [topic]))[topic].pending == 6
            await heir.ack(got)
            assert (await broker.progress(group, [topic]))[topic].pending == 0
            await self.nothing_more(heir)

    async def test_retention_does_not_drop_unacked(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic, group = await self.topic(broker), self.name("group")
            await broker.ensure(Topology(groups={group: [topic]}))
            sent = await self.publish(broker, topic, 10, keys=4)
            stream = await broker.subscribe(group, [topic])
            got = await self.collect(stream, 10, ack=False)
            await stream.ack(got[:3])
            await self.expire(broker)
            await stream.aclose()
            rest = await self.collect(await broker.subscribe(group, [topic]), 7)
            assert ids(got[:3]) | ids(rest) == ids_of(sent)

    async def test_restart_clean(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic, group = await self.topic(broker), self.name("group")
            sent = await self.publish(broker, topic, 10)
            before = await self.collect(await broker.subscribe(group, [topic], window=4), 4)
            await broker.aclose()
            stream = await (await make()).subscribe(group, [topic])
            after = await self.collect(stream, 6)
            assert ids(before) | ids(after) == ids_of(sent)
            await self.nothing_more(stream)

    async def test_concurrent_close(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            stream = await broker.subscribe(self.name("group"), [topic])
            waiting = asyncio.create_task(stream.receive(10, self.deadline * 2))
            await asyncio.sleep(0)
            async with asyncio.timeout(self.deadline):
                await asyncio.gather(stream.aclose(), broker.aclose(), stream.aclose(), broker.aclose())
                with contextlib.suppress(BrokerError):
                    assert list(await waiting) == []
                await stream.aclose()
                await broker.aclose()

    # Going back

    async def test_seek_from_offset(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic, group = await self.topic(broker), self.name("group")
            sent = await self.publish(broker, topic, 10)
            stream = await broker.subscribe(group, [topic])
            got = await self.collect(stream, 10)
            if not broker.sheet.seek:
                with pytest.raises(SeekUnsupported):
                    await broker.seek(group, topic, position=got[4].position)
                return
            await (await make()).seek(group, topic, position=got[4].position)
            again = await self.collect(stream, 6)
            assert [delivery.frame for delivery in again] == sent[4:]
            await self.nothing_more(stream)

    async def test_seek_from_time(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic, group = await self.topic(broker), self.name("group")
            old = await self.publish(broker, topic, 5)
            stream = await broker.subscribe(group, [topic])
            stored_at = max(delivery.stored_at for delivery in await self.collect(stream, 5))
            if not broker.sheet.seek:
                with pytest.raises(SeekUnsupported):
                    await broker.seek(group, topic, time=stored_at)
                return
            new = await self.publish(broker, topic, 5)
            await self.collect(stream, 5)
            await broker.seek(group, topic, time=stored_at + 1e-6)
            again = ids(await self.collect(stream, 5))
            assert ids_of(new) <= again <= ids_of(old) | ids_of(new)
            await broker.seek(group, topic, time=stored_at + 1e9)
            await self.nothing_more(stream)

    async def test_an_ack_from_before_a_seek_does_not_undo_it(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic, group = await self.topic(broker), self.name("group")
            if not broker.sheet.seek:
                pytest.skip("this broker cannot go back")
            sent = await self.publish(broker, topic, 10)
            stream = await broker.subscribe(group, [topic])
            got = await self.collect(stream, 10, ack=False)
            await broker.seek(group, topic, position=got[0].position)
            await stream.ack(got)
            again = await self.collect(stream, 10)
            assert [delivery.frame for delivery in again] == sent
            assert all(delivery.redelivered for delivery in again)

    # Much at once

    async def test_stress_10k(self) -> None:
        async with self.brokers() as make:
            broker, other = await make(), await make()
            topic = await self.topic(broker)
            stream = await other.subscribe(self.name("group"), [topic])
            collecting = asyncio.create_task(self.collect(stream, 10_000))
            sent = [frame for _ in range(20) for frame in await self.publish(broker, topic, 500, keys=100)]
            got = await collecting
            assert ids(got) == ids_of(sent)
            if broker.sheet.ordered_publish:
                assert by_key(delivery.frame for delivery in got) == by_key(sent)

    # What the tests are written with

    @contextlib.asynccontextmanager
    async def brokers(self) -> AsyncIterator[Opened]:
        opened = Opened(self)
        try:
            yield opened
        finally:
            for broker in opened.brokers:
                await broker.aclose()

    def name(self, what: str) -> str:
        return f"contract-{what}-{new_id()[-12:]}"

    async def topic(self, broker: Broker) -> str:
        topic = self.name("topic")
        await broker.ensure(Topology(topics=[topic]))
        await broker.ensure(Topology(topics=[topic]))
        return topic

    async def publish(self, broker: Broker, topic: str, count: int, *, keys: int = 1) -> list[Frame]:
        frames = [
            Frame(topic=topic, id=new_id(), key=f"key-{n % keys}", body=b"%d" % n, headers={"n": str(n)})
            for n in range(count)
        ]
        assert all(verdict.accepted for verdict in await broker.publish(frames))
        return frames

    async def collect(self, stream: Stream, count: int, *, ack: bool = True) -> list[Delivery]:
        """Exactly `count` deliveries, or TimeoutError."""
        got: list[Delivery] = []
        async with asyncio.timeout(self.deadline):
            while len(got) < count:
                batch = await stream.receive(count - len(got), self.deadline)
                got += batch
                if ack:
                    await stream.ack(batch)
        return got

    async def nothing_more(self, stream: Stream) -> None:
        assert list(await stream.receive(10, self.quiet)) == []


def ids(deliveries: Iterable[Delivery]) -> set[str]:
    return {delivery.frame.id for delivery in deliveries}


def ids_of(frames: Iterable[Frame]) -> set[str]:
    return {frame.id for frame in frames}


def by_key(frames: Iterable[Frame]) -> dict[str | None, list[str]]:
    """The ids of each key, in order."""
    keys: dict[str | None, list[str]] = defaultdict(list)
    for frame in frames:
        keys[frame.key].append(frame.id)
    return keys
