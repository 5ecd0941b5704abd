"""Consumers that join late begin each key with the first number they see: what comes too late for that is said."""

from __future__ import annotations

import pytest

from posthouse import App, Event, Payload, Service, Settings, Tx
from posthouse.broker import Frame, Start
from posthouse.testing import Harness

ports = Service("ports", namespace="sea")


@ports.event("ship.seen.v1", key="ship")
class ShipSeen(Payload):
    ship: str
    number: int


async def sightings(count: int) -> list[Frame]:
    """What the port says of one ship."""
    async with Harness(ports) as harness:
        for number in range(1, count + 1):
            await harness.publish(ShipSeen(ship="Argo", number=number))
        await harness.settled()
        (topic,) = [found for name, found in harness.broker.log.topics.items() if name.endswith("ship")]
        return [stored.frame for stored in topic]


def watcher(heard: list[int], start: Start) -> Service:
    tower = Service("tower", namespace="sea")
    App(tower, settings=Settings(start=start))

    @tower.on(ShipSeen)
    async def hear(event: Event[ShipSeen], tx: Tx) -> None:
        heard.append(event.data.number)

    return tower


async def test_a_number_that_comes_after_the_one_its_key_was_begun_with_is_said_and_not_applied(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[int] = []
    one, two, three = await sightings(3)
    async with Harness(watcher(heard, "latest")) as harness:
        for frame in (two, one, three):
            await harness.broker.publish([frame])
            await harness.settled()
    assert heard == [2, 3]
    (said,) = [record.getMessage() for record in caplog.records if "too late" in record.getMessage()]
    assert f"{one.id} is number 1 of key Argo" in said


async def test_nothing_is_said_of_a_duplicate_where_keys_begin_with_one(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[int] = []
    one, two = await sightings(2)
    async with Harness(watcher(heard, "earliest")) as harness:
        for frame in (two, one, one, two):
            await harness.broker.publish([frame])
            await harness.settled()
    assert heard == [1, 2]
    assert "too late" not in caplog.text
