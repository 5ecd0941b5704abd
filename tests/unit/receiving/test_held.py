"""Whatever an operator does, the figures add up."""

from __future__ import annotations

import pytest

from posthouse import Event, Payload, Policy, Service
from posthouse.testing import Harness

shop = Service("shop")
broken = True


@shop.event("thing.made.v1", key="name")
class ThingMade(Payload):
    name: str


@shop.event("note.taken.v1")
class NoteTaken(Payload):
    text: str


@shop.on(ThingMade, NoteTaken, policy=Policy(max_attempts=1))
async def handle(event: Event[ThingMade | NoteTaken]) -> None:
    if broken:
        raise ValueError("broken")


@pytest.fixture(autouse=True)
def _broken() -> None:
    global broken
    broken = True


async def in_sum(harness: Harness) -> tuple[int, int, int]:
    """Applied, held and skipped, after a look that everything adds up."""
    figures = await harness.advance(1)
    assert [line.difference for line in figures.lines] == [0, 0]
    lines = figures.lines
    return (
        sum(line.applied for line in lines),
        sum(sum(line.held.values()) for line in lines),
        sum(line.skipped for line in lines),
    )


@pytest.mark.parametrize("payload", [ThingMade(name="a"), NoteTaken(text="a")])
async def test_a_quarantined_event_is_held_and_nothing_else(payload: object) -> None:
    global broken
    async with Harness(shop) as harness:
        await harness.publish(payload)
        assert await in_sum(harness) == (0, 1, 0)
        [dead] = await harness.held(shop)
        await shop.held.quarantine(dead.id)
        assert await in_sum(harness) == (0, 1, 0)
        broken = False
        await shop.held.retry(dead.id, force=True)
        assert await in_sum(harness) == (1, 0, 0)


@pytest.mark.parametrize("payload", [ThingMade(name="a"), NoteTaken(text="a")])
async def test_a_skipped_event_counts_as_skipped_until_it_is_applied_after_all(payload: object) -> None:
    global broken
    async with Harness(shop) as harness:
        await harness.publish(payload)
        await harness.settled()
        [dead] = await harness.held(shop)
        await shop.held.skip(dead.id)
        assert await in_sum(harness) == (0, 0, 1)
        await harness.assert_replay_safe()
        broken = False
        await shop.held.retry(dead.id, force=True)
        assert await in_sum(harness) == (1, 0, 0)
