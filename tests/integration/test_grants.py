"""Grants: nobody replays or edits without one that somebody else approved, nothing beyond it is touched, and what is under way stops
when it ends. On both stores, and on PostgreSQL with tenants kept apart."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
import pytest_asyncio

from posthouse import App, Event, Model, Payload, Service
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock, new_id
from posthouse.console.access.who import Role, Who
from posthouse.console.acting import running
from posthouse.console.acting.replaying import WHOLE
from posthouse.console.acting.running import Run
from posthouse.console.acting.table import pressed
from posthouse.console.asking import Refusal
from posthouse.console.estate import Estate
from posthouse.errors import DeskError, GrantNeeded
from posthouse.jobs import WholeRun
from posthouse.operators import login_name
from posthouse.processes.projection import Plan
from posthouse.replays import rebuild, seek
from posthouse.resend import Choice, resend
from posthouse.store import Action, Grant, HeldEvent, HeldFilter, Scope
from posthouse.store.actions import ActionFilter
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.sqlite import SqliteStore
from posthouse.testing.store_contract.samples import entry, held
from posthouse.testing.store_contract.steps import hold
from posthouse.trust.rights import Asked, Rights, signed_in
from tests.kit.waiting import eventually

ADA = Who(name="ada", roles=frozenset[Role](("operator", "replayer")), payloads=True)


class Place:
    """A shop on one store, with somebody at its console."""

    def __init__(self, store: Any, rights: Rights, owner: str) -> None:
        self.owner = owner
        self.shop = Service("shop")

        @self.shop.event("order.placed.v1", key="order_id")
        class OrderPlaced(Payload):
            order_id: str

        @self.shop.on(OrderPlaced)
        async def bill(event: Event[OrderPlaced]) -> None: ...

        board = self.shop.projection("board", lag_budget=60.0, cross_tenant=True)

        @board.on(OrderPlaced)
        async def seen(event: Event[OrderPlaced], model: Model) -> None: ...

        self.who = ADA
        self.placed, self.topic = OrderPlaced, "shop.order"
        self.broker = MemoryBroker(clock=SystemClock())
        self.app = App(self.shop, store=store, broker=self.broker, rights=rights)
        self.estate = Estate(self.app)

    async def granted(self, scope: Scope | None = None, *, to: str = "ada", **asked: Any) -> Grant:
        """One that grace approved."""
        with signed_in(True):
            grant = await self.app.grants.request(
                Asked(service="shop", scope=scope or Scope(), **{"rate": 1000.0, **asked}), by=to, why="ticket 7"
            )
            return await self.app.grants.approve(grant.id, by="grace")

    async def held(self, number: int, tenant: str = "t1") -> list[HeldEvent]:
        made = [held(entry(1, key=f"{tenant}-{n}", tenant=tenant), "dead") for n in range(number)]
        await hold(self.app.store, *(msgspec.structs.replace(one, consumer="shop") for one in made))
        return list(await self.app.store.held.find(HeldFilter(tenant=tenant), limit=1000))

    async def press(self, act: str, **body: object) -> Any:
        async def send(**more: object) -> Any:
            answer = await pressed(self.estate, self.who, act, msgspec.json.encode({"service": "shop", **body, **more}))
            return msgspec.json.decode(msgspec.json.encode(answer))

        seen = await send(dry=True)
        return await send(why="ticket 7", seen=seen["seen"], press=seen["press"])

    async def run(self) -> Any:
        """The job that waits, as a console runs it, until it ends or is paused."""
        job = await self.app.store.jobs.take(["shop"], "one", 30.0)
        assert job is not None
        work, pace = WHOLE.get(job.act), {"lease": 30.0, "look": 0.01}
        run = Run(self.shop, job, **pace) if work is None else WholeRun(self.shop, job, work, **pace)
        with signed_in(True):
            await run.whole()
        return await self.app.store.jobs.get(job.id)

    async def sql(self, changed: str, id: str) -> None:
        """Change the row of a grant behind everybody's back, as its owner could."""
        if self.owner.startswith("/"):
            with contextlib.closing(sqlite3.connect(self.owner)) as file, file:
                file.execute(f"UPDATE posthouse_replay_grant SET {changed} WHERE id = ?", (id,))
            return
        connection = await asyncpg.connect(self.owner)
        try:
            await connection.execute(f"UPDATE posthouse.replay_grant SET {changed} WHERE id = $1", id)
        finally:
            await connection.close()

    async def states(self) -> Counter[tuple[str, str]]:
        found = await self.app.store.held.find(HeldFilter(), limit=1000)
        return Counter((one.entry.tenant, one.state) for one in found)


@pytest_asyncio.fixture(params=["sqlite", "postgres", "isolated"])
async def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Place]:
    store: Any
    if request.param == "sqlite":
        store = SqliteStore(tmp_path / "shop.db", clock=SystemClock())
        await store.upgrade()
        owned = str(tmp_path / "shop.db")
    elif request.param == "postgres":
        store = PostgresStore(request.getfixturevalue("postgres_url"))
        await store.upgrade()
        owned = request.getfixturevalue("postgres_url")
    else:
        ground = request.getfixturevalue("ground")
        owner = PostgresStore(ground.owner_url)
        await owner.upgrade()
        await owner.set_roles(ground.application, ground.runtime)
        await owner.aclose()
        owned = ground.owner_url
        store = PostgresStore(ground.application_url, isolation=True, runtime_url=ground.runtime_url, patience=10)
    monkeypatch.setattr(running, "LINGER", 0.05)  # no worker runs what is retried here
    made = Place(store, Rights(grants=True), owned)
    yield made
    await made.app.aclose()
    await store.aclose()


async def test_without_a_grant_nobody_replays_or_edits_and_nothing_changes(place: Place) -> None:
    [dead] = await place.held(1)
    for attempt in (
        place.shop.held.retry(dead.id, by="ada"),
        place.shop.held.release(dead.id, by="ada"),
        place.shop.held.edit(dead.id, b'{"order_id":"o2"}', lambda *_: None, by="ada"),
    ):
        with pytest.raises(GrantNeeded, match="runs for ada"):
            await attempt
    with pytest.raises(Refusal, match="grant to replay runs for ada") as refused:
        await place.press("held.retry.all", rate=1000)
    assert "grant request" in str(refused.value)
    assert await place.states() == {("t1", "dead"): 1}
    assert not await place.app.actions.find(ActionFilter(verb="held"))


async def test_setting_aside_asks_for_no_grant_and_taking_back_in_does(place: Place) -> None:
    first, second = await place.held(2)
    await place.shop.held.skip(first.id, by="ada")
    await place.press("held.quarantine", id=str(second.id))
    assert await place.states() == {("t1", "skipped"): 1, ("t1", "quarantined"): 1}
    for one in (first, second):
        with pytest.raises(GrantNeeded, match="runs for ada"):
            await place.shop.held.retry(one.id, force=True, by="ada")
    assert await place.states() == {("t1", "skipped"): 1, ("t1", "quarantined"): 1}


async def test_whoever_asked_cannot_approve_by_any_name_of_theirs(place: Place) -> None:
    grants = place.app.grants
    asked = Asked(service="shop")
    with signed_in(True):
        grant = await grants.request(asked, by="ada@example.com (console)", why="ticket 7")
        for name in ("ada@example.com", "Ada@Example.com", "ada@example.com (console)"):
            with pytest.raises(DeskError, match="another one approves"):
                await grants.approve(grant.id, by=name)
    with pytest.raises(DeskError, match="another one approves"):
        await grants.approve(grant.id, by="ada@laptop")
    on_the_line = await grants.request(asked, by="ada", why="ticket 7")
    assert on_the_line.asked_as == login_name()
    with pytest.raises(DeskError, match="another one approves"):
        await grants.approve(on_the_line.id, by="grace")  # another name, and the same login
    assert {one.state for one in await grants.find()} == {"asked"}


async def test_a_row_that_says_that_one_person_did_both_cannot_be_written(place: Place) -> None:
    grant = await place.granted()
    forged = msgspec.structs.replace(grant, id=new_id(), asked_by="grace", asked_as="console:grace")
    async with place.app.store.begin() as tx:
        await place.app.store.grants.add(tx, forged)
    async with place.app.store.begin() as tx:
        assert not await place.app.store.grants.approve(tx, forged.id, "Grace", "console:other")
    found = await place.app.store.grants.get(forged.id)
    assert found is not None
    assert found.state == "asked"


async def test_of_two_who_approve_at_once_one_is_told_that_it_was_done(place: Place) -> None:
    with signed_in(True):
        grant = await place.app.grants.request(Asked(service="shop"), by="ada", why="ticket 7")

        async def approve(by: str) -> object:
            try:
                return await place.app.grants.approve(grant.id, by=by)
            except DeskError as error:
                return str(error)

        both = await asyncio.gather(approve("grace"), approve("joan"))
    assert len([one for one in both if isinstance(one, str) and "before" in one]) == 1
    assert len(await place.app.actions.find(ActionFilter(verb="grant approve"))) == 1


async def test_a_grant_for_one_tenant_touches_no_row_of_another(place: Place) -> None:
    await place.held(3, "t1")
    [theirs, *_] = await place.held(3, "t2")
    await place.granted(Scope(tenant="t1"))
    with signed_in(True), pytest.raises(GrantNeeded, match="is for tenant t1") as refused:
        await place.shop.held.retry(theirs.id, by="ada")
    assert not refused.value.over
    await place.press("held.retry.all", rate=1000)
    job = await place.run()
    assert (job.done, job.refused) == (3, 3)
    assert await place.states() == {("t1", "retrying"): 3, ("t2", "dead"): 3}
    assert {one.tenant for one in await place.app.actions.find(ActionFilter(verb="held retry"))} == {"t1"}


async def test_a_job_pauses_when_its_grant_is_spent_and_goes_on_with_the_next(place: Place) -> None:
    await place.held(5)
    await place.granted(most=2)
    await place.press("held.retry.all", rate=1000)
    job = await place.run()
    assert (job.state, job.done, job.refused) == ("paused", 2, 0)
    assert "no grant to replay runs for ada" in job.note
    assert await place.states() == {("t1", "retrying"): 2, ("t1", "dead"): 3}
    await place.granted(most=10)
    async with place.app.store.begin() as tx:
        assert await place.app.store.jobs.decide(tx, job.id, "running")
    job = await place.run()
    assert job.done == 5
    assert await place.states() == {("t1", "retrying"): 5}


async def test_a_revoked_grant_stops_a_job_before_its_next_item(place: Place) -> None:
    await place.held(40)
    grant = await place.granted(rate=20.0, most=40)
    await place.press("held.retry.all", rate=1000)
    under_way = asyncio.create_task(place.run())

    async def used() -> int:
        return (await place.app.grants.get(grant.id)).used

    await eventually(used, right=lambda number: number >= 3)
    await place.app.grants.revoke(grant.id, by="grace")
    job = await under_way
    assert job.state == "paused"
    assert 2 <= job.done < 40
    assert (await place.states())["t1", "retrying"] == job.done


async def test_its_rate_bounds_a_job_that_asks_for_more(place: Place) -> None:
    await place.held(4)
    await place.granted(rate=4.0)
    await place.press("held.retry.all", rate=1000)
    began = asyncio.get_running_loop().time()
    await place.run()
    assert asyncio.get_running_loop().time() - began >= 0.7


async def committed(place: Place, tenant: str, number: int) -> None:
    async with place.shop.transaction(tenant) as tx:
        for n in range(number):
            tx.publish(place.placed(order_id=f"{tenant}-{n}"))


async def test_sending_again_needs_a_grant_that_covers_all_of_it(place: Place) -> None:
    await committed(place, "t1", 3)
    await committed(place, "t2", 2)
    async with place.app.running():
        await eventually(place.app.store.counts, right=lambda counts: not sum(counts.unsent.values()))
        with pytest.raises(GrantNeeded):
            await resend([place.app], Choice(), by="ada")
        await place.granted(Scope(tenant="t1"))
        with signed_in(True):
            with pytest.raises(GrantNeeded, match="is for tenant t1, and this is for all events"):
                await resend([place.app], Choice(), by="ada")
            with pytest.raises(GrantNeeded, match="this is for tenant t2"):
                await resend([place.app], Choice(tenant="t2"), by="ada")
            [sent] = await resend([place.app], Choice(tenant="t1"), by="ada")
    assert sent.sent == 3
    assert {part.tenant for part in sent.parts} == {"t1"}


async def test_sending_again_stops_when_the_grant_is_spent(place: Place) -> None:
    await committed(place, "t1", 5)
    async with place.app.running():
        await eventually(place.app.store.counts, right=lambda counts: not sum(counts.unsent.values()))
        grant = await place.granted(most=2)
        await place.press("outbox.resend")
        job = await place.run()
        assert job.state == "paused"
        assert "no grant to replay runs for ada" in job.note
        assert (await place.app.grants.get(grant.id)).used == 2
        [noted] = await place.app.actions.find(ActionFilter(verb="outbox resend"))
        assert (noted.count, noted.outcome.partition(":")[0]) == (2, "failed")


async def test_a_seek_needs_a_grant_for_its_consumer_and_topic(place: Place) -> None:
    await place.broker.ensure(place.app.opened.topology())

    async def back() -> None:
        action = Action(verb="seek", by="ada", why="ticket 7", consumer="shop")
        with signed_in(True):
            await seek(place.shop, [place.topic], action, time=0.0)

    with pytest.raises(GrantNeeded):
        await back()
    await place.granted(Scope(consumer="shop", tenant="t1"))
    with pytest.raises(GrantNeeded, match="is for consumer shop, tenant t1"):
        await back()
    await place.granted(Scope(consumer="shop"))
    await back()


async def test_signing_in_may_be_asked_of_everybody(place: Place) -> None:
    place.app._rights = Rights(grants=True, signed_in=True)
    with pytest.raises(GrantNeeded, match="signed in at a console"):
        await place.app.grants.request(Asked(service="shop"), by="ada (console)", why="ticket 7")
    await place.granted()
    [dead] = await place.held(1)
    with pytest.raises(GrantNeeded, match="signed in at a console"):
        await place.shop.held.retry(dead.id, by="ada (console)")
    with signed_in(True):
        await place.shop.held.retry(dead.id, by="ada (console)")


async def test_at_the_console_one_asks_and_another_approves(place: Place) -> None:
    place.app._rights = Rights(grants=True, signed_in=True)
    grace = Who(name="grace", roles=frozenset[Role](("admin",)))
    await place.press("grant.request", tenant="t1", most=5)
    [asked] = await place.app.grants.find()
    assert (asked.asked_by, asked.asked_as, asked.most) == ("ada", "console:ada", 5)
    with pytest.raises(Refusal, match="role admin"):
        await place.press("grant.approve", grant=asked.id)
    ada, place.who = place.who, msgspec.structs.replace(ADA, roles=frozenset[Role](("admin",)))
    with pytest.raises(Refusal, match="another one approves"):
        await place.press("grant.approve", grant=asked.id)
    place.who = grace
    await place.press("grant.approve", grant=asked.id)
    place.who = ada
    [dead] = await place.held(1)
    await place.press("held.retry", id=str(dead.id))
    assert (await place.app.grants.get(asked.id)).used == 1
    verbs = [one.verb for one in await place.app.actions.find(ActionFilter(verb="grant"))]
    assert verbs == ["grant approve", "grant request"]


async def test_a_rebuild_needs_a_grant_for_its_read_model_and_spends_it(place: Place) -> None:
    for n in range(3):
        await committed(place, f"t{n}", 2)
    async with place.app.running():
        with pytest.raises(GrantNeeded):
            await rebuild(place.shop, "board", Plan(source="log"), by="ada")
        grant = await place.granted(Scope(consumer="shop.board"))
        with signed_in(True):
            done = await rebuild(place.shop, "board", Plan(source="log", drop_after=0.0), by="ada")
            assert done.generation == 2
            assert (await place.app.grants.get(grant.id)).used >= 1


async def test_who_is_not_among_the_approvers_approves_nothing(place: Place) -> None:
    place.app._rights = Rights(grants=True, approvers=["*@ops.example"])
    with signed_in(True):
        grant = await place.app.grants.request(Asked(service="shop"), by="ada", why="ticket 7")
        with pytest.raises(DeskError, match="not among those who approve"):
            await place.app.grants.approve(grant.id, by="grace@example.com")
        assert (await place.app.grants.approve(grant.id, by="grace@ops.example")).state == "running"


async def test_nobody_gets_more_than_an_hour(place: Place) -> None:
    for beyond in ({"minutes": 61}, {"minutes": 0}, {"most": 0}, {"rate": 0.0}):
        with pytest.raises(DeskError, match="1 to 60 minutes"):
            await place.app.grants.request(Asked(service="shop", **beyond), by="ada", why="ticket 7")
    with pytest.raises(DeskError, match="say why"):
        await place.app.grants.request(Asked(service="shop"), by="ada", why=" ")
    assert await place.app.grants.find() == []


async def test_where_no_grant_is_asked_for_nothing_is_looked_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.app._rights = None
    [dead] = await place.held(1)

    async def looked_up(*_: object, **__: object) -> None:
        pytest.fail("the table of grants was asked")

    monkeypatch.setattr(place.app.store.grants, "find", looked_up)
    await place.shop.held.retry(dead.id, by="ada")
    assert await place.states() == {("t1", "retrying"): 1}


async def test_a_release_asks_for_the_event_that_runs_and_not_for_the_one_that_was_named(place: Place) -> None:
    line = [held(entry(1, key="k1"), "dead"), held(entry(2, key="k1"), "blocked")]
    line = [msgspec.structs.replace(one, consumer="shop") for one in line]
    line[1] = msgspec.structs.replace(line[1], entry=msgspec.structs.replace(line[1].entry, time=2e9))
    await hold(place.app.store, *line)
    first, second = sorted(await place.app.store.held.find(HeldFilter(), limit=9), key=lambda one: one.id)
    assert (first.state, second.state, second.entry.time) == ("dead", "blocked", 2e9)
    await place.granted(Scope(since=1.9e9))
    with signed_in(True):
        with pytest.raises(GrantNeeded, match="is for since"):
            await place.shop.held.release(second.id, by="ada")
        assert (await place.shop.held.get(first.id)).state == "dead"
        await place.granted(Scope(until=1.9e9))
        await place.shop.held.release(second.id, by="ada")
    assert (await place.shop.held.get(first.id)).state == "retrying"


async def test_nobody_lets_the_job_of_another_go_on_with_a_grant_that_is_not_theirs(place: Place) -> None:
    await place.held(3)
    await place.granted(most=1)
    await place.press("held.retry.all", rate=1000)
    job = await place.run()
    assert job.state == "paused"
    with pytest.raises(Refusal, match="No grant to replay runs for ada"):
        await place.press("job.resume", job=job.id)
    await place.granted(most=9)
    await place.granted(most=9, to="mallory")
    ada, place.who = place.who, msgspec.structs.replace(ADA, name="mallory")
    with pytest.raises(Refusal, match="grant of ada, who alone"):
        await place.press("job.resume", job=job.id)
    place.who = ada
    await place.press("job.resume", job=job.id)
    assert (await place.run()).done == 3


async def test_a_job_pauses_when_the_time_of_its_grant_is_over_and_says_why(place: Place) -> None:
    await place.held(40)
    grant = await place.granted(rate=20.0, most=40)
    await place.press("held.retry.all", rate=1000)
    under_way = asyncio.create_task(place.run())

    async def used() -> int:
        return (await place.app.grants.get(grant.id)).used

    await eventually(used, right=lambda number: number >= 3)
    await place.sql("ends_at = approved_at", grant.id)
    job = await under_way
    assert (await place.app.grants.get(grant.id)).state == "expired"
    assert (job.state, job.refused) == ("paused", 0)
    assert any(words in job.note for words in ("is expired since", "one that has run out is asked for anew"))
    assert 2 <= job.done < 40
    assert (await place.states())["t1", "retrying"] == job.done


async def test_the_database_refuses_a_row_in_which_one_person_did_both(place: Place) -> None:
    with signed_in(True):
        grant = await place.app.grants.request(Asked(service="shop"), by="ada", why="ticket 7")
    forged = "approved_by = '{}', approved_as = '{}', approved_at = 1, ends_at = 2"
    for name, known_as in (("ada", "console:other"), ("ADA", "console:other"), ("grace", "console:ada")):
        with pytest.raises(Exception, match=r"(?i)check constraint"):
            await place.sql(forged.format(name, known_as), grant.id)
        assert (await place.app.grants.get(grant.id)).state == "asked"
    for beyond in ("used = most + 1", "minutes = 61", "approved_by = 'grace', approved_at = 1, ends_at = 3602"):
        with pytest.raises(Exception, match=r"(?i)check constraint"):
            await place.sql(beyond, grant.id)
    await place.sql(forged.format("grace", "console:grace"), grant.id)  # the same words, of another person
    assert (await place.app.grants.get(grant.id)).state == "expired"


async def test_a_process_whose_clock_is_wrong_lengthens_no_grant_that_is_in_a_server(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant, over = await place.granted(), await place.granted()
    await place.sql("ends_at = approved_at", over.id)
    now = time.time
    for skew in (-7200.0, 7200.0):
        monkeypatch.setattr(time, "time", lambda skew=skew: now() + skew)
        if place.owner.startswith("/"):  # a file has no clock but that of whoever opens it
            assert (await place.app.store.grants.draw(grant.id, 1) is None) == (skew > 0)
        else:
            assert await place.app.store.grants.draw(grant.id, 1) is not None
            assert await place.app.store.grants.draw(over.id, 1) is None
