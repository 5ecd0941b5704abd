"""Faults 42, 51 and 52, and everything at once: several processes of each kind that come and go while events flow."""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter

import pytest

from tests.faults.kit import tally
from tests.faults.kit.fleet import Fleet, pause, seeded
from tests.faults.kit.jobs import Deal, Intent
from tests.faults.kit.shop import Conditions
from tests.faults.kit.world import World, Worlds
from tests.kit.waiting import until

BRISK = Conditions(speed=4.0, relay_lease=3.0, broker_lease=4.0, max_attempts=1000, in_flight=100)
"""Four times the machine's clock: leases run out within a second."""

STORM = float(os.environ.get("POSTHOUSE_STORM_SECONDS", "10"))
CHAOS = float(os.environ.get("POSTHOUSE_CHAOS_SECONDS", "20"))
STALLED = 12.0
"""Seconds without progress that no change of members may cause."""


pytestmark = pytest.mark.timeout(300)


def opened(worlds: Worlds, conditions: Conditions) -> World:
    world = worlds.new(conditions)
    world.drain()
    return world


def enough(world: World, of_files: int) -> int:
    """How much makes a run of this kind: a server in the way takes several times as long for each event."""
    return of_files // 4 if world.on_postgres else of_files


def applied(world: World) -> int:
    return world.figure("billing", "SELECT count(*) FROM ledger")


@pytest.mark.parametrize("crashes", [False, True])
def test_two_schedulers_fire_each_timer_once(worlds: Worlds, crashes: bool) -> None:
    world = opened(worlds, Conditions(speed=1.0))
    deals = [
        Deal(tenant=f"t{n % 3}", intents=[Intent(n=f"{n}", kind="expired", key=f"h{n}", after=0.3 + n / 1000)])
        for n in range(600)
    ]
    schedulers = [world.work(["orders"], ["timers"]) for _ in range(2)]
    producer = world.produce(deals)
    left = "SELECT count(*) FROM posthouse_timer"
    if crashes:
        until(lambda: world.figure("orders", left) > 50, "timers to be set")
        world.kill(schedulers.pop())
        schedulers.append(world.work(["orders"], ["timers"]))
    producer.result()
    until(lambda: world.figure("orders", left) == 0, "every timer to fire")
    assert [scheduler.terminate() for scheduler in schedulers] == [0, 0]
    assert world.figure("orders", "SELECT count(*) - count(DISTINCT event_id) FROM posthouse_outbox") == 0
    report = world.judge(world.drain())
    assert set(Counter(world.runs()).values()) == {1}
    tally.enter("42 two schedulers", report, at_least=1200)


def test_consumers_that_come_and_go_all_the_time_apply_everything_once_and_in_order(worlds: Worlds) -> None:
    dice, seed = seeded()
    world = opened(worlds, BRISK)
    producer = world.produce_on("p", seed, pause=0.003)
    steady = world.work(["orders", "billing"], ["relay", "timers"])
    members = [world.work(["billing"], ["consumers"]) for _ in range(2)]
    began = grown_at = time.monotonic()
    before = 0
    while time.monotonic() - began < STORM or before < enough(world, 4000):
        pause(dice.uniform(0.3, 0.8))
        leaving = members.pop(dice.randrange(len(members)))
        if dice.random() < 0.5:
            world.kill(leaving)
        else:
            assert leaving.terminate() == 0
        while len(members) < dice.choice((1, 2, 3)):
            members.append(world.work(["billing"], ["consumers"]))
        if (now := applied(world)) > before:
            before, grown_at = now, time.monotonic()
        assert time.monotonic() - grown_at < STALLED, f"nothing was applied for {STALLED} s, after {before}"
    assert [child.terminate() for child in (producer, steady, *members)] == [0] * (2 + len(members))
    world.wait_out()
    report = world.judge(world.drain())
    assert report.crashes >= 3
    tally.enter("51 rebalance storm", report, at_least=enough(world, 6000))


def test_a_rolling_restart_finishes_what_is_in_flight_and_leaves_no_orphan(worlds: Worlds) -> None:
    world = opened(worlds, BRISK)
    producer = world.produce_on("p", 52, pause=0.002)
    fleet = [world.work() for _ in range(3)]
    for _ in range(2):
        for place in range(len(fleet)):
            target = applied(world) + enough(world, 300)
            until(lambda: applied(world) >= target, "events to flow")  # noqa: B023 - called before the next round
            assert fleet[place].terminate() == 0
            fleet[place] = world.work()
    target = applied(world) + enough(world, 300)
    until(lambda: applied(world) >= target, "the last one to have started")
    assert producer.terminate() == 0
    codes = [child.terminate() for child in fleet]
    assert codes == [0, 0, 0], world.log()[-6000:]
    owners = "SELECT (SELECT count(*) FROM cursors WHERE owner IS NOT NULL) + (SELECT count(*) FROM members)"
    assert world.figure("log", owners) == 0, "a consumer left without giving back what it held"
    shards = "SELECT (SELECT count(*) FROM posthouse_shard WHERE owner IS NOT NULL) + (SELECT count(*) FROM posthouse_member)"
    assert [world.figure(name, shards) for name in ("orders", "billing")] == [0, 0], "a relay kept its shards"
    report = world.judge(world.drain())
    assert set(Counter(world.runs()).values()) == {1}, "what was in flight was not finished but run again"
    tally.enter("52 rolling restart", report, at_least=enough(world, 2400))


def test_everything_at_once_for_a_while_and_all_of_it_adds_up(worlds_on_disk: Worlds) -> None:
    dice, seed = seeded()
    world = opened(worlds_on_disk, BRISK)
    fleet = Fleet(world)
    for _ in range(2):
        fleet.add(["orders"], ["relay", "timers"])
    for _ in range(3):
        fleet.add(["billing"], ["relay", "consumers"])
    fleet.add(["orders"], ["consumers"])
    producers = [world.produce_on(f"p{n}", seed, pause=0.01) for n in range(2)]
    began = time.monotonic()
    for generation in itertools.count(2):
        pause(dice.uniform(0.1, 0.5))
        if dice.random() < 0.2:
            world.kill(producers.pop(0))
            producers.append(world.produce_on(f"p{generation}", seed, pause=0.01))
        else:
            fleet.strike(dice)
        if time.monotonic() - began > CHAOS and applied(world) > enough(world, 1500):
            break
    assert [producer.terminate() for producer in producers] == [0, 0]
    assert set(fleet.disband()) == {0}
    world.wait_out()
    report = world.judge(world.drain())
    assert report.crashes >= CHAOS / 2
    tally.enter("chaos", report, at_least=enough(world, 2000))
