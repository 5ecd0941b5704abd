"""A group goes back in its log, or the broker says that it cannot."""

from __future__ import annotations

import pytest

from posthouse.errors import SeekUnsupported
from posthouse.testing.broker_contract.fixtures import BrokerFixtures
from posthouse.testing.broker_contract.frames import ids, ids_of


class SeekingContract(BrokerFixtures):
    """What `Broker.seek` promises."""

    async def test_seek_from_offset(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            sent = await self.publish(broker, topic, 10)
            stream = await broker.subscribe(group, [topic])
            got = await self.collect(stream, 10)
            if not broker.sheet.seek:
                with pytest.raises(SeekUnsupported, match="archive"):
                    await broker.seek(group, topic, position=got[4].position)
                return
            await (await make()).seek(group, topic, position=got[4].position)
            again = await self.collect(stream, 6)
            assert [delivery.frame for delivery in again] == sent[4:]
            await self.nothing_more(stream)

    async def test_going_back_with_one_group_leaves_the_others_where_they_are(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group, other, late = [await self.group(broker, topic) for _ in range(3)]
            if not broker.sheet.seek:
                pytest.skip("this broker cannot go back")
            sent = await self.publish(broker, topic, 10)
            stream, others, lates = [await broker.subscribe(name, [topic]) for name in (group, other, late)]
            got = await self.collect(stream, 10)
            await self.collect(others, 10)
            await broker.seek(group, topic, position=got[0].position)
            assert [delivery.frame for delivery in await self.collect(stream, 10)] == sent
            await self.nothing_more(others)
            firsts = await self.collect(lates, 10)
            assert [delivery.frame for delivery in firsts] == sent
            assert not any(delivery.redelivered for delivery in firsts), "it was never handed out to them"
            assert (await broker.progress(other, [topic]))[topic].pending == 0

    async def test_seek_from_time(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            old = await self.publish(broker, topic, 5)
            stream = await broker.subscribe(group, [topic])
            stored_at = max(delivery.stored_at for delivery in await self.collect(stream, 5))
            if not broker.sheet.seek:
                with pytest.raises(SeekUnsupported, match="archive"):
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
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
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

    async def test_what_is_published_after_a_seek_is_no_repeat(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            if not broker.sheet.seek:
                pytest.skip("this broker cannot go back")
            await self.publish(broker, topic, 5)
            stream = await broker.subscribe(group, [topic])
            got = await self.collect(stream, 5)
            await broker.seek(group, topic, position=got[0].position)
            again = await self.collect(stream, 5)
            assert all(delivery.redelivered for delivery in again)
            new = await self.publish(broker, topic, 5)
            got = await self.collect(stream, 5)
            assert ids(got) == ids_of(new)
            assert not any(delivery.redelivered for delivery in got)

    async def test_what_is_published_before_a_member_has_heard_of_a_seek_is_no_repeat(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            if not broker.sheet.seek:
                pytest.skip("this broker cannot go back")
            old = await self.publish(broker, topic, 5)
            stream = await broker.subscribe(group, [topic])
            got = await self.collect(stream, 5)
            await broker.seek(group, topic, position=got[3].position)
            new = await self.publish(broker, topic, 5)
            got = await self.gather_ids(stream, ids_of([*old[3:], *new]))
            first = {delivery.frame.id: delivery.redelivered for delivery in reversed(got)}
            assert all(first[frame.id] for frame in old[3:])
            if not self.hears_of_a_seek_late:
                assert not any(first[frame.id] for frame in new)
