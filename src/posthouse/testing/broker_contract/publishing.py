"""A frame is stored or refused, and the verdict says which."""

from __future__ import annotations

import asyncio
import contextlib

from posthouse.broker import Frame, Topology
from posthouse.clock import new_id
from posthouse.errors import BrokerError
from posthouse.testing.broker_contract.fixtures import BrokerFixtures
from posthouse.testing.broker_contract.frames import by_key, first_by_key, ids, ids_of


class PublishingContract(BrokerFixtures):
    """What `Broker.publish` promises."""

    async def test_publish_is_durable_after_ack(self) -> None:
        async with self.brokers() as make:
            publisher = await make()
            topic = await self.topic(publisher)
            group = await self.group(publisher, topic)
            sent = await self.publish(publisher, topic, 3)
            await publisher.aclose()
            reader = await (await make()).subscribe(group, [topic])
            assert ids(await self.collect(reader, 3)) == ids_of(sent)

    async def test_publish_of_nothing_is_nothing(self) -> None:
        async with self.brokers() as make:
            assert list(await (await make()).publish([])) == []

    async def test_publish_retry_is_idempotent_within_window(self) -> None:
        """Without native dedup both copies must come: a broker that drops some of them promises nothing useful."""
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            frame = Frame(topic=topic, id=new_id(), key="k", body=b"once")
            await broker.publish([frame])
            await broker.publish([frame])
            stream = await broker.subscribe(group, [topic])
            await self.collect(stream, 1 if broker.sheet.native_dedup_s > 0 else 2)
            await self.nothing_more(stream)

    async def test_publish_retry_after_window_is_duplicate(self) -> None:
        """The broker forgets; the inbox does not. Where nothing is ever dropped the test above has shown it already."""
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            frame = Frame(topic=topic, id=new_id(), key="k", body=b"twice")
            await broker.publish([frame])
            if broker.sheet.native_dedup_s > 0:
                await self.outlast_dedup(broker)
            await broker.publish([frame])
            stream = await broker.subscribe(group, [topic])
            assert [delivery.frame for delivery in await self.collect(stream, 2)] == [frame, frame]

    async def test_stale_publisher_is_fenced_or_deduped(self) -> None:
        """A publisher that was paused says again what its heir has said: dropped by the broker where it can, else stored
        under the same ids, in the order of each publisher, so that the inbox can drop it."""
        async with self.brokers() as make:
            heir, stale = await make(), await make()
            topic = await self.topic(heir)
            group = await self.group(heir, topic)
            sent = await self.publish(heir, topic, 10, keys=2)
            await stale.publish(sent[:6])
            stream = await heir.subscribe(group, [topic])
            once = heir.sheet.native_dedup_s > 0 or heir.sheet.fence
            got = await self.collect(stream, 10 if once else 16)
            await self.nothing_more(stream)
            assert ids(got) == ids_of(sent)
            if heir.sheet.ordered_publish:
                assert first_by_key(got) == by_key(sent)

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
            group = await self.group(broker, topic)
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
            stream = await broker.subscribe(group, [topic])
            assert [delivery.frame.body for delivery in await self.collect(stream, 1)] == [b"neighbour"]
            await self.nothing_more(stream)

    async def test_a_frame_of_exactly_the_largest_size_passes(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            body = bytes(broker.sheet.max_bytes)
            assert (await broker.publish([Frame(topic=topic, id=new_id(), body=body)]))[0].accepted
            stream = await broker.subscribe(group, [topic])
            assert (await self.collect(stream, 1))[0].frame.body == body

    async def test_publish_order_per_key_serial(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            sent = [frame for _ in range(10) for frame in await self.publish(broker, topic, 20, keys=5)]
            stream = await broker.subscribe(group, [topic])
            got = await self.collect(stream, len(sent))
            assert ids(got) == ids_of(sent)
            if broker.sheet.ordered_publish:
                assert by_key(delivery.frame for delivery in got) == by_key(sent)

    async def test_publish_order_after_cancelled_calls(self) -> None:
        """A call that was cancelled may have stored anything; said again, first occurrences are in order."""
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            sent: list[Frame] = []
            for turn in range(12):
                frames = [Frame(topic=topic, id=new_id(), key=f"key-{n % 3}", body=b"x") for n in range(9)]
                call = asyncio.create_task(broker.publish(frames))
                for _ in range(turn):
                    await asyncio.sleep(0)
                call.cancel()
                with contextlib.suppress(asyncio.CancelledError, BrokerError):
                    await call
                await self.insist(broker, frames)
                sent += frames
            stream = await broker.subscribe(group, [topic])
            got = await self.gather_ids(stream, ids_of(sent))
            if broker.sheet.ordered_publish:
                assert first_by_key(got) == by_key(sent)

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
            group = await self.group(broker, *topics)
            one = new_id()
            verdicts = await broker.publish([Frame(topic=topic, id=one, body=b"x") for topic in topics])
            assert all(verdict.accepted for verdict in verdicts)
            stream = await broker.subscribe(group, topics)
            assert {delivery.frame.topic for delivery in await self.collect(stream, 2)} == set(topics)

    async def test_headers_binary_utf8_and_limits(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            limit = broker.sheet.header_limit
            headers = {f"h{n}": f"wört {n} \N{SNOWMAN}" for n in range(min(20, limit or 20))}
            body = bytes(range(256)) if broker.sheet.binary_body else "ü".encode()
            frame = Frame(topic=topic, id=new_id(), key="tenant:ключ", body=body, headers=headers)
            await broker.publish([frame])
            stream = await broker.subscribe(group, [topic])
            assert (await self.collect(stream, 1))[0].frame == frame

    async def test_more_headers_than_the_limit_are_refused_for_good(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            limit = broker.sheet.header_limit
            headers = {f"h{n}": "v" for n in range(100 if limit is None else limit + 1)}
            (verdict,) = await broker.publish([Frame(topic=topic, id=new_id(), body=b"x", headers=headers)])
            assert (verdict.accepted, verdict.final) == ((True, False) if limit is None else (False, True))

    async def test_a_body_that_is_no_text_passes_or_is_refused_for_good(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            (verdict,) = await broker.publish([Frame(topic=topic, id=new_id(), body=b"\xff\xfe\x00")])
            assert (verdict.accepted, verdict.final) == ((True, False) if broker.sheet.binary_body else (False, True))

    async def test_tenant_isolation_by_acl(self) -> None:
        """Whoever may not write to a topic gets a refusal or an error, and nothing is stored."""
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            restricted = await make.restricted(topic)
            with contextlib.suppress(BrokerError):
                (verdict,) = await restricted.publish([Frame(topic=topic, id=new_id(), body=b"not mine to say")])
                assert not verdict.accepted
            assert (await broker.progress(self.name("group"), [topic]))[topic].stored == 0

    async def test_empty_body(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            frame = Frame(topic=topic, id=new_id(), body=b"")
            await broker.publish([frame])
            stream = await broker.subscribe(group, [topic])
            assert (await self.collect(stream, 1))[0].frame == frame
