"""A group gets every frame at least once, in the order of its key."""

from __future__ import annotations

import asyncio
import contextlib
import time

from posthouse.broker import Broker, Delivery, Stream
from posthouse.testing.broker_contract.fixtures import BrokerFixtures
from posthouse.testing.broker_contract.frames import by_key, ids, ids_of


class ConsumingContract(BrokerFixtures):
    """What `Broker.subscribe`, `Broker.progress` and `Stream` promise."""

    async def test_consume_at_least_once(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            stream = await broker.subscribe(group, [topic])
            waiting = asyncio.create_task(self.collect(stream, 50))
            sent = [frame for _ in range(5) for frame in await self.publish(broker, topic, 10, keys=3)]
            got = await waiting
            assert ids(got) == ids_of(sent)
            assert not any(delivery.redelivered for delivery in got)
            await self.nothing_more(stream)

    async def test_a_record_of_which_no_frame_can_be_made_comes_with_a_defect_and_its_neighbours_come_too(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            sent = await self.publish(broker, topic, 20, keys=8)
            await self.spoil_frame(topic)
            sent += await self.publish(broker, topic, 20, keys=8)
            stream = await broker.subscribe(group, [topic])
            defects, sound = await self._defects_and_ids(stream, len(sent) - 1)
            assert len(defects) == 1
            assert defects[0].frame.id, "it needs a name to be kept under"
            assert sound <= ids_of(sent)
            await self.nothing_more(stream)
            async with asyncio.timeout(self.deadline):
                while (await broker.progress(group, [topic]))[topic].pending:  # noqa: ASYNC110 - the server sets no event of ours
                    await asyncio.sleep(0.05)

    async def _defects_and_ids(self, stream: Stream, least: int) -> tuple[list[Delivery], set[str]]:
        """Until a defect has come and at least so many frames beside it. It is handed back once."""
        defects: list[Delivery] = []
        sound: set[str] = set()
        async with asyncio.timeout(self.deadline):
            while not defects or len(sound) < least:
                batch = await stream.receive(40, self.deadline)
                fresh = [delivery for delivery in batch if delivery.defect and not delivery.redelivered]
                await stream.nack(fresh)
                done = [delivery for delivery in batch if delivery not in fresh]
                await stream.ack(done)
                defects += [delivery for delivery in done if delivery.defect]
                sound |= ids(delivery for delivery in done if not delivery.defect)
        return defects, sound

    async def test_a_frame_of_another_instance_wakes_the_reader(self) -> None:
        async with self.brokers() as make:
            broker, other = await make(), await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            stream = await broker.subscribe(group, [topic])
            waiting = asyncio.create_task(stream.receive(10, self.deadline))
            await self.publish(other, topic, 1)
            async with asyncio.timeout(self.deadline / 2):
                assert len(await waiting) == 1

    async def test_receive_gives_at_most_the_limit_and_nothing_when_there_is_nothing(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            stream = await broker.subscribe(group, [topic])
            await self.nothing_more(stream)
            await self.publish(broker, topic, 10, keys=5)
            assert 0 < len(await stream.receive(3, self.deadline)) <= 3

    async def test_cancelling_receive_loses_nothing(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            stream = await broker.subscribe(group, [topic])
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

    async def test_subscriptions_made_at_once_are_each_their_own(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topics = [await self.topic(broker) for _ in range(3)]
            groups = [await self.group(broker, topic) for topic in topics]
            joining = [broker.subscribe(group, [topic]) for group, topic in zip(groups, topics, strict=True)]
            streams = await asyncio.gather(*joining)
            for topic, stream in zip(topics, streams, strict=True):
                sent = await self.publish(broker, topic, 2)
                assert ids(await self.collect(stream, 2)) == ids_of(sent)

    async def test_new_group_reads_history(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group, sent = self.name("group"), await self.publish(broker, topic, 5, keys=2)
            stream = await broker.subscribe(group, [topic], start="earliest")
            if not broker.sheet.history:
                sent = await self.publish(broker, topic, 5, keys=2)
                assert (await broker.progress(group, [topic]))[topic].truncated, "what it cannot see must show"
            assert ids(await self.collect(stream, 5)) == ids_of(sent)
            await self.nothing_more(stream)

    async def test_a_group_that_starts_at_the_end_gets_only_what_is_new(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic, group = await self.topic(broker), self.name("group")
            await self.publish(broker, topic, 5, keys=5)
            stream = await broker.subscribe(group, [topic], start="latest")
            sent = await self.publish(broker, topic, 3, keys=5)
            assert ids(await self.collect(stream, 3)) == ids_of(sent)
            assert (await broker.progress(group, [topic]))[topic].truncated

    async def test_a_group_that_started_at_the_end_keeps_its_place_while_it_has_no_member(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic, group = await self.topic(broker), self.name("group")
            await self.publish(broker, topic, 5, keys=5)
            await (await broker.subscribe(group, [topic], start="latest")).aclose()
            sent = await self.publish(broker, topic, 3, keys=5)
            stream = await (await make()).subscribe(group, [topic], start="latest")
            assert ids(await self.collect(stream, 3)) == ids_of(sent)
            await self.nothing_more(stream)

    async def test_a_group_that_was_only_declared_starts_where_its_first_member_says(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            before = await self.publish(broker, topic, 5, keys=5)
            stream = await broker.subscribe(group, [topic], start="latest")
            sent = await self.publish(broker, topic, 3, keys=5)
            if not broker.sheet.history:  # it began when it was declared, and there is no other place
                sent = before + sent
            assert ids(await self.collect(stream, len(sent))) == ids_of(sent)
            await self.nothing_more(stream)

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
            group = await self.group(broker, topic)
            sent = await self.publish(broker, topic, 1)
            stream = await broker.subscribe(group, [topic])
            for turn in range(3):
                (delivery,) = await self.collect(stream, 1, ack=False)
                assert delivery.frame == sent[0]
                assert delivery.redelivered == (turn > 0)
                await stream.nack([delivery])
            await self.collect(stream, 1)
            await self.nothing_more(stream)

    async def test_a_frame_is_never_given_up(self) -> None:
        """Counting is ours: no limit of the broker may take a frame away, however often it came back."""
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            sent = await self.publish(broker, topic, 2)
            stream = await broker.subscribe(group, [topic], window=1)
            for _ in range(25):
                got = await self.collect(stream, 1, ack=False)
                assert [delivery.frame.id for delivery in got] == [sent[0].id]
                await stream.nack(got)
            assert [delivery.frame.id for delivery in await self.collect(stream, 2)] == [frame.id for frame in sent]

    async def test_nack_keeps_key_order(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            sent = await self.publish(broker, topic, 12, keys=2)
            stream = await broker.subscribe(group, [topic])
            first = await self.collect(stream, 8, ack=False)
            await stream.nack(list(reversed(first)))
            again = await self.collect(stream, 12)
            assert ids(again) == ids_of(sent)
            if broker.sheet.ordered_redelivery:
                assert by_key(delivery.frame for delivery in again) == by_key(sent)

    async def test_acks_in_any_order_are_never_handed_out_again(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
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
            group = await self.group(broker, topic)
            await self.publish(broker, topic, 100)
            stream = await broker.subscribe(group, [topic], window=10)
            first = await self.collect(stream, 10, ack=False)
            await self.nothing_more(stream)
            await stream.ack(first)
            rest = await self.collect(stream, 90)
            assert len(ids(first) | ids(rest)) == 100

    async def test_progress_counts_what_is_stored_and_what_is_left(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            await self.publish(broker, topic, 5)
            stream = await broker.subscribe(group, [topic])
            got = await self.collect(stream, 5, ack=False)
            await stream.ack(got[:2])
            progress = (await broker.progress(group, [topic]))[topic]
            assert progress.pending == 3
            assert (progress.stored, progress.truncated) == ((5, False) if broker.sheet.history else (3, True))

    async def test_progress_tells_for_how_long_the_oldest_has_waited(self) -> None:
        async with self.brokers() as make:
            broker, other = await make(), await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            if not self.tells_ages:
                await self.publish(broker, topic, 1)
                assert (await broker.progress(group, [topic]))[topic].oldest is None, "a guess would be taken for true"
                return
            assert (await broker.progress(group, [topic]))[topic].oldest == 0.0
            begun = time.monotonic()
            first = await self.publish(broker, topic, 1)
            stored = time.monotonic()
            await self._aged(broker, group, topic, 0.3, begun)
            later = time.monotonic()
            await self.publish(broker, topic, 4, keys=3)
            await self._aged(other, group, topic, later - stored, begun)
            stream = await broker.subscribe(group, [topic])
            got = await self.collect(stream, 5, ack=False)
            await stream.ack([delivery for delivery in got if delivery.frame.id != first[0].id][:2])
            await self._aged(other, group, topic, later - stored, begun)
            await stream.ack([delivery for delivery in got if delivery.frame.id == first[0].id])
            await self._aged(other, group, topic, 0.0, later)
            await stream.ack(got)
            assert (await other.progress(group, [topic]))[topic].oldest == 0.0

    async def _aged(self, broker: Broker, group: str, topic: str, seconds: float, since: float) -> None:
        """Its oldest frame becomes so old, and is not older than it can be; brokers count milliseconds, and some find it out a
        moment later."""
        async with asyncio.timeout(self.deadline):
            while (oldest := (await broker.progress(group, [topic]))[topic].oldest) is None or oldest < seconds:
                pass
        assert oldest <= time.monotonic() - since + 0.002

    async def test_stress_10k(self) -> None:
        async with self.brokers() as make:
            broker, other = await make(), await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            stream = await other.subscribe(group, [topic])
            collecting = asyncio.create_task(self.collect(stream, self.stress))
            sent = [
                frame for _ in range(self.stress // 500) for frame in await self.publish(broker, topic, 500, keys=100)
            ]
            got = await collecting
            assert ids(got) == ids_of(sent)
            if broker.sheet.ordered_publish:
                assert by_key(delivery.frame for delivery in got) == by_key(sent)
