"""Faults 7 and 31: consumers that die around their commit, and events that kill whoever runs them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.faults.kit import tally
from tests.faults.kit.failpoint import Failpoint
from tests.faults.kit.jobs import Deal, Intent
from tests.faults.kit.shop import Conditions, Poison
from tests.faults.kit.world import LETTERS, World, Worlds
from tests.kit.waiting import until

DEALS = [
    Deal(tenant=f"t{n % 2 + 1}", intents=[Intent(n=f"{n}", kind="placed" if n < 16 else "seen", key=f"p{n % 4}")])
    for n in range(24)
]
BOOKED = "INSERT INTO ledger"


ONE_BY_ONE = Conditions(writers=1)
"""One transaction after the other, so that it is known which commit is whose."""


def relayed(worlds: Worlds, deals: list[Deal], conditions: Conditions = ONE_BY_ONE) -> World:
    world = worlds.new(conditions)
    world.drain()
    world.produce(deals).result()
    world.work(["orders"], ["relay"], quiet=True).result()
    return world


def commits_of_handlers(worlds: Worlds, world: World) -> list[int]:
    """Which commits on the billing database are those of a handler's transaction."""
    probe = worlds.copy(world)
    steps = probe.work(["billing"], ["consumers"], quiet=True).result().steps
    commits, found, booked = 0, [], False
    for step in steps:
        booked |= BOOKED in step
        if step.startswith("billing: ") and step.endswith("COMMIT"):
            commits += 1
            if booked:
                found.append(commits)
            booked = False
    return found


def test_a_consumer_killed_just_before_its_commit_runs_the_event_again(worlds: Worlds) -> None:
    world = relayed(worlds, DEALS)
    commit = commits_of_handlers(worlds, world)[9]
    point = Failpoint(step=commit, book="billing", text="COMMIT")
    assert world.crashed(world.work(["billing"], ["consumers"], point))
    assert world.figure("billing", "SELECT count(*) FROM ledger") == 9
    world.wait_out()
    report = world.judge(world.drain())
    assert sorted(Counter(world.runs()).values()) == [1] * 23 + [2]
    tally.enter("7 consumer killed before its commit", report, at_least=24 + 16)


def test_a_consumer_killed_just_after_its_commit_finds_the_inbox_row_and_runs_nothing_again(worlds: Worlds) -> None:
    world = relayed(worlds, DEALS)
    commit = commits_of_handlers(worlds, world)[9]
    point = Failpoint(step=commit, moment="after", book="billing", text="COMMIT")
    assert world.crashed(world.work(["billing"], ["consumers"], point))
    assert world.figure("billing", "SELECT count(*) FROM ledger") == 10
    assert world.figure("log", "SELECT sum(acked) FROM cursors WHERE grp = 'billing'") < 10, "it was acknowledged early"
    world.wait_out()
    report = world.judge(world.drain())
    assert set(Counter(world.runs()).values()) == {1}
    tally.enter("7 consumer killed after its commit", report, at_least=24 + 16)


def test_a_commit_whose_answer_was_lost_is_not_acknowledged_and_the_inbox_decides(worlds: Worlds) -> None:
    world = relayed(worlds, DEALS)
    commit = commits_of_handlers(worlds, world)[9]
    point = Failpoint(step=commit, moment="after", act="lose", book="billing", text="COMMIT")
    world.work(["billing"], ["consumers"], point, quiet=True).result()
    assert "it may or may not have happened" in world.log()
    report = world.judge(world.drain())
    assert set(Counter(world.runs()).values()) == {1}
    tally.enter("7 answer to the commit lost", report, at_least=24 + 16)


def test_a_consumer_that_stood_still_while_another_took_over_applies_and_acknowledges_nothing_more(
    worlds: Worlds,
) -> None:
    world = relayed(worlds, DEALS, Conditions(speed=4.0, broker_lease=4.0, writers=1))
    commit = commits_of_handlers(worlds, world)[9]
    point = Failpoint(step=commit, moment="after", act="stop", book="billing", text="COMMIT")
    paused = world.work(["billing"], ["consumers"], point)
    paused.await_stop()
    other = world.work(["billing"], ["consumers"])
    until(lambda: world.figure("billing", "SELECT count(*) FROM ledger") == 24, "the other one to take over")
    more = [Deal(tenant="t1", intents=[Intent(n=f"more-{n}", kind="cancelled", key=f"p{n % 4}")]) for n in range(12)]
    world.produce(more).result()
    world.work(["orders"], ["relay"], quiet=True).result()
    acknowledged = "SELECT sum(acked) FROM cursors WHERE grp = 'billing'"
    until(lambda: world.figure("log", acknowledged) == 36, "everything to be acknowledged")
    paused.go_on()
    assert paused.terminate() == 0
    assert world.figure("log", acknowledged) == 36, "a consumer that had lost its partitions has moved their cursors"
    assert other.terminate() == 0
    assert set(Counter(world.runs()).values()) == {1}
    tally.enter("4 consumer paused", world.judge(world.drain()), at_least=36 + 28)


@pytest.mark.parametrize(("poison", "code"), [("kill", -9), ("exit", 13)])
@pytest.mark.parametrize("deliveries", [2, 3, 7])
def test_an_event_that_kills_its_process_runs_as_often_as_allowed_and_is_dead_then(
    worlds: Worlds, poison: Poison, code: int, deliveries: int
) -> None:
    deals = [
        *DEALS,
        Deal(tenant="t1", intents=[Intent(n="poison", kind="placed", key="px", poison=poison)]),
        Deal(tenant="t1", intents=[Intent(n="behind", kind="cancelled", key="px")]),
        *(Deal(tenant="t2", intents=[Intent(n=f"later-{n}", kind="placed", key=f"pl{n}")]) for n in range(40)),
    ]
    world = relayed(worlds, deals, Conditions(max_attempts=deliveries, writers=1))
    while (ended := (child := world.work(quiet=True)).wait()) != 0:
        assert ended == code, child.trouble()
        world.crashes += 1
        assert world.crashes <= deliveries, "it was run too often"
        world.wait_out()
    report = world.judge(child.result(), waiting=["poison", "behind"])
    assert world.runs().count("poison") == deliveries == world.crashes
    held = world.rows("billing", "SELECT state, attempts > 0, key FROM posthouse_held ORDER BY sequence")
    assert held == [("dead", 1, "px"), ("blocked", 0, "px")]
    # One dead letter was written, and settled once. A relay that the machine keeps waiting behind its publishing for longer than
    # its lease, a quarter of a second here, is fenced, and the same frame comes again: see the test of that among the relays.
    assert world.figure("billing", "SELECT sum(count) FROM posthouse_sent WHERE topic = 'shop.orders.order.dlq'") == 1
    letters = world.rows("log", LETTERS)
    assert len(set(letters)) == 1, "another letter was written about it"
    assert len(letters) <= 1 + world.log().count("lost its shards; nothing was settled")
    tally.enter("31 event that kills its process", report, at_least=24 + 16 + 2 * 40)
