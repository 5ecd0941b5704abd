"""Does it add up?"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from posthouse import Event, Payload, Policy, Service, Tx
from posthouse.app import app_of
from posthouse.broker import Progress
from posthouse.testing import Harness
from posthouse.watch.status import DROPPED, GONE, TWICE, Line, Status, drained, overlap, status

shop = Service("shop")
ledger = Service("ledger")


@shop.event("order.placed.v1", key="key")
class OrderPlaced(Payload):
    key: str
    number: int = 0


@ledger.on(OrderPlaced, policy=Policy(max_attempts=1))
async def book(event: Event[OrderPlaced], tx: Tx) -> None:
    if event.data.number < 0:
        raise ValueError("no")


def line(**given: object) -> Line:
    figures: dict[str, object] = {
        "consumer": "c",
        "topic": "t",
        "committed": 10,
        "applied": 5,
        "in_flight": 2,
        "held": {"dead": 1},
        "skipped": 2,
        "foreign": False,
        "late": False,
    }
    return Line(**{**figures, **given})  # type: ignore[arg-type]


async def test_the_figures_can_be_written_as_json_and_read_again() -> None:
    async with Harness(shop, ledger) as harness:
        await harness.publish(OrderPlaced(key="k", number=-1))
        await harness.settled()
        figures = await status([shop, ledger])
        assert figures.lines
        assert figures.oldest
        assert msgspec.json.decode(msgspec.json.encode(figures), type=Status) == figures


def test_a_line_says_what_is_missing_and_what_is_counted_twice() -> None:
    assert line().difference == 0
    assert line(applied=4).difference == 1
    assert line(held={"dead": 1, "blocked": 3}).difference == -3
    assert line(applied=0, late=True).difference == 5
    assert line(applied=0, foreign=True).difference == 0


@pytest.mark.parametrize(
    ("given", "verdict", "reason"),
    [
        ({}, "adds up", ""),
        ({"late": True, "uncounted": "what others have in hand"}, "adds up", ""),
        ({"applied": 4}, "does not add up", ""),
        ({"applied": 6}, "does not add up", ""),
        ({"applied": 6, "late": True, "uncounted": "what others have in hand"}, "does not add up", ""),
        ({"applied": 3, "late": True}, "cannot tell", "2 of them not found: the group may have begun after them"),
        ({"applied": 4, "uncounted": "in hand"}, "cannot tell", "1 of them not found: in hand"),
        ({"applied": 4, "gone": True}, "does not add up", f"1 of them not found: {GONE}"),
        ({"applied": 4, "gone": True, "dropped": True}, "does not add up", f"1 of them not found: {DROPPED}"),
        (
            {"applied": 4, "late": True, "dropped": True},
            "cannot tell",
            f"1 of them not found: the group may have begun after them, or {DROPPED}",
        ),
        ({"gone": True}, "adds up", ""),
        ({"dropped": True}, "cannot tell", f"{DROPPED}, and something else was counted instead"),
        ({"strange": 3}, "adds up", ""),
        (
            {"applied": 3, "strange": 2},
            "cannot tell",
            "2 of them not found: they may be among the 2 held in which no event could be read",
        ),
        ({"applied": 2, "strange": 2}, "does not add up", ""),
        ({"foreign": True}, "cannot tell", "the service that says these events was not named"),
        ({"overlap": 2}, "cannot tell", f"2 may be counted twice, and hide as many that are missing: {TWICE}"),
        ({"applied": 7, "overlap": 2}, "cannot tell", f"2 counted twice: {TWICE}"),
        ({"applied": 8, "overlap": 2}, "does not add up", ""),
        ({"applied": 4, "overlap": 2}, "does not add up", ""),
    ],
)
def test_a_line_adds_up_or_does_not_or_nobody_can_tell(given: dict[str, object], verdict: str, reason: str) -> None:
    assert (line(**given).verdict, line(**given).reason) == (verdict, reason)


@pytest.mark.parametrize(
    ("stored", "unsure", "sent", "unsent", "found"),
    [
        (10, 0, 10, 0, 0),
        (10, 0, 10, 7, 0),  # nothing of what waits in the outbox was ever stored
        (10, 2, 10, 0, 2),
        (13, 0, 10, 0, 3),  # repeats, or junk
        (13, 0, 10, 5, 3),  # or sent, and not noted by the relay
        (90, 0, 10, 5, 9),  # never more than is in flight
        (10, None, 10, 5, 9),
        (10, 0, None, 5, 9),
        (8, 0, 10, 5, 9),  # the topic was made anew
    ],
)
def test_what_may_be_counted_twice_is_in_hand_or_more_than_was_sent(
    stored: int, unsure: int | None, sent: int | None, unsent: int, found: int
) -> None:
    progress = Progress(stored=stored, pending=4, truncated=False, unsure=unsure)
    assert overlap(progress, sent=sent, unsent=unsent) == found


def test_the_worst_line_speaks_for_all() -> None:
    def verdict(*lines: Line) -> str:
        return Status(lines=lines, unsent={}, stuck={}, timers={}, notes=()).verdict

    good, bad, dark = line(), line(applied=4), line(applied=4, late=True)
    assert verdict() == verdict(good) == "adds up"
    assert verdict(good, dark) == "cannot tell"
    assert verdict(good, dark, bad) == "does not add up"


def test_a_verdict_stands_where_nothing_of_the_line_moves() -> None:
    """Per line: what is refused for good, what stands still and what moves elsewhere explain nothing."""
    still, moving = line(in_flight=0), line(applied=4)
    refused, dark = line(applied=4, refused=2), line(in_flight=0, late=True)
    before = figures(still, line(applied=3), refused, dark)
    assert figures(still, moving, refused, dark).settled(before) == [still, refused, dark]
    assert figures(moving).settled(figures(moving)) == [moving]


def figures(*lines: Line) -> Status:
    return Status(lines=lines, unsent={}, stuck={}, timers={}, notes=())


def test_quiet_means_nothing_moves_and_everything_adds_up() -> None:
    def figures(*lines: Line, unsent: int = 0) -> Status:
        return Status(lines=lines, unsent={"s": unsent}, stuck={}, timers={}, notes=())

    still = line(in_flight=0, applied=7)
    assert figures(still).quiet
    assert not figures(still, unsent=1).quiet
    assert not figures(line()).quiet
    assert not figures(still, line(in_flight=0)).quiet


async def test_the_lines_follow_events_to_their_ends() -> None:
    async with Harness(shop, ledger) as harness:
        for number in (1, 2, -1, 4):
            await harness.publish(OrderPlaced(key="k", number=number))
        await harness.publish(OrderPlaced(key="other"))
        async with shop.transaction("t1") as tx:
            tx.publish(OrderPlaced(key="later"), after=60)
        figures = await harness.settled()
        [found] = figures.lines
        assert (found.consumer, found.topic, found.committed, found.applied) == ("ledger", "shop.order", 5, 3)
        assert dict(found.held) == {"dead": 1, "blocked": 1}
        assert (figures.timers, figures.stuck, figures.unsent) == (
            {"shop": 1, "ledger": 0},
            {"shop": 0, "ledger": 0},
            {"shop": 0, "ledger": 0},
        )
        [dead, _] = await harness.held(ledger)
        await ledger.held.skip(dead.id)
        [found] = (await harness.advance(1)).lines
        assert (found.applied, found.skipped, dict(found.held)) == (4, 1, {})


async def test_a_consumer_without_its_producer_has_the_brokers_count_and_is_not_checked() -> None:
    async with Harness(shop, ledger) as harness:
        await harness.publish(OrderPlaced(key="k"))
        await harness.settled()
        await harness.broker.publish([stored.frame for stored in harness.broker.log.topics["shop.order"]])
        await harness.settled()
        [alone] = (await status([ledger])).lines
        assert (alone.foreign, alone.committed, alone.applied, alone.difference) == (True, 2, 1, 0)
        [both] = (await status([shop, ledger])).lines
        assert (both.foreign, both.committed, both.difference) == (False, 1, 0)


async def test_drained_waits_for_calm_and_not_for_ever() -> None:
    async with Harness(shop, ledger) as harness:
        await harness.publish(OrderPlaced(key="k"))
        figures = await drained(shop, ledger, timeout=10)
        assert figures.quiet
        harness._stop.set()
        await asyncio.gather(*harness._tasks)
        await harness.publish(OrderPlaced(key="k"))
        with pytest.raises(TimeoutError):
            await drained(shop, ledger, timeout=0.05)


async def test_what_is_held_for_a_consumer_that_was_removed_still_counts() -> None:
    async with Harness(shop, ledger) as harness:
        await harness.publish(OrderPlaced(key="k", number=-1))
        await harness.settled()
        async with app_of(
            ledger
        ).store.begin() as tx:  # as it is after the release in which the consumer has another name
            await tx.execute("UPDATE posthouse_held SET consumer = 'gone'")
        figures = await status([shop, ledger])
        (left,) = [one for one in figures.lines if one.consumer == "gone"]
        assert (left.topic, left.held, left.verdict) == ("shop.order", {"dead": 1}, "cannot tell")
        assert "nobody reads it any more" in left.reason


async def test_repeats_on_the_broker_hide_nothing() -> None:
    async with Harness(shop, ledger) as harness:
        await harness.publish(OrderPlaced(key="k"))
        await harness.settled()
        harness._stop.set()
        await asyncio.gather(*harness._tasks)
        log = harness.broker.log.topics["shop.order"]
        await harness.broker.publish([stored.frame for stored in log])
        [found] = (await status([shop, ledger])).lines
        assert (found.in_flight, found.difference, found.overlap, found.verdict) == (1, -1, 1, "cannot tell")
        await harness.publish(OrderPlaced(key="lost"))
        [found] = (await status([shop, ledger])).lines
        assert (found.in_flight, found.difference, found.verdict) == (2, -1, "cannot tell")
        async with app_of(ledger).store.begin() as tx:
            await tx.execute("UPDATE posthouse_applied SET applied = 0")
        [found] = (await status([shop, ledger])).lines
        assert (found.difference, found.verdict) == (0, "cannot tell"), "one is lost, and one is counted twice"
