"""The link fails or the server is killed in the middle of a call: it ends, leaves nothing open, and work goes on by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Literal

import pytest

from posthouse.broker import Broker, Delivery, Stream
from posthouse.errors import BrokerUnavailable
from posthouse.testing.broker_contract.fixtures import Link
from posthouse.testing.broker_contract.frames import by_key, first_by_key, ids, ids_of
from posthouse.testing.broker_contract.liveness import KEYS, LONG, LivenessContract, numbered


class LinkContract(LivenessContract):
    """What `LivenessContract` asks, of brokers that have a link to cut and a server to kill."""

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
            later = [numbered(frame, n) for n, frame in enumerate(sent[:40])]
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
            await asyncio.sleep(self.standing_still())
            await link.heal()
            with contextlib.suppress(BrokerUnavailable):
                await self.ends(stream.ack(stale))
            await heir.aclose()
            sent += await self.publish(broker, topic, 40, keys=KEYS)
            got += await self.gather_ids(stream, ids_of(sent) - ids(got))
            assert ids(got) == ids_of(sent)
            await self.acknowledged(broker, group, topic, stream)

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


def _moments(fault: Literal["cut", "stall"]) -> Sequence[int]:
    """After how many words the link fails; one that stalls costs the time-out of the client."""
    if LONG:
        return range(40)
    return (0, 1, *range(3, 40, 3)) if fault == "cut" else (0, 1, 4, 8, 16)
