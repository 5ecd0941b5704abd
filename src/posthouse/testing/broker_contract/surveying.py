"""A broker shows what it has, and removes what it is told to."""

from __future__ import annotations

import pytest

from posthouse.broker import Broker, Frame, Topology
from posthouse.clock import new_id
from posthouse.errors import BrokerError, BrokerUnavailable
from posthouse.survey import Resource, Surveyed
from posthouse.testing.broker_contract.fixtures import BrokerFixtures
from posthouse.testing.broker_contract.frames import ids, ids_of


class SurveyingContract(BrokerFixtures):
    """What the port `Surveyed` promises, where a broker has it. `lists`: whether it sees what nobody asked for; some can only
    answer for what they are asked. `sees_members`: whether it sees a member that has nothing in hand."""

    lists = True
    sees_members = True

    async def test_a_survey_tells_what_is_missing_and_makes_nothing(self) -> None:
        async with self.brokers() as make:
            broker, topology = await make(), self._topology()
            for _ in range(2):
                found = await self._survey(broker, topology)
                assert {(resource.topic, resource.group) for resource in found} == self._places(topology)
                assert not any(resource.exists or resource.drift for resource in found)
                assert all(resource.called for resource in found)

    async def test_what_was_ensured_is_found_as_it_was_made(self) -> None:
        async with self.brokers() as make:
            broker, topology = await make(), self._topology()
            await broker.ensure(topology)
            found = await self._survey(await make(), topology)
            assert {(resource.topic, resource.group) for resource in found} == self._places(topology)
            assert all(resource.exists and not resource.drift and not resource.at_work for resource in found)

    async def test_a_survey_also_finds_what_nobody_asked_for(self) -> None:
        async with self.brokers() as make:
            broker, topology = await make(), self._topology()
            await broker.ensure(topology)
            found = await self._surveyed(await make()).survey(Topology())
            assert (self._places(topology) <= {(resource.topic, resource.group) for resource in found}) == self.lists
            assert self.lists or not found

    async def test_a_survey_counts_frames_and_sees_members(self) -> None:
        async with self.brokers() as make:
            broker, topology = await make(), self._topology()
            await broker.ensure(topology)
            if any(resource.frames is None for resource in await self._survey(broker, topology)):
                pytest.skip("this broker tells neither what is unread nor who reads")
            ((group, (topic,)),) = topology.groups.items()
            sent = await self.publish(broker, topic, 5)
            stream = await broker.subscribe(group, [topic])
            assert ids(await self.collect(stream, 5)) == ids_of(sent)
            await self.publish(broker, topic, 3, keys=3)
            places = {(resource.topic, resource.group): resource for resource in await self._survey(broker, topology)}
            assert places[topic, group].at_work or not self.sees_members
            assert places[topic, group].frames == 3
            assert places[topic, None].frames in ((3, 8) if broker.sheet.history else (0,))
            await stream.aclose()
            places = {(resource.topic, resource.group): resource for resource in await self._survey(broker, topology)}
            assert not places[topic, group].at_work

    async def test_nothing_that_is_read_is_removed(self) -> None:
        async with self.brokers() as make:
            broker, topology = await make(), self._topology()
            await broker.ensure(topology)
            ((group, (topic,)),) = topology.groups.items()
            stream = await broker.subscribe(group, [topic])
            resources = {
                (resource.topic, resource.group): resource for resource in await self._survey(broker, topology)
            }
            assert resources[topic, group].at_work or resources[topic, group].frames is None or not self.sees_members
            remover = self._surveyed(await make())
            if resources[topic, group].at_work:
                with pytest.raises(BrokerError, match="at work"):
                    await remover.remove([resources[topic, group]])
            with pytest.raises(BrokerError, match="read by"):
                await remover.remove([resources[topic, None]])
            sent = await self.publish(broker, topic, 3)
            assert ids(await self.collect(stream, 3)) == ids_of(sent)

    async def test_what_was_removed_is_gone_for_all_and_can_be_made_again(self) -> None:
        async with self.brokers() as make:
            broker, other, topology = await make(), await make(), self._topology()
            await broker.ensure(topology)
            ((group, (topic,)),) = topology.groups.items()
            await self.publish(broker, topic, 3)
            resources = await self._survey(other, topology)
            remover = self._surveyed(other)
            await remover.remove(resources)
            await remover.remove(resources)
            assert not any(resource.exists for resource in await self._survey(broker, topology))
            assert not await self._is_taken(broker, topic)
            await broker.ensure(topology)
            sent = await self.publish(broker, topic, 4)
            stream = await other.subscribe(group, [topic])
            assert ids(await self.collect(stream, 4)) == ids_of(sent)
            await self.nothing_more(stream)

    def _topology(self) -> Topology:
        topic = self.name("topic")
        return Topology(topics=[topic, f"{topic}.dlq"], groups={self.name("group"): [topic]})

    def _places(self, topology: Topology) -> set[tuple[str, str | None]]:
        read = {(topic, group) for group, topics in topology.groups.items() for topic in topics}
        return {(topic, None) for topic in topology.topics} | read

    def _surveyed(self, broker: Broker) -> Surveyed:
        if not isinstance(broker, Surveyed):
            pytest.skip("this broker does not show what it has")
        return broker

    async def _survey(self, broker: Broker, topology: Topology) -> list[Resource]:
        """Of what this test has made; other tests use the same server."""
        topics = {topic for topic, _ in self._places(topology)}
        return [resource for resource in await self._surveyed(broker).survey(topology) if resource.topic in topics]

    async def _is_taken(self, broker: Broker, topic: str) -> bool:
        """Whether a frame is stored by an instance that knows the topic from before; it may ask for a second try."""
        frame = Frame(topic=topic, id=new_id(), key="key-0", body=b"late")
        try:
            (verdict,) = await broker.publish([frame])
        except BrokerUnavailable:
            (verdict,) = await broker.publish([frame])
        return verdict.accepted
