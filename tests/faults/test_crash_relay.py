"""Faults 1, 2 and 4: relays that die or stand still between the outbox and the log."""

from __future__ import annotations

import time

from tests.faults.kit import tally
from tests.faults.kit.failpoint import Failpoint
from tests.faults.kit.jobs import Deal, Intent
from tests.faults.kit.shop import Conditions
from tests.faults.kit.world import LETTERS, World, Worlds
from tests.kit.waiting import until

LEASE, TICK = 1.5, 1.0
SLOW = Conditions(speed=1.0, relay_lease=LEASE, broker_lease=2.0)
"""The machine's own clock, with short leases."""

FRAMES = "SELECT count(*) FROM frames f JOIN topics t ON t.id = f.topic WHERE t.name GLOB 'shop.orders.*'"


def deals(count: int, start: int = 1) -> list[Deal]:
    """Many keys of three tenants, so that every shard has something, and several facts per key."""
    return [
        Deal(
            tenant=f"t{n % 3 + 1}",
            intents=[
                Intent(n=f"{n}a", kind="placed", key=f"p{n % 20}"),
                Intent(n=f"{n}b", kind="cancelled", key=f"p{n % 20}"),
            ],
        )
        for n in range(start, start + count)
    ]


def opened(worlds: Worlds, conditions: Conditions) -> World:
    world = worlds.new(conditions)
    world.drain()
    return world


def test_a_relay_killed_between_the_brokers_answer_and_its_own_note_publishes_again_and_nobody_applies_twice(
    worlds: Worlds,
) -> None:
    world = opened(worlds, Conditions(batch=10))
    world.produce(deals(30)).result()
    for batch in range(1, 4):
        published = Failpoint(step=batch, moment="after", book="log", text="COMMIT")
        assert world.crashed(world.work(["orders"], ["relay"], published, quiet=True))
        world.wait_out()
    report = world.judge(world.drain())
    again = world.figure("log", FRAMES) - report.committed
    words = f"{again} frames were published again: it should be one batch for each crash"
    if world.on_postgres:  # behind a backlog in two parts, whose pages are of one shard each
        assert 3 <= again <= 2 * 3 * 10, words
    else:
        assert again == 3 * 10, words
    tally.enter("1 relay killed before it settles", report, at_least=120)


def test_another_relay_takes_over_what_a_killed_one_had_leased_within_lease_and_tick(worlds: Worlds) -> None:
    world = opened(worlds, SLOW)
    first = world.work(["orders"], ["relay"], Failpoint(step=1, book="log", text="BEGIN"))
    second = world.work(["orders"], ["relay"])
    until(
        lambda: world.figure("orders", "SELECT count(DISTINCT owner) FROM posthouse_shard") == 2, "both to hold shards"
    )
    producer = world.produce(deals(40))
    assert world.crashed(first)
    killed_at = time.monotonic()
    producer.result()
    until(lambda: world.unsent("orders") == 0, "the second relay to send everything")
    took = time.monotonic() - killed_at
    assert LEASE / 3 < took < LEASE + TICK + 1.0, f"it took {took:.2f} s"
    assert second.terminate() == 0
    tally.enter("2 relay killed after it leased", world.judge(world.drain()), at_least=160)


def pause_a_relay(worlds: Worlds, failpoint: Failpoint) -> World:
    """Two relays share the shards; one stands still at the failpoint for twice its lease while somebody keeps house and
    the other one goes on with newer facts of the same keys, then wakes up and finishes what it was about to do."""
    world = opened(worlds, SLOW)
    paused = world.work(["orders"], ["relay"], failpoint)
    other = world.work(["orders"], ["relay"])
    until(
        lambda: world.figure("orders", "SELECT count(DISTINCT owner) FROM posthouse_shard") == 2, "both to hold shards"
    )
    epochs = world.figure("orders", "SELECT sum(epoch) FROM posthouse_shard")
    world.produce(deals(40)).result()
    paused.await_stop()
    stopped_at = time.monotonic()
    world.work(["orders"], [], quiet=True, tidy=True).result()
    until(
        lambda: world.figure("orders", "SELECT sum(epoch) FROM posthouse_shard") > epochs, "the shards to be taken over"
    )
    world.produce(deals(40, start=41)).result()
    until(lambda: world.unsent("orders") == 0, "the other relay to send everything")
    until(lambda: time.monotonic() - stopped_at > 2 * LEASE, "twice the lease")
    settled = world.figure("orders", "SELECT sum(count) FROM posthouse_sent")
    paused.go_on()
    until(lambda: "lost its shards" in world.log(), "the relay that woke up to see that it was fenced")
    assert world.figure("orders", "SELECT sum(count) FROM posthouse_sent") == settled == 160
    assert (paused.terminate(), other.terminate()) == (0, 0)
    return world


def test_a_relay_that_stood_still_after_publishing_settles_nothing_when_it_wakes_up(worlds: Worlds) -> None:
    world = pause_a_relay(worlds, Failpoint(step=1, moment="after", act="stop", book="log", text="COMMIT"))
    assert world.log().count("lost its shards") > 0
    tally.enter("4 relay paused before it settles", world.judge(world.drain()), at_least=320)


def test_what_a_relay_publishes_late_after_it_stood_still_is_older_and_dropped(worlds: Worlds) -> None:
    world = pause_a_relay(worlds, Failpoint(step=1, act="stop", book="log", text="BEGIN"))
    late = world.figure("log", FRAMES) - 160
    assert late > 0, "the relay that woke up has published nothing"
    tally.enter("4 relay paused before it publishes", world.judge(world.drain()), at_least=320)


def test_a_dead_letter_comes_again_behind_a_fenced_relay_as_the_same_frame_of_one_row(worlds: Worlds) -> None:
    world = opened(worlds, SLOW)
    world.produce([Deal(tenant="t1", intents=[Intent(n="bad", kind="placed", key="p", poison="reject")])]).result()
    world.work(["orders"], ["relay"], quiet=True).result()
    world.work(["billing"], ["consumers"], quiet=True).result()
    paused = world.work(
        ["billing"], ["relay"], Failpoint(step=1, moment="after", act="stop", book="log", text="COMMIT")
    )
    paused.await_stop()
    assert len(world.rows("log", LETTERS)) == 1, "it was published, and is not settled yet"
    other = world.work(["billing"], ["relay"])
    until(lambda: world.unsent("billing") == 0, "the other relay to send it")
    paused.go_on()
    until(lambda: "lost its shards" in world.log(), "the relay that woke up to see that it was fenced")
    assert (paused.terminate(), other.terminate()) == (0, 0)
    first, again = world.rows("log", LETTERS)
    assert first == again
    assert world.figure("billing", "SELECT sum(count) FROM posthouse_sent WHERE topic = 'shop.orders.order.dlq'") == 1
    tally.enter("4 relay paused behind a dead letter", world.judge(world.drain(), waiting=["bad"]), at_least=0)
