"""What fails half-way leaves nothing behind, no call waits for ever, and whoever stood still goes on by itself.

Every test ends with *everything* being received by the processes that are there: a member that reads nothing, and keeps others
from reading, is the one fault that no error tells of.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable
from typing import TypeVar

import pytest

from posthouse.broker import Broker, Frame, Progress, Stream, Topology
from posthouse.errors import BrokerError, BrokerUnavailable
from posthouse.survey import Surveyed
from posthouse.testing.broker_contract.fixtures import BrokerFixtures
from posthouse.testing.broker_contract.frames import ids, ids_of

T = TypeVar("T")
LONG = "POSTHOUSE_LONG" in os.environ
KEYS = 8


class LivenessContract(BrokerFixtures):
    """What `Broker.subscribe` leaves behind when it fails, and what `Stream` promises to a member that stays."""

    async def test_a_subscribe_of_which_one_topic_is_refused_leaves_nothing_open(self) -> None:
        async with self.brokers() as make:
            broker, other = await make(), await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            for _ in range(5):
                with contextlib.suppress(
                    BrokerError
                ):  # or the broker makes what is missing: then it is a member, and leaves
                    await (await other.subscribe(group, [topic, self.name("missing")])).aclose()
            await self.nobody_is_left(broker, other, group, topic)

    async def test_a_subscribe_that_is_cancelled_half_way_leaves_nothing_open(self) -> None:
        async with self.brokers() as make:
            broker, other = await make(), await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            await (await other.subscribe(group, [topic])).aclose()
            caught = 0
            for step in range(30):
                joining = asyncio.create_task(other.subscribe(group, [topic]))
                await asyncio.wait([joining], timeout=0.0002 * 1.3**step)  # 0.2 ms, and at last 0.4 s
                caught += joining.cancel()
                with contextlib.suppress(asyncio.CancelledError, BrokerUnavailable):
                    await (await self.ends(joining)).aclose()
            if not caught:
                pytest.skip("a subscribe of this broker is over at once")
            await self.nobody_is_left(broker, other, group, topic)

    async def test_a_process_that_stood_still_for_longer_than_its_lease_goes_on(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            sent = await self.publish(broker, topic, 40, keys=KEYS)
            stream = await broker.subscribe(group, [topic])
            stale = await self.collect(stream, min(20, self.most_in_hand), ack=False)
            time.sleep(self.standing_still())  # noqa: ASYNC251 - the whole process stands still, as after SIGSTOP
            with contextlib.suppress(BrokerUnavailable):
                await self.ends(stream.ack(stale[:10]))
            later = [numbered(frame, n) for n, frame in enumerate(sent)]
            await self.insist(broker, later)
            got = await self.gather_ids(stream, ids_of([*sent, *later]) - ids(stale))
            await self.ends(stream.ack(stale))
            await self.acknowledged(broker, group, topic, stream)
            assert ids([*stale, *got]) == ids_of([*sent, *later])

    async def test_a_frame_that_was_removed_behind_our_back_is_not_counted_as_pending(self) -> None:
        """Or it would be in flight for ever, and what is missing would never show."""
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            sent = await self.publish(broker, topic, 40, keys=KEYS)
            lost = await self.lose_frames(topic, group)
            assert 0 < lost < 40
            stream = await broker.subscribe(group, [topic])
            got = await self.collect(stream, 40 - lost)
            assert ids(got) < ids_of(sent)
            await self.acknowledged(broker, group, topic, stream)

    async def test_a_frame_that_was_removed_behind_our_back_is_not_pending_before_anybody_reads(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            await broker.ensure(Topology(groups={group: [topic]}))
            await self.publish(broker, topic, 40, keys=KEYS)
            lost = await self.lose_frames(topic, group)
            progress = (await broker.progress(group, [topic]))[topic]
            if progress.uncounted:
                pytest.skip(f"this broker cannot count: {progress.uncounted}")
            assert (progress.pending, progress.unsure or 0) == (40 - lost, 0)

    async def test_what_was_acknowledged_behind_an_older_frame_is_not_pending_once_its_member_left(self) -> None:
        """Or it would be applied and in flight until somebody reads again, and hide as many that are lost."""
        async with self.brokers() as make:
            broker, other = await make(), await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            await broker.ensure(Topology(groups={group: [topic]}))
            count = min(20, self.most_in_hand)
            sent = await self.publish(broker, topic, count, keys=KEYS)
            stream = await broker.subscribe(group, [topic])
            got = await self.collect(stream, count, ack=False)
            first = got[0].frame.key
            late = [delivery for delivery in got if delivery.frame.key == first]
            await stream.ack([delivery for delivery in got if delivery.frame.key != first])
            await stream.aclose()
            progress = await self._left(other, group, topic, len(late))
            assert progress.unsure in ((0,) if self.knows_what_was_given_back else (None, 0, len(late)))
            heir = await other.subscribe(group, [topic])
            again = await self.collect(heir, len(late), ack=False)
            assert ids(again) == ids(late)
            assert (await other.progress(group, [topic]))[topic].unsure in (None, len(late))
            await heir.nack(again)
            await heir.aclose()
            progress = await self._left(broker, group, topic, len(late))
            assert progress.unsure in (None, len(late)), "they may have been dealt with"
            last = await broker.subscribe(group, [topic])
            assert ids(await self.collect(last, len(late))) == ids(late)
            await self.acknowledged(broker, group, topic, last)
            assert ids(got) == ids_of(sent)

    # What the tests are written with

    async def nobody_is_left(self, broker: Broker, failed: Broker, group: str, topic: str) -> None:
        """A member of another instance gets everything, then one of that which failed; and then nobody is at work."""
        for instance in (broker, failed):
            sent = await self.publish(broker, topic, 40, keys=KEYS)
            stream = await self._joined(instance, group, topic)
            got = await self.gather_ids(stream, ids_of(sent))
            assert ids(got) == ids_of(sent)
            await self.acknowledged(broker, group, topic, stream)
            await stream.aclose()
        async with asyncio.timeout(self.deadline):
            while await self._at_work(broker, group, topic):  # noqa: ASYNC110 - the server sets no event of ours
                await asyncio.sleep(0.05)

    async def _left(self, broker: Broker, group: str, topic: str, pending: int) -> Progress:
        """Where the group stands once so much is pending: a server may take a moment to have it back."""
        async with asyncio.timeout(self.deadline):
            while (progress := (await broker.progress(group, [topic]))[topic]).pending != pending:
                if progress.uncounted:
                    pytest.skip(f"this broker cannot count: {progress.uncounted}")
                await asyncio.sleep(0.05)
        return progress

    async def _joined(self, broker: Broker, group: str, topic: str) -> Stream:
        """As a consumer joins: again and again; a client may pause before it connects again."""
        async with asyncio.timeout(self.deadline):
            while True:
                with contextlib.suppress(BrokerUnavailable):
                    return await self.ends(broker.subscribe(group, [topic]))
                await asyncio.sleep(0.05)

    async def _at_work(self, broker: Broker, group: str, topic: str) -> bool:
        if not isinstance(broker, Surveyed):
            return False
        things = await broker.survey(Topology(topics=[topic], groups={group: [topic]}))
        return any(thing.at_work for thing in things if thing.topic == topic)

    async def acknowledged(self, broker: Broker, group: str, topic: str, stream: Stream | None = None) -> None:
        """Wait until nothing is pending; what comes again meanwhile is acknowledged again."""
        async with asyncio.timeout(self.deadline):
            while True:
                with contextlib.suppress(BrokerUnavailable):
                    if (await broker.progress(group, [topic]))[topic].pending == 0:
                        return
                    if stream is not None:
                        await stream.ack(await stream.receive(100, 0.05))
                await asyncio.sleep(0.05)

    async def ends(self, call: Awaitable[T]) -> T:
        """It answers or raises; it does not wait for ever."""
        task = asyncio.ensure_future(call)
        done, _ = await asyncio.wait([task], timeout=self.deadline)
        assert done, f"a call did not end within {self.deadline:g} s"
        return task.result()

    def standing_still(self) -> float:
        return 20.0 if LONG else self.standstill


def numbered(frame: Frame, number: int) -> Frame:
    return Frame(topic=frame.topic, id=f"{frame.id}-later-{number}", key=frame.key, body=frame.body)
