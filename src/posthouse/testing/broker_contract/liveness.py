"""What fails half-way leaves nothing behind, no call waits for ever, and whoever stood still goes on by itself.

Every test ends with *everything* being received by the processes that are there: a member that reads nothing, and keeps others
from reading, is the one fault that no error tells of.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Sequence
from typing import Literal, TypeVar

import pytest

from posthouse.broker import Broker, Delivery, Frame, Progress, Stream, Topology
from posthouse.errors import BrokerError, BrokerUnavailable
from posthouse.survey import Surveyed
from posthouse.testing.broker_contract.fixtures import BrokerFixtures, Link
from posthouse.testing.broker_contract.frames import by_key, first_by_key, ids, ids_of

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

    @pytest.mark.parametrize("fault", ["cut", "stall"])
    async def test_a_subscribe_whose_link_fails_half_way_leaves_nothing_open(
        self, fault: Literal["cut", "stall"]
    ) -> None:
        """A stalled link comes back: what was said on it then counts, also for a member that has given up."""
        async with self.brokers() as make:
            broker, (far, link) = await make(), await make.linked()
            topic, other = await self.topic(broker), await self.topic(broker)
            group = await self.group(broker, topic, other)
            await (await far.subscribe(group, [topic, other])).aclose()
            failed = 0
            for said in _moments(fault):
                failed += await self._fails(far, group, [topic, other], link, said, fault)
            assert failed >= 1, "a subscribe was never caught half-way"
            await self.nobody_is_left(broker, far, group, topic)

    async def test_the_server_killed_while_acknowledgements_are_written(self) -> None:
        """One by one, so that the kill falls between two of them. What is not acknowledged comes again to the same stream."""
        server = self.controlled()
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            sent = await self.publish(broker, topic, 400, keys=KEYS)
            stream = await broker.subscribe(group, [topic])
            got: list[Delivery] = []
            working = asyncio.create_task(self._work(stream, got))
            await self.until(lambda: len(got) >= 100)
            await server.kill()
            later = [_numbered(frame, n) for n, frame in enumerate(sent[:40])]
            await self.insist(broker, later)
            kept = broker.sheet.durable_ack or self.survives_kill
            wanted = ids_of([*sent, *later] if kept else later)
            await self.until(lambda: wanted <= ids(got))
            await self.acknowledged(broker, group, topic)
            working.cancel()
            await asyncio.wait([working])
            if kept:
                assert first_by_key(got) == by_key([*sent, *later])

    @pytest.mark.parametrize("fault", ["cut", "stall"])
    async def test_acknowledgements_end_though_nobody_reads_them(self, fault: Literal["cut", "stall"]) -> None:
        """Every second frame, so that they cannot go in one word, and more than a client's buffer holds, on a connection that
        dies under them: each call ends, and what was not acknowledged comes again."""
        async with self.brokers() as make:
            broker, (far, link) = await make(), await make.linked()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            stream = await far.subscribe(group, [topic], window=2000)
            sent = await self.publish(broker, topic, 40, keys=KEYS)
            await self.gather_ids(stream, ids_of(sent))
            for turn in range(3):
                sent += await self.publish(broker, topic, self.most_in_hand + 20, keys=KEYS)
                scattered = await self._in_hand(stream, self.most_in_hand)
                acking = [asyncio.create_task(self.ends(stream.ack(scattered[n::4]))) for n in (turn, turn + 1)]
                await (link.cut() if fault == "cut" else link.stall())
                outcomes = await asyncio.gather(*acking, return_exceptions=True)
                assert all(outcome is None or isinstance(outcome, BrokerUnavailable) for outcome in outcomes), outcomes
                await link.heal()
                await self._insist_on_acks(stream, scattered)
            later = await self.publish(broker, topic, 40, keys=KEYS)
            again = await self.gather_ids(stream, ids_of(later))
            assert ids(again) <= ids_of([*sent, *later])
            await self.acknowledged(broker, group, topic, stream)

    @pytest.mark.parametrize("fault", ["cut", "stall"])
    async def test_an_acknowledgement_that_was_lost_holds_nothing_up(self, fault: Literal["cut", "stall"]) -> None:
        """It is said once, of two topics together, and forgotten, as a consumer does. Later frames of the same keys come all the
        same, and in the end nothing is pending: whoever was told either says it again or lets the frames go."""
        async with self.brokers() as make:
            broker, (far, link) = await make(), await make.linked()
            topics = [await self.topic(broker), await self.topic(broker)]
            group = await self.group(broker, *topics)
            stream = await far.subscribe(group, topics)
            for topic in topics:
                await self.publish(broker, topic, 4, keys=4)
            got = await self._in_hand(stream, 8)
            await (link.cut() if fault == "cut" else link.stall())
            with contextlib.suppress(BrokerUnavailable):
                await self.ends(stream.ack(got))
            await link.heal()
            later = [frame for topic in topics for frame in await self.publish(broker, topic, 8, keys=4)]
            await self.gather_ids(stream, ids_of(later))
            for topic in topics:
                await self.acknowledged(broker, group, topic, stream)

    async def test_a_member_behind_a_link_that_was_silent_for_longer_than_its_lease_goes_on(self) -> None:
        """Another one has its work in the meantime, and leaves; then everything comes to the first again."""
        async with self.brokers() as make:
            broker, (far, link) = await make(), await make.linked()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            sent = await self.publish(broker, topic, 40, keys=KEYS)
            stream = await far.subscribe(group, [topic])
            stale = await self.collect(stream, min(40, self.most_in_hand), ack=False)
            await link.stall()
            heir = await broker.subscribe(group, [topic])
            sent += await self.publish(broker, topic, 40, keys=KEYS)
            got = await self.gather_ids(heir, ids_of(sent))
            await asyncio.sleep(self._standstill())
            await link.heal()
            with contextlib.suppress(BrokerUnavailable):
                await self.ends(stream.ack(stale))
            await heir.aclose()
            sent += await self.publish(broker, topic, 40, keys=KEYS)
            got += await self.gather_ids(stream, ids_of(sent) - ids(got))
            assert ids(got) == ids_of(sent)
            await self.acknowledged(broker, group, topic, stream)

    async def test_a_process_that_stood_still_for_longer_than_its_lease_goes_on(self) -> None:
        async with self.brokers() as make:
            broker = await make()
            topic = await self.topic(broker)
            group = await self.group(broker, topic)
            sent = await self.publish(broker, topic, 40, keys=KEYS)
            stream = await broker.subscribe(group, [topic])
            stale = await self.collect(stream, min(20, self.most_in_hand), ack=False)
            time.sleep(self._standstill())  # noqa: ASYNC251 - the whole process stands still, as after SIGSTOP
            with contextlib.suppress(BrokerUnavailable):
                await self.ends(stream.ack(stale[:10]))
            later = [_numbered(frame, n) for n, frame in enumerate(sent)]
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

    async def _fails(
        self, far: Broker, group: str, topics: Sequence[str], link: Link, said: int, fault: Literal["cut", "stall"]
    ) -> bool:
        """Whether the link's end came before that of the subscribe."""
        link.after(said, fault)
        try:
            stream = await self.ends(far.subscribe(group, topics))
        except BrokerUnavailable:
            await link.heal()
            return True
        await link.heal()
        await stream.aclose()
        return False

    async def _work(self, stream: Stream, got: list[Delivery]) -> None:
        """As a consumer does, with an acknowledgement for each; what fails is tried again with the same stream. What was
        received and is not acknowledged is still in our hands."""
        owed: list[Delivery] = []
        while True:
            try:
                owed = owed or [*await self.ends(stream.receive(20, 1.0))]
                got.extend(owed)
                while owed:
                    await self.ends(stream.ack(owed[:1]))
                    del owed[0]
            except BrokerUnavailable:
                await asyncio.sleep(0.01)

    async def _insist_on_acks(self, stream: Stream, deliveries: list[Delivery]) -> None:
        """A member that kept its frames through the fault still owes them; to one that lost them it is harmless."""
        async with asyncio.timeout(self.deadline):
            while True:
                with contextlib.suppress(BrokerUnavailable):
                    return await stream.ack(deliveries)
                await asyncio.sleep(0.01)

    async def _in_hand(self, stream: Stream, least: int) -> list[Delivery]:
        """At least so many, received and not acknowledged."""
        got: list[Delivery] = []
        async with asyncio.timeout(self.deadline):
            while len(ids(got)) < least:
                with contextlib.suppress(BrokerUnavailable):
                    got += await stream.receive(1000, 1.0)
        return got

    def _standstill(self) -> float:
        return 20.0 if LONG else self.standstill


def _moments(fault: Literal["cut", "stall"]) -> Sequence[int]:
    """After how many words the link fails; one that stalls costs the time-out of the client."""
    if LONG:
        return range(40)
    return (0, 1, *range(3, 40, 3)) if fault == "cut" else (0, 1, 4, 8, 16)


def _numbered(frame: Frame, number: int) -> Frame:
    return Frame(topic=frame.topic, id=f"{frame.id}-later-{number}", key=frame.key, body=frame.body)
