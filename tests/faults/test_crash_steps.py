"""Fault 3: a process killed at an I/O step that it takes, one run for each: around every commit, and at one in THIN of the
others; with POSTHOUSE_LONG at every one. From no state does recovery fail."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import islice

import pytest

from tests.faults.kit import tally
from tests.faults.kit.failpoint import NEVER, Failpoint
from tests.faults.kit.jobs import Deal, Intent, made_up
from tests.faults.kit.nursery import Child
from tests.faults.kit.report import Report
from tests.faults.kit.shop import USUAL, Conditions, Handling
from tests.faults.kit.world import World, Worlds
from tests.kit.long import LONG

SIDE_BY_SIDE = 4
"""Worlds that are broken and mended at the same time."""
THIN, THIN_ON_SERVER = (1, 1) if LONG else (16, 48)
"""Of the steps that commit nothing, and so leave nothing behind when the process dies, one in so many is taken. On a
server, which rolls back whatever was not committed, a run costs more than a second."""

pytestmark = pytest.mark.timeout(300)

Run = Callable[[World, Failpoint], Child]

DEALS = (
    Deal(tenant="t1", intents=[Intent(n="1", kind="placed", key="p1"), Intent(n="2", kind="moved", key="m1")]),
    Deal(tenant="t1", intents=[Intent(n="3", kind="cancelled", key="p1"), Intent(n="4", kind="seen", key="x")]),
    Deal(tenant="t2", intents=[Intent(n="5", kind="placed", key="p1")], broken=True),
    Deal(tenant="t2", intents=[Intent(n="6", kind="placed", key="p1"), Intent(n="7", kind="cancelled", key="p1")]),
)
LATER = (
    Deal(tenant="t1", intents=[Intent(n="8", kind="expired", key="h8", after=1.0)]),
    Deal(
        tenant="t2",
        intents=[Intent(n="9", kind="expired", key="h9", after=1.0), Intent(n="10", kind="placed", key="p1")],
    ),
)
FAILING = (
    Deal(
        tenant="t1",
        intents=[Intent(n="11", kind="placed", key="p1", fails=2), Intent(n="12", kind="cancelled", key="p1")],
    ),
    Deal(tenant="t1", intents=[Intent(n="13", kind="placed", key="p2"), Intent(n="14", kind="seen", key="x", fails=1)]),
)


def prepared(worlds: Worlds, deals: Sequence[Deal], conditions: Conditions = USUAL) -> World:
    """A world in which these deals were done and nothing was sent."""
    world = worlds.new(conditions)
    world.drain()
    world.produce(deals).result()
    return world


def relayed(worlds: Worlds, deals: Sequence[Deal], conditions: Conditions = USUAL) -> World:
    """A world in which the facts wait in the log."""
    world = prepared(worlds, deals, conditions)
    world.work(["orders"], ["relay"], quiet=True).result()
    return world


def points_of(steps: Sequence[str], *, opening: bool, server: bool) -> list[Failpoint]:
    """Before every step, and after every commit of something that was written. After any other statement is the same as before the next one: nothing
    that outlives the process happens in between. With the stores on a server, whose commit may also be under way when
    the process dies, the steps inside a transaction of the log are left out: they are the same as with files."""
    points, thin, writes = [], THIN_ON_SERVER if server else THIN, set[str]()
    for number, step in enumerate(steps, 1):
        book, _, statement = step.partition(": ")
        in_log = book == "log"
        commits = statement.endswith("COMMIT") and (book in writes or (server and not in_log))
        lasting = commits or statement.endswith("journal_mode=WAL")
        if statement.startswith(("BEGIN", "COMMIT")):
            writes.discard(book)
        elif not statement.startswith("SELECT"):
            writes.add(book)
        if lasting or (number % thin == 0 and not (server and in_log)):
            points.append(Failpoint(step=number, opening=opening))
        if lasting:
            points.append(Failpoint(step=number, moment="after", opening=opening))
        if lasting and server and not in_log:
            points.append(Failpoint(step=number, moment="during", opening=opening))
    return points


def crash_at_every_step(
    worlds: Worlds, world: World, run: Run, after: Run | None = None, *, opening: bool = False
) -> Report:
    """Take the steps of an undisturbed run, then kill one run at each of them. `after` is run before everything is
    started again."""
    steps = run(worlds.copy(world), Failpoint(opening=opening)).result().steps
    points = points_of(steps, opening=opening, server=world.on_postgres)
    total = Report()
    for first in range(0, len(points), SIDE_BY_SIDE):
        broken = [(point, worlds.copy(world)) for point in points[first : first + SIDE_BY_SIDE]]
        for one, child in [(one, run(one, point)) for point, one in broken]:
            one.crashed(child)
            one.wait_out()
        if after is not None:
            for child in [after(one, NEVER) for _, one in broken]:
                child.result()
        mended = [(point, one, one.work(quiet=True)) for point, one in broken]
        for point, one, child in mended:
            report = one.judge(child.result())
            assert not report.violations, f"{point} ({steps[point.step - 1]}): {report.violations}\n{one.log()}"
            total += report
            one.remove()
    spare = 5 if world.on_postgres else 3  # how often a loop looks again is not the same in every run
    expected = min(0.8 * len(points), len(points) - spare)
    assert total.crashes >= expected, f"only {total.crashes} of {len(points)} runs were killed"
    return total


def test_a_service_killed_at_any_step_of_its_first_start_opens_the_next_time(worlds: Worlds) -> None:
    def first_start(world: World, failpoint: Failpoint) -> Child:
        return world.work(["billing"], ["relay"], failpoint, quiet=True)

    report = crash_at_every_step(worlds, worlds.new(), first_start, lambda world, _: world.produce(DEALS), opening=True)
    tally.enter("3 opening", report, at_least=8 * report.crashes)


def test_a_producer_killed_at_any_step_has_committed_all_of_a_deal_or_nothing(worlds: Worlds) -> None:
    world = worlds.new()
    world.drain()
    report = crash_at_every_step(worlds, world, lambda world, failpoint: world.produce([*DEALS, *LATER], failpoint))
    assert 0 < report.committed < report.attempted
    assert report.recovered > 0
    tally.enter("3a producer", report, at_least=2 * report.crashes)


def test_a_producer_that_repeats_itself_after_a_crash_at_any_step_has_said_everything_once(worlds: Worlds) -> None:
    world = worlds.new()
    world.drain()
    deals = [DEALS[0], DEALS[1], LATER[0]]
    report = crash_at_every_step(
        worlds, world, lambda world, failpoint: world.produce(deals, failpoint), lambda world, _: world.produce(deals)
    )
    assert report.committed == 5 * report.crashes
    tally.enter("3a producer, repeated", report, at_least=5 * report.crashes)


def test_a_relay_killed_at_any_step_loses_nothing_and_its_repeats_are_dropped(worlds: Worlds) -> None:
    world = prepared(worlds, DEALS)
    report = crash_at_every_step(
        worlds, world, lambda world, failpoint: world.work(["orders"], ["relay"], failpoint, quiet=True)
    )
    tally.enter("3b relay", report, at_least=9 * report.crashes)


def test_a_relay_killed_at_any_step_while_it_tries_refused_rows_again_keeps_their_order(worlds: Worlds) -> None:
    world = prepared(worlds, DEALS)
    refused = "'refused', false" if world.on_postgres else "'refused', 0"
    passed = "s1 = pg_current_snapshot()" if world.on_postgres else "cursor = (SELECT max(id) FROM posthouse_outbox)"
    world.change(
        "orders",
        f"INSERT INTO posthouse_stuck SELECT id, shard, topic, tenant, key, 1, 0, 0, {refused} FROM posthouse_outbox",
        f"UPDATE posthouse_shard SET {passed}",
    )
    report = crash_at_every_step(
        worlds, world, lambda world, failpoint: world.work(["orders"], ["relay"], failpoint, quiet=True)
    )
    tally.enter("3b relay with refused rows", report, at_least=9 * report.crashes)


def test_housekeeping_killed_at_any_step_forgets_nothing_that_is_needed(worlds: Worlds) -> None:
    world = relayed(worlds, DEALS)
    world.produce(LATER).result()
    report = crash_at_every_step(
        worlds, world, lambda world, failpoint: world.work(["orders"], ["relay"], failpoint, quiet=True, tidy=True)
    )
    tally.enter("3b relay and housekeeping", report, at_least=12 * report.crashes)


@pytest.mark.parametrize("handling", ["single", "grouped", "list"])
def test_a_consumer_killed_at_any_step_applies_each_event_once_with_what_it_publishes(
    worlds: Worlds, handling: Handling
) -> None:
    world = relayed(worlds, DEALS, Conditions(handling=handling))
    report = crash_at_every_step(
        worlds, world, lambda world, failpoint: world.work(["billing"], ["consumers"], failpoint, quiet=True)
    )
    tally.enter(f"3c consumer, {handling}", report, at_least=9 * report.crashes)


@pytest.mark.parametrize("handling", ["single", "grouped", "list"])
def test_a_consumer_killed_at_any_step_while_events_fail_and_are_mended_applies_each_once(
    worlds: Worlds, handling: Handling
) -> None:
    world = relayed(worlds, FAILING, Conditions(handling=handling))
    report = crash_at_every_step(
        worlds, world, lambda world, failpoint: world.work(["billing"], ["consumers"], failpoint, quiet=True)
    )
    tally.enter(f"3d retrier, {handling}", report, at_least=7 * report.crashes)


def test_timers_killed_at_any_step_fire_each_once(worlds: Worlds) -> None:
    world = prepared(worlds, LATER)
    report = crash_at_every_step(
        worlds, world, lambda world, failpoint: world.work(["orders"], ["timers"], failpoint, quiet=True)
    )
    tally.enter("3e timers", report, at_least=6 * report.crashes)


class Chain:
    """One world whose processes are killed after a random number of steps, every time, until they are done."""

    def __init__(self, worlds: Worlds, seed: int) -> None:
        self.seed = seed
        self.world = worlds.new(Conditions(max_attempts=1000))
        self._dice = random.Random(seed)
        self._deals = [*FAILING, *islice(made_up("c", seed), 10)]
        self._producing = True

    def start(self) -> Child:
        """The next process of this world. The longer the row of crashes, the longer it may live."""
        point = Failpoint(step=self._dice.randrange(1, 150 + 20 * self.world.crashes), moment="after")
        if self._producing:
            return self.world.produce(self._deals, point)
        return self.world.work(failpoint=point, quiet=True)

    def done(self, child: Child) -> bool:
        """Whether the world has come to its end with this process."""
        if self.world.crashed(child):
            self.world.wait_out()
            return False
        self._producing, finished = False, not self._producing
        return finished


def test_everything_killed_again_and_again_at_random_steps_comes_to_its_end(worlds: Worlds) -> None:
    chains = [Chain(worlds, 0)]
    on_postgres = chains[0].world.on_postgres
    most = (4 if LONG else 3) if on_postgres else (10 if LONG else 6)
    chains += [Chain(worlds, seed) for seed in range(1, most)]
    waiting, running = chains[SIDE_BY_SIDE:], chains[:SIDE_BY_SIDE]
    while running:
        ended = [chain for chain, child in [(chain, chain.start()) for chain in running] if chain.done(child)]
        running = [chain for chain in running if chain not in ended] + [waiting.pop() for _ in ended if waiting]
    total = Report()
    for chain in chains:
        report = chain.world.judge(chain.world.drain())
        assert not report.violations, f"seed {chain.seed}: {report.violations}\n{chain.world.log()}"
        total += report
    assert total.crashes >= (10 if on_postgres else 50)
    tally.enter("3 chains", total, at_least=80 if on_postgres else 200)
