"""Members of a group come, go and fall silent; nothing is lost and no key is shared."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict

from posthouse.broker import Delivery, Stream, Topology
from posthouse.errors import BrokerError, BrokerUnavailable
from posthouse.testing.broker_contract.fixtures import BrokerFixtures
from posthouse.testing.broker_contract.frames import by_key, ids, ids_of


class MemberContract(BrokerFixtures):
    """What `Broker.subscribe` promises to several members, and what `aclose` leaves to the others."""

    async def test_a_key_goes_to_one_member_at_a_time(self) -> None:
        """A second member joins while frames flow; every frame is acknowledged a moment after it was received."""
        async with self.brokers() as make:
            broker, other = await make(), await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
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
            try:
                async with asyncio.timeout(self.deadline):
                    while len([stream for stream in seen if seen[stream]]) < 2:
                        sent |= ids_of(await self.publish(broker, topic, 40, keys=20))
                        if len(tasks) == 1:
                            tasks.append(asyncio.create_task(work(await other.subscribe(group, [topic]))))
                        await asyncio.sleep(0.01)
                    while set[str]().union(*seen.values()) != sent:
                        progressed.clear()
                        await progressed.wait()
            except TimeoutError as error:
                said = " and ".join(f"{len(got):,}" for got in seen.values())
                raise TimeoutError(
                    f"of {len(sent):,} frames the members got {said} within {self.deadline:g} s: both must get some, so a "
                    "topic of which one member owns all needs more partitions"
                ) from error
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            if broker.sheet.ordered_redelivery:
                assert not shared

    async def test_graceful_close_no_orphan(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
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
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            sent = await self.publish(broker, topic, 10, keys=4)
            doomed = await make.doomed()
            await self.collect(await doomed.subscribe(group, [topic]), 10, ack=False)
            heir = await broker.subscribe(group, [topic])
            got = await self.collect(heir, 10)
            assert ids(got) == ids_of(sent)
            assert all(delivery.redelivered for delivery in got)
            if broker.sheet.ordered_redelivery:
                assert by_key(delivery.frame for delivery in got) == by_key(sent)

    async def test_what_is_published_after_a_member_died_is_no_repeat(self) -> None:
        """Only what the dead one may have had in hand is in doubt: nothing that is stored when others have taken over, and
        nothing that is stored between a clean end and the next start."""
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            sent = await self.publish(broker, topic, 4, keys=4)
            doomed = await make.doomed()
            await self.collect(await doomed.subscribe(group, [topic]), 4, ack=False)
            heir = await broker.subscribe(group, [topic])
            again = await self.collect(heir, 4)
            assert ids(again) == ids_of(sent)
            assert all(delivery.redelivered for delivery in again)
            await doomed.aclose()
            for _ in range(3):
                before = await self.publish(broker, topic, 20, keys=20)
                new = await self.collect(heir, 20)
                await heir.aclose()
                between = await self.publish(broker, topic, 20, keys=20)
                heir = await broker.subscribe(group, [topic])
                new += await self.collect(heir, 20)
                assert ids(new) == ids_of(before) | ids_of(between)
                repeats = sum(delivery.redelivered for delivery in new)
                assert repeats == 0, f"{repeats} of {len(new)} new frames count as repeats"

    async def test_hang_is_reclaimed_and_ack_after_reclaim_is_harmless(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            await self.publish(broker, topic, 6)
            sleeper = await (await make.doomed()).subscribe(group, [topic])
            stale = await self.collect(sleeper, 6, ack=False)
            heir = await broker.subscribe(group, [topic])
            got = await self.collect(heir, 6, ack=False)
            with contextlib.suppress(BrokerUnavailable):  # it may hear at this moment that its connection is gone
                await sleeper.ack(stale)
            assert (await broker.progress(group, [topic]))[topic].pending == 6
            await heir.ack(got)
            assert (await broker.progress(group, [topic]))[topic].pending == 0
            await self.nothing_more(heir)

    async def test_retention_does_not_drop_unacked(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            await broker.ensure(Topology(groups={group: [topic]}))
            sent = await self.publish(broker, topic, 10, keys=4)
            stream = await broker.subscribe(group, [topic])
            got = await self.collect(stream, 10, ack=False)
            await stream.ack(got[:3])
            await self.expire(broker)
            await stream.aclose()
            if not broker.sheet.retains_unacked:
                assert (await broker.progress(group, [topic]))[topic].truncated, "what is gone must show"
                return
            rest = await self.collect(await broker.subscribe(group, [topic]), 7)
            assert ids(got[:3]) | ids(rest) == ids_of(sent)

    async def test_members_come_and_go_and_nothing_is_lost(self) -> None:
        """One member stays, others join and leave while frames flow; every repeat is marked as one."""
        async with self.brokers() as make:
            broker, other = await make(), await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            got: list[Delivery] = []
            progressed = asyncio.Event()

            async def work(stream: Stream) -> None:
                while True:
                    batch = await stream.receive(7, self.quiet)
                    got.extend(batch)
                    await stream.ack(batch)
                    progressed.set()

            sent: set[str] = set()
            stayer = asyncio.create_task(work(await broker.subscribe(group, [topic])))
            for _ in range(5):
                guest = await other.subscribe(group, [topic])
                working = asyncio.create_task(work(guest))
                sent |= ids_of(await self.publish(broker, topic, 30, keys=10))
                working.cancel()
                await asyncio.wait([working])
                await guest.aclose()
            async with asyncio.timeout(self.deadline):
                while ids(got) != sent:
                    progressed.clear()
                    await progressed.wait()
            stayer.cancel()
            await asyncio.wait([stayer])
            fresh = [delivery.frame.id for delivery in got if not delivery.redelivered]
            assert len(fresh) == len(set(fresh))

    async def test_restart_clean(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
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
            group = await self.group(broker, topic)
            stream = await broker.subscribe(group, [topic])
            waiting = asyncio.create_task(stream.receive(10, self.deadline * 2))
            await asyncio.sleep(0)
            async with asyncio.timeout(self.deadline):
                await asyncio.gather(stream.aclose(), broker.aclose(), stream.aclose(), broker.aclose())
                with contextlib.suppress(BrokerError):
                    assert list(await waiting) == []
                await stream.aclose()
                await broker.aclose()
