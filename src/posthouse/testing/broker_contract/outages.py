"""The server goes and comes back, or the way to it is cut; what was accepted is there, and work goes on by itself."""

from __future__ import annotations

import asyncio
import contextlib

from posthouse.broker import Broker, Frame
from posthouse.clock import new_id
from posthouse.errors import BrokerUnavailable
from posthouse.testing.broker_contract.fixtures import BrokerFixtures
from posthouse.testing.broker_contract.frames import by_key, first_by_key, ids, ids_of


class OutageContract(BrokerFixtures):
    """What every method of `Broker` and `Stream` promises when it may raise BrokerUnavailable."""

    async def test_restart_clean_of_the_server(self) -> None:
        server = self.controlled()
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            sent = await self.publish(broker, topic, 40, keys=4)
            stream = await broker.subscribe(group, [topic])
            got = await self.collect(stream, 10)
            await server.restart()
            later = _frames(topic, 20)
            await self.insist(broker, later)
            got += await self.gather_ids(stream, ids_of([*sent, *later]) - ids(got))
            assert first_by_key(got) == by_key([*sent, *later])

    async def test_restart_kill9(self) -> None:
        """Without a durable acknowledgement what came before may be gone; what comes afterwards flows all the same."""
        server = self.controlled()
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            sent = await self.publish(broker, topic, 300, keys=4)
            stream = await broker.subscribe(group, [topic])
            got = await self.collect(stream, 50)
            await server.kill()
            later = _frames(topic, 20)
            await self.insist(broker, later)
            kept = broker.sheet.durable_ack or self.survives_kill
            wanted = [*sent, *later] if kept else later
            got += await self.gather_ids(stream, ids_of(wanted) - ids(got))
            if kept:
                assert first_by_key(got) == by_key(wanted)

    async def test_publish_is_durable_when_the_server_is_killed_under_load(self) -> None:
        server = self.controlled()
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            accepted: list[Frame] = []
            progressed = asyncio.Event()

            async def load() -> None:
                while True:
                    frames = _frames(topic, 50)
                    await self.insist(broker, frames)
                    accepted.extend(frames)
                    progressed.set()

            loading = asyncio.create_task(load())
            async with asyncio.timeout(self.deadline):
                for _ in range(2):
                    least = len(accepted) + 200
                    while len(accepted) < least:
                        progressed.clear()
                        await progressed.wait()
                    await server.kill()
            loading.cancel()
            await asyncio.wait([loading])
            if not (broker.sheet.durable_ack or self.survives_kill):
                return
            stream = await (await make()).subscribe(group, [topic])
            got = await self.gather_ids(stream, ids_of(accepted))
            stored = first_by_key(delivery for delivery in got if delivery.frame.id in ids_of(accepted))
            assert stored == by_key(accepted)

    async def test_reconnect_after_partition(self) -> None:
        async with self.brokers() as make:
            broker, (far, link) = await make(), await make.linked()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            sent = await self.publish(broker, topic, 20, keys=4)
            stream = await far.subscribe(group, [topic])
            got = await self.collect(stream, 5)
            await link.cut()
            sent += await self.publish(broker, topic, 20, keys=4)
            await self.unavailable(far, topic)
            await link.heal()
            later = _frames(topic, 10)
            await self.insist(far, later)
            got += await self.gather_ids(stream, ids_of([*sent, *later]) - ids(got))
            assert ids(got) == ids_of([*sent, *later])

    async def test_a_link_that_falls_silent_is_noticed(self) -> None:
        """No byte passes and no connection is closed: calls end all the same, and work goes on when the link is back."""
        async with self.brokers() as make:
            broker, (far, link) = await make(), await make.linked()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            stream = await far.subscribe(group, [topic])
            got = await self.gather_ids(stream, ids_of(await self.publish(broker, topic, 4, keys=4)))
            await link.stall()
            await self.unavailable(far, topic)
            await link.heal()
            later = _frames(topic, 10)
            await self.insist(far, later)
            got = await self.gather_ids(stream, ids_of(later))
            assert ids(got) >= ids_of(later)

    async def test_publish_order_after_injected_error(self) -> None:
        """The link is cut at any moment of a publish; said again in order, first occurrences are in order."""
        async with self.brokers() as make:
            broker, (far, link) = await make(), await make.linked()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            sent: list[Frame] = []
            for turn in range(6):
                frames = _frames(topic, 60)
                call = asyncio.create_task(self.insist(far, frames))
                await asyncio.sleep(0.002 * turn)
                await link.cut()
                await link.heal()
                await call
                sent += frames
            stream = await broker.subscribe(group, [topic])
            got = await self.gather_ids(stream, ids_of(sent))
            if broker.sheet.ordered_publish:
                assert first_by_key(got) == by_key(sent)

    async def test_slow_link_keeps_order_and_no_publish_hangs(self) -> None:
        """What is late is late and in order; what is later than a client waits for ends in time, and goes on afterwards."""
        async with self.brokers() as make:
            broker, (far, link) = await make(), await make.linked()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            await self.insist(far, _frames(topic, 1))
            await link.slow(0.1)
            sent = _frames(topic, 20)
            await self.insist(far, sent)
            await link.slow(2.0)
            async with asyncio.timeout(self.deadline):
                with contextlib.suppress(BrokerUnavailable):
                    await far.publish(_frames(topic, 1))
            await link.heal()
            later = _frames(topic, 20)
            await self.insist(far, later)
            stream = await broker.subscribe(group, [topic])
            got = await self.gather_ids(stream, ids_of([*sent, *later]))
            wanted = ids_of([*sent, *later])
            if broker.sheet.ordered_publish:
                assert first_by_key([one for one in got if one.frame.id in wanted]) == by_key([*sent, *later])

    async def unavailable(self, broker: Broker, topic: str) -> None:
        """A publish ends within the deadline, and not with acceptance."""
        async with asyncio.timeout(self.deadline):
            try:
                verdicts = await broker.publish(_frames(topic, 1))
            except BrokerUnavailable:
                return
        assert not verdicts[0].accepted


def _frames(topic: str, count: int) -> list[Frame]:
    return [Frame(topic=topic, id=new_id(), key=f"key-{n % 4}", body=b"%d" % n) for n in range(count)]
