"""Fault 8, with everything else at once: the server itself is stopped and crashed every few seconds while processes of
every kind are killed and paused around it. Some are not: what these have in use must stay what it was. POSTHOUSE_LONG is
how many seconds it lasts."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psycopg
import pytest

from tests.faults.kit import tally
from tests.faults.kit.fleet import Fleet, pause, seeded
from tests.faults.kit.growth import Growth, grown
from tests.faults.kit.jobs import Deal, Intent, Result
from tests.faults.kit.nursery import Child, Nursery
from tests.faults.kit.shop import Conditions
from tests.faults.kit.world import World
from tests.kit.servers.restartable import RestartablePostgres, restartable_postgres

__all__ = ["restartable_postgres"]

LONG = float(os.environ.get("POSTHOUSE_LONG", "40"))
CONDITIONS = Conditions(
    speed=1.0, relay_lease=3.0, broker_lease=3.0, max_attempts=10_000, in_flight=30, log="postgres", more=True
)
STALLED = 60.0
LEAST_RESTARTS, LEAST_KILLS, LEAST_APPLIED = 10, 20, 3_000
FORGOTTEN = "SELECT gid FROM pg_prepared_xacts WHERE prepared < now() - interval '3 s'"


class OneServer:
    """The ground of this world: the database that is there already."""

    def __init__(self, url: str) -> None:
        self._url = url

    def new(self) -> str:
        return self._url

    def copied(self, url: str) -> str:
        raise NotImplementedError("there is one world on this server")

    def clear(self, url: str) -> None:
        raise NotImplementedError("the server goes as a whole")


class Producers:
    """Two that use their service's transactions, two that join their own; whoever is killed is replaced by a new name."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._seed = seed
        self._names = (f"p{number}" for number in itertools.count())
        self._children = [(joined, self._start(joined)) for joined in (False, False, True, True)]

    def _start(self, joined: bool) -> Child:
        return self._world.produce_on(next(self._names), self._seed, 0.1, joined=joined)

    def strike(self, dice: random.Random) -> None:
        joined, child = self._children.pop(dice.randrange(len(self._children)))
        self._world.kill(child)
        self._children.append((joined, self._start(joined)))

    def end(self) -> list[int]:
        return [child.terminate() for _, child in self._children]


def finish_forgotten(url: str) -> None:
    """What a transaction manager does: commit what was prepared by somebody who died before the second phase."""
    with contextlib.suppress(psycopg.Error), psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
        for (gid,) in connection.execute(FORGOTTEN).fetchall():
            with contextlib.suppress(psycopg.errors.UndefinedObject):
                connection.execute(psycopg.sql.SQL("COMMIT PREPARED {}").format(gid))


def restarts(server: RestartablePostgres, dice: random.Random) -> Iterator[int]:
    """Each next() is a look at the watch: now and then the server goes down, cleanly or not in turn. Tells how often."""
    count, due = 0, time.monotonic() + 3.0
    while True:
        yield count
        finish_forgotten(server.url)
        if time.monotonic() < due:
            continue
        if count % 2:
            server.stop()
        else:
            server.crash()
        server.start()
        count, due = count + 1, time.monotonic() + dice.uniform(3.0, 5.0)


def drained(world: World) -> Result:
    """Run everything undisturbed until nothing moves; a run that stands still for a minute has failed."""
    child, before, moved_at = world.work(quiet=True), -1, time.monotonic()
    while child.alive:
        pause(0.5)
        now = sum(world.figure("billing", f"SELECT count(*) FROM {ledger}") for ledger in world.conditions.ledgers)
        now += world.figure("orders", "SELECT count(*) FROM receipt")
        if now > before:
            before, moved_at = now, time.monotonic()
        assert time.monotonic() - moved_at < STALLED, f"nothing moved for {STALLED:g} s\n{child.trouble()}"
    return child.result()


@pytest.mark.parametrize(
    ("what", "figures", "word"),
    [
        ("files", [20 + n for n in range(60)], "39 at first, 79 at last"),
        ("files", [20, 44, 20] * 20, ""),
        ("bytes", [10**8 + 10**6 * n for n in range(300)], "199,000,000 at first, 399,000,000 at last"),
        ("threads", [3] * 11, "seen 11 times only"),
        ("connections", [30] * 40 + [60] * 3, "30 at first, 60 at last"),
    ],
)
def test_what_grows_is_noticed(what: str, figures: list[int], word: str) -> None:
    assert grown(what, figures) == word


@pytest.mark.slow
@pytest.mark.timeout(LONG + 600)
def test_a_server_that_goes_down_every_few_seconds_under_load_loses_doubles_and_inverts_nothing(
    restartable_postgres: RestartablePostgres, nursery: Nursery, tmp_path: Path
) -> None:
    dice, seed = seeded()
    server = restartable_postgres
    world = World(tmp_path, nursery, msgspec.structs.replace(CONDITIONS, database=server.url), OneServer(server.url))
    world.stubborn = True
    world.drain(120)
    world.produce([Deal(tenant="t1", intents=[Intent(n="poison", kind="placed", key="px", poison="reject")])]).result()
    fleet = Fleet(world)
    for _ in range(3):
        fleet.add(["orders"], ["relay", "timers"])
    for _ in range(3):
        fleet.add(["billing"], ["relay", "consumers"])
    fleet.add(["orders"], ["consumers"])
    survivors = [world.work(["orders"]), world.work(["billing"])]
    growth = Growth([child.pid for child in survivors], server.url)
    producers = Producers(world, seed)
    restart, began, restarted = restarts(server, dice), time.monotonic(), 0
    while time.monotonic() - began < LONG or restarted < LEAST_RESTARTS or world.crashes < LEAST_KILLS:
        restarted = next(restart)
        growth.look()
        pause(dice.uniform(0.2, 0.8))
        if dice.random() < 0.2:
            producers.strike(dice)
        else:
            fleet.strike(dice)
    pause(3.5)
    finish_forgotten(server.url)  # or a producer waits for a lock that nobody will ever give back
    assert producers.end() == [0] * 4
    assert set(fleet.disband()) == {0}
    assert [child.terminate() for child in survivors] == [0, 0]
    report = world.judge(drained(world), waiting=["poison"])
    assert world.rows("orders", "SELECT count(*) FROM posthouse_held") == [(0,)]
    held = world.rows("billing", "SELECT consumer, state FROM posthouse_held ORDER BY consumer")
    assert held == [(f"billing{name}", "dead") for name in ("", ".grouped", ".listed", ".loose")]
    assert (restarted >= LEAST_RESTARTS, report.crashes >= LEAST_KILLS) == (True, True)
    assert growth.grown() == {}
    tally.enter(f"8 server restarted {restarted} times", report, at_least=LEAST_APPLIED)
