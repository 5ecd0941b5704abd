"""The end of a stream: archived it is out of the way, deleted it is its last fact; read models follow, in every order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from posthouse import App, Event, Payload, Service
from posthouse.app import app_of
from posthouse.errors import ConfigurationError, ContractError, StreamArchived, StreamClosed, StreamDeleted
from posthouse.processes import Aggregate, Loaded, Model, Plan
from posthouse.processes.projection import bulk
from posthouse.store.streams import Snapshot, Stream
from posthouse.watch.status import drained


class Posted(Payload):
    """Something was put into an account."""

    account_id: str
    cents: int


class Erased(Payload):
    """The account is gone."""

    account_id: str
    cents: int


class Balance(Payload):
    """What an account has."""

    cents: int = 0


class StillOwing(Exception):
    """Nobody erases an account that owes."""


def erase(balance: Balance) -> Erased:
    if balance.cents < 0:
        raise StillOwing
    return Erased("a1", balance.cents)


def evolve(balance: Balance, event: Posted | Erased) -> Balance:
    return Balance(balance.cents + event.cents) if isinstance(event, Posted) else Balance()


class Bank:
    """Accounts, and a read model of what they have."""

    def __init__(self, folder: Path) -> None:
        self.service = Service("bank")
        App(self.service, store=f"sqlite:///{folder}/bank.db", broker=f"embedded:///{folder}/log.db")
        event = self.service.event
        self.accounts: Aggregate[Balance, Posted | Erased] = self.service.aggregate(
            "account",
            initial=Balance,
            evolve=evolve,
            events=(
                event("account.posted.v1", key="account_id")(Posted),
                event("account.erased.v1", key="account_id")(Erased),
            ),
            snapshot_every=2,
            delete=erase,
        )
        self.totals = self.service.projection("totals")
        self.totals.setup(self._tables)
        self.totals.on(Posted)(self._post)
        self.totals.on(Erased)(self._forget)

    async def _tables(self, model: Model) -> None:
        await model.execute(f"CREATE TABLE {model.table('total')} (account TEXT PRIMARY KEY, cents INTEGER)")

    async def _post(self, event: Event[Posted], model: Model) -> None:
        await model.execute(
            f"INSERT INTO {model.table('total')} VALUES (?1, ?2) ON CONFLICT (account) DO UPDATE SET cents = cents + ?2",
            (event.data.account_id, event.data.cents),
        )

    async def _forget(self, event: Event[Erased], model: Model) -> None:
        await model.execute(f"DELETE FROM {model.table('total')} WHERE account = ?", (event.data.account_id,))

    async def post(self, *cents: int, account: str = "a1") -> None:
        async with self.service.transaction("t1") as tx:
            await self.accounts.append(tx, account, [Posted(account, each) for each in cents], expected="any")

    async def end(self, verb: str, account: str = "a1", tenant: str = "t1") -> bool:
        async with self.service.transaction(tenant) as tx:
            return bool(await getattr(self.accounts, verb)(tx, account))

    async def read(self) -> list[tuple[object, ...]]:
        async with self.service.transaction("t1") as tx:
            table = await self.totals.table(tx, "total")
            return list(await tx.execute(f"SELECT account, cents FROM {table} ORDER BY account"))


@pytest_asyncio.fixture
async def bank(tmp_path: Path) -> AsyncIterator[Bank]:
    bank = Bank(tmp_path)
    yield bank
    await bank.service.aclose()


async def test_an_archived_thing_reads_as_before_and_takes_nothing_until_it_is_restored(bank: Bank) -> None:
    await bank.post(1, 2, 3)
    assert await bank.end("archive")
    assert not await bank.end("archive")
    async with bank.service.transaction("t1") as tx:
        assert await bank.accounts.load(tx, "a1") == Loaded(Balance(6), 3)
        assert len(await bank.accounts.history(tx, "a1", after=1)) == 2
        for expected in ("any", "new", 3):
            with pytest.raises(StreamArchived, match=r"account 'a1' of tenant 't1' is archived: restore it"):
                await bank.accounts.append(tx, "a1", [Posted("a1", 1)], expected=expected)
    assert await bank.end("restore")
    assert not await bank.end("restore")
    await bank.post(4, 5)
    async with bank.service.transaction("t1") as tx:
        assert await bank.accounts.load(tx, "a1") == Loaded(Balance(15), 5)


@pytest.mark.parametrize("archived", [False, True])
async def test_a_deleted_thing_is_gone_for_everybody_and_refuses_every_append(bank: Bank, archived: bool) -> None:
    await bank.post(1, 2, 3)
    if archived:
        await bank.end("archive")
    assert await bank.end("delete")
    assert not await bank.end("delete")
    async with bank.service.transaction("t1") as tx:
        for reading in (bank.accounts.load, bank.accounts.history):
            with pytest.raises(StreamDeleted, match=r"was deleted at version 4: begin it again"):
                await reading(tx, "a1")
        for expected in ("any", "new", 3, 4):
            with pytest.raises(StreamDeleted):
                await bank.accounts.append(tx, "a1", [Posted("a1", 1)], expected=expected)
    with pytest.raises(StreamDeleted):
        await bank.accounts.execute("a1", lambda _: Posted("a1", 1), tenant="t1")
    for verb in ("archive", "restore"):
        with pytest.raises(StreamDeleted):
            await bank.end(verb)


async def test_what_was_deleted_begins_again_only_by_explicit_wish_and_behind_its_old_versions(bank: Bank) -> None:
    await bank.post(1, 2, 3)
    async with bank.service.transaction("t1") as tx:
        with pytest.raises(ContractError, match="was not deleted"):
            await bank.accounts.append(tx, "a1", [Posted("a1", 1)], expected="again")
    await bank.end("delete")
    async with bank.service.transaction("t1") as tx:
        assert await bank.accounts.append(tx, "a1", [Posted("a1", 7)], expected="again") == 5
    await bank.post(8)
    async with bank.service.transaction("t1") as tx:
        assert await bank.accounts.load(tx, "a1") == Loaded(Balance(15), 6)
        for after in (0, 3, 4):
            assert [event.data for event in await bank.accounts.history(tx, "a1", after=after)] == [
                Posted("a1", 7),
                Posted("a1", 8),
            ]
    assert await bank.end("delete")
    async with bank.service.transaction("t1") as tx:
        with pytest.raises(StreamDeleted, match="version 7"):
            await bank.accounts.load(tx, "a1")


async def test_what_is_deleted_and_begun_again_while_it_is_loaded_is_no_sum_of_both(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot was read, and the rows behind it follow without a gap: the last fact, and what is new."""
    await bank.post(1, 2)
    table = type(app_of(bank.service).store.streams)
    async with bank.service.transaction("t1") as tx:
        before = await app_of(bank.service).store.streams.snapshot(tx.transaction, Stream("t1", "account", "a1"))
    assert before is not None
    await bank.end("delete")
    async with bank.service.transaction("t1") as tx:
        await bank.accounts.append(tx, "a1", [Posted("a1", 7)], expected="again")

    async def read_before(self: object, tx: object, stream: Stream) -> Snapshot:
        return before

    monkeypatch.setattr(table, "snapshot", read_before)
    async with bank.service.transaction("t1") as tx:
        with pytest.raises(StreamDeleted, match="version 3"):
            await bank.accounts.decide(tx, "a1", lambda balance: [Posted("a1", balance.cents)])


async def test_a_decision_that_refuses_deletes_nothing(bank: Bank) -> None:
    await bank.post(-5)
    with pytest.raises(StillOwing):
        await bank.end("delete")
    async with bank.service.transaction("t1") as tx:
        assert await bank.accounts.load(tx, "a1") == Loaded(Balance(-5), 1)


async def test_what_never_was_and_what_is_of_another_tenant_is_not_ended(bank: Bank) -> None:
    await bank.post(1)
    for verb in ("archive", "restore", "delete"):
        assert not await bank.end(verb, "a2")
        assert not await bank.end(verb, tenant="t2")
    async with bank.service.transaction("t1") as tx:
        assert await bank.accounts.load(tx, "a1") == Loaded(Balance(1), 1)


@pytest.mark.parametrize("source", ["streams", "log"])
async def test_a_rebuild_includes_archived_streams_and_resurrects_no_deleted_one(bank: Bank, source: str) -> None:
    async with bank.service.running():
        await bank.post(1, 2)
        await bank.post(5, account="a2")
        await bank.post(6, account="a3")
        await bank.end("archive", "a2")
        await bank.end("delete", "a1")
        await drained(bank.service)
        assert await bank.read() == [("a2", 5), ("a3", 6)]
        await app_of(bank.service).projections.rebuild("totals", Plan(source="log" if source == "log" else "streams"))
        assert await bank.read() == [("a2", 5), ("a3", 6)]
        async with bank.service.transaction("t1") as tx:
            await bank.accounts.append(tx, "a1", [Posted("a1", 9)], expected="again")
        await drained(bank.service)
        assert await bank.read() == [("a1", 9), ("a2", 5), ("a3", 6)]


@pytest.mark.parametrize("verb", ["archive", "delete"])
@pytest.mark.parametrize("at", range(6))
async def test_a_rebuild_beside_which_a_stream_ends_is_as_one_before_or_after(
    bank: Bank, verb: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every page of the bulk read, of events that were fed already and of those that were not."""
    monkeypatch.setattr(bulk, "PAGE", 2)
    async with bank.service.running():
        for number in range(3):
            await bank.post(1, 2, 3, account=f"b{number}")
        await bank.post(1, 2, 3, 4)
        await drained(bank.service)
        pages = 0
        ending: asyncio.Task[bool] | None = None

        def told(_: object) -> None:
            nonlocal pages, ending
            if pages == at:
                ending = asyncio.create_task(bank.end(verb))
            pages += 1

        await app_of(bank.service).projections.rebuild("totals", told=told)
        assert ending is not None
        assert await ending
        await drained(bank.service)
        expected: list[tuple[object, ...]] = [(f"b{number}", 6) for number in range(3)]
        assert await bank.read() == ([("a1", 10), *expected] if verb == "archive" else expected)


async def test_writers_beside_deletions_find_the_stream_before_or_after_and_nothing_between(bank: Bank) -> None:
    await bank.post(1)
    refused = 0

    async def write() -> None:
        nonlocal refused
        for _ in range(10):
            try:
                await bank.accounts.execute("a1", lambda _: Posted("a1", 1), tenant="t1")
            except StreamClosed:
                refused += 1

    async def end() -> None:
        for _ in range(5):
            await bank.end("delete")
            async with bank.service.transaction("t1") as tx:
                await bank.accounts.append(tx, "a1", [Posted("a1", 0)], expected="again")

    await asyncio.gather(write(), write(), end())
    async with bank.service.transaction("t1") as tx:
        loaded = await bank.accounts.load(tx, "a1")
        events = await bank.accounts.history(tx, "a1")
    assert loaded.state.cents == sum(event.data.cents for event in events)
    assert loaded.version == 1 + 20 - refused + 10


def test_a_deletion_needs_a_last_fact_that_readers_hear(tmp_path: Path) -> None:
    bank = Service("bank")
    event = bank.event("account.posted.v1", key="account_id")(Posted)
    with pytest.raises(ConfigurationError, match=r"be annotated with the one event that it returns, one of Posted"):
        bank.aggregate("account", initial=int, evolve=lambda n, _: n, events=(event,), delete=lambda _: None)


async def test_an_aggregate_that_says_nothing_of_deletion_deletes_nothing(tmp_path: Path) -> None:
    bank = Service("bank")
    App(bank, store="sqlite://", broker="memory://?single_host=true")
    event = bank.event("account.posted.v1", key="account_id")(Posted)
    accounts: Aggregate[int, Posted] = bank.aggregate("account", initial=int, evolve=lambda n, _: n, events=(event,))
    async with bank.transaction("t1") as tx:
        with pytest.raises(ConfigurationError, match="says nothing of deletion"):
            await accounts.delete(tx, "a1")
    await bank.aclose()


async def test_a_read_model_that_would_not_hear_of_a_deletion_is_refused(tmp_path: Path) -> None:
    bank = Bank(tmp_path)
    deaf = bank.service.projection("deaf")
    deaf.on(Posted)(bank._post)
    with pytest.raises(
        ConfigurationError, match=r"'deaf': it reads events of 'account' and not bank.account.erased.v1"
    ):
        async with bank.service.running():
            raise AssertionError("it runs")
