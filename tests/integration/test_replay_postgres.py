"""A replay on PostgreSQL: beside consumers that run, killed by SIGKILL, in a store that keeps tenants apart."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import defaultdict
from pathlib import Path

import asyncpg
import pytest

from posthouse import App, Event, Payload, Service, Tx, reprocessing
from posthouse.app import app_of
from posthouse.history.replay import Choice
from posthouse.stores.postgres import PostgresStore
from tests.integration import replay_member
from tests.kit.servers.roles import Ground
from tests.kit.waiting import eventually


async def applied(url: str, release: str) -> dict[str, list[int]]:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch("SELECT key, number FROM applied WHERE release = $1 ORDER BY id", release)
    finally:
        await connection.close()
    found: defaultdict[str, list[int]] = defaultdict(list)
    for key, number in rows:
        found[key].append(number)
    return dict(found)


async def test_a_replay_that_is_killed_goes_on_where_it_was(postgres_url: str, tmp_path: Path) -> None:
    """Each kill comes while handlers are at work; the members that run meanwhile apply what is said live."""
    log = f"embedded:///{tmp_path}/log.db?synchronous=NORMAL"
    orders, billing, changed = replay_member.services(postgres_url, log, "wrong")
    await app_of(billing).store.upgrade()
    keys = [f"k{number}" for number in range(6)]

    async def say(number: int) -> None:
        for key in keys:
            async with orders.transaction(tenant="t1") as tx:
                tx.publish(changed(key=key, number=number))

    async with orders.running():
        for number in range(1, 11):
            await say(number)
        async with asyncio.timeout(60):
            while await applied(postgres_url, "wrong") != {key: list(range(1, 11)) for key in keys}:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    orders, billing, changed = replay_member.services(postgres_url, log, "mended")
    async with orders.running():
        choice = Choice(consumer="billing", reprocess=True)
        plan = await reprocessing.planned(billing, choice)
        assert plan.events == 60
        job = await reprocessing.begin(billing, choice, total=60, rate=0.0, by="ada", why="ticket 7")
        said, seen = 10, 0
        for _ in range(4):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.integration.replay_member", postgres_url, log, job.id
            )
            async with asyncio.timeout(60):
                while (  # noqa: ASYNC110 - another process applies them
                    process.returncode is None
                    and sum(map(len, (await applied(postgres_url, "mended")).values())) < seen + 5
                ):
                    await asyncio.sleep(0.01)
            if process.returncode is None:
                os.kill(process.pid, signal.SIGKILL)
            await process.wait()
            seen = sum(map(len, (await applied(postgres_url, "mended")).values()))
            said += 1
            await say(said)
        done = await reprocessing.run(billing, job.id, lease=2.0, look=0.1)
        assert (done.state, done.done) == ("done", 60), done
        await eventually(lambda: _applied_all(postgres_url, said, keys))
        connection = await asyncpg.connect(postgres_url)
        assert await connection.fetchval("SELECT count(*) FROM posthouse.head WHERE replay <> '' OR held <> 0") == 0
        assert await connection.fetchval("SELECT count(*) FROM posthouse.replay_event") == 0
        await connection.close()
        assert await applied(postgres_url, "mended") == {key: list(range(1, said + 1)) for key in keys}


async def _applied_all(url: str, said: int, keys: list[str]) -> bool:
    return sum(map(len, (await applied(url, "mended")).values())) >= said * len(keys)


@pytest.mark.parametrize("state", ["cancelled", "paused"])
async def test_a_key_that_fails_holds_its_live_events_until_it_is_mended_or_given_up(
    postgres_url: str, tmp_path: Path, state: str
) -> None:
    log = f"embedded:///{tmp_path}/log.db?synchronous=NORMAL"
    orders, billing, changed = replay_member.services(postgres_url, log, "wrong")
    await app_of(billing).store.upgrade()
    async with orders.running():
        for number in (1, 2, 3):
            async with orders.transaction(tenant="t1") as tx:
                tx.publish(changed(key="k", number=number))
        await eventually(lambda: _is(postgres_url, "wrong", {"k": [1, 2, 3]}))
    orders, billing, changed = replay_member.services(postgres_url, log, "mended", fails=2)
    async with orders.running():
        job = await reprocessing.begin(
            billing, Choice(consumer="billing", reprocess=True), total=3, rate=0.0, by="ada", why="ticket 7"
        )
        stopped = await reprocessing.run(billing, job.id, look=0.1)
        assert (stopped.state, stopped.done) == ("paused", 1), stopped
        async with orders.transaction(tenant="t1") as tx:
            tx.publish(changed(key="k", number=4))
        store = app_of(billing).store
        if state == "cancelled":
            async with store.begin() as tx_:
                await store.jobs.decide(tx_, job.id, "cancelled")
            await eventually(lambda: _is(postgres_url, "mended", {"k": [1, 4]}))
        else:
            replay_member.FAILS.clear()
            async with store.begin() as tx_:
                await store.jobs.decide(tx_, job.id, "running")
            done = await reprocessing.run(billing, job.id, look=0.1)
            assert (done.state, done.done) == ("done", 3), done
            await eventually(lambda: _is(postgres_url, "mended", {"k": [1, 2, 3, 4]}))


async def _is(url: str, release: str, wanted: dict[str, list[int]]) -> bool:
    return await applied(url, release) == wanted


async def test_where_tenants_are_kept_apart_each_is_replayed_within_its_own(ground: Ground, tmp_path: Path) -> None:
    owner = PostgresStore(ground.owner_url)
    await owner.upgrade()
    await owner.set_roles(ground.application, ground.runtime)
    await owner.aclose()
    store = PostgresStore(ground.application_url, isolation=True, runtime_url=ground.runtime_url, patience=10)
    shop, seen = Service("shop"), list[tuple[str, int, bool]]()
    App(shop, store=store, broker=f"embedded:///{tmp_path}/log.db?single_host=true")
    placed, paid = shop.event("order.placed.v1", key="key")(Placed), shop.event("payment.taken.v1", key="key")(Paid)

    @shop.on(placed)
    async def bill(event: Event[Placed], tx: Tx) -> Paid:
        seen.append((event.tenant, event.data.number, tx.replayed))
        return paid(key=event.data.key)

    async with shop.running():
        for number in (1, 2, 3):
            for tenant in ("t1", "t2"):
                async with shop.transaction(tenant=tenant) as tx:
                    tx.publish(placed(key="k", number=number))
        await eventually(lambda: len(seen) == 6)
        choice = Choice(consumer="shop", tenant="t2", reprocess=True)
        job = await reprocessing.begin(shop, choice, total=3, rate=0.0, by="ada", why="ticket 7")
        done = await reprocessing.run(shop, job.id, look=0.1)
        assert (done.state, done.done) == ("done", 3), done
        assert seen[6:] == [("t2", 1, True), ("t2", 2, True), ("t2", 3, True)]
        for tenant in ("t1", "t2"):
            async with shop.transaction(tenant=tenant) as tx:
                tx.publish(placed(key="k", number=4))
        await eventually(lambda: sorted(seen[9:]) == [("t1", 4, False), ("t2", 4, False)])
        assert (await store.counts()).committed["shop.payment"] == 8
    await store.aclose()


class Placed(Payload):
    key: str
    number: int


class Paid(Payload):
    key: str
