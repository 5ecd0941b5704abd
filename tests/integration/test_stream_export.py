"""A stream is in a file before it is deleted, beside writers: each event that was committed, once, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from posthouse import App, Payload, Service
from posthouse.errors import ConfigurationError, StreamDeleted
from posthouse.processes import Aggregate
from posthouse.processes.stream.exporting import Exported, events_in, export_stream, read_export
from posthouse.store.streams import Stream
from tests.kit.waiting import eventually


class Posted(Payload):
    account_id: str
    cents: int


class Erased(Payload):
    account_id: str


class Balance(Payload):
    cents: int = 0


class Died(Exception):
    """The process ended here."""


class Bank:
    def __init__(self, store: str, folder: Path) -> None:
        self.service = Service("bank")
        self.app = App(self.service, store=store, broker=f"embedded:///{folder}/log.db?single_host=true")
        self.service.event("account.posted.v1", key="account_id")(Posted)
        self.service.event("account.erased.v1", key="account_id")(Erased)
        self.accounts: Aggregate[Balance, Posted | Erased] = self.service.aggregate(
            "account",
            initial=Balance,
            evolve=self._evolve,
            events=(Posted, Erased),
            snapshot_every=10,
            delete=self._erase,
        )

    def _evolve(self, balance: Balance, event: Posted | Erased) -> Balance:
        return Balance(balance.cents + event.cents) if isinstance(event, Posted) else Balance()

    def _erase(self, balance: Balance) -> Erased:
        return Erased("a1")

    async def post(self, cents: int) -> None:
        await self.accounts.execute("a1", lambda _: Posted("a1", cents), tenant="t1")

    async def delete(self, path: Path, *, dies: bool = False) -> Exported:
        stream, streams = Stream("t1", "account", "a1"), self.app.store.streams
        async with self.service.transaction(tenant="t1") as tx:
            head = await streams.head(tx.transaction, stream, hold=True)
            assert head is not None
            found = await export_stream(self.app.store, tx.transaction, stream, head, path)
            assert await self.accounts.delete(tx, "a1")
            if dies:
                raise Died
            return found


@pytest.fixture(params=["sqlite", "postgres"])
async def bank(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bank]:
    async with _store(request, tmp_path) as url:
        made = Bank(url, tmp_path)
        await made.app.store.upgrade()
        yield made
        await made.app.aclose()


@asynccontextmanager
async def _store(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{folder}/bank.db"
        return
    yield request.getfixturevalue("postgres_url")


async def test_what_is_deleted_is_what_is_in_the_file_however_many_write_beside_it(bank: Bank, tmp_path: Path) -> None:
    committed: list[int] = []

    async def write(first: int) -> None:
        for cents in range(first, first + 1000):
            try:
                await bank.post(cents)
            except StreamDeleted:
                return
            committed.append(cents)

    writers = [asyncio.create_task(write(number * 1000)) for number in range(4)]
    await eventually(lambda: len(committed) >= 25)
    file = tmp_path / "a1.jsonl"
    found = await bank.delete(file)
    await asyncio.gather(*writers)

    said = [msgspec.json.decode(event.body)["data"]["cents"] for event in events_in(file)]
    assert sorted(said) == sorted(committed), "each that was committed, once, and no other"
    assert [event.version for event in events_in(file)] == list(range(1, len(committed) + 1))
    assert read_export(file) == found
    stream, streams = Stream("t1", "account", "a1"), bank.app.store.streams
    async with bank.service.transaction(tenant="t1") as tx:
        head = await streams.head(tx.transaction, stream)
        assert head is not None
        assert (head.state, head.version) == ("deleted", len(committed) + 1)
        assert await streams.snapshot(tx.transaction, stream) is None
        assert [row.type for row in await streams.read(tx.transaction, stream)] == ["bank.account.erased.v1"]
        await bank.accounts.append(tx, "a1", [Posted("a1", 1)], expected="again")
    async with bank.service.transaction(tenant="t1") as tx:
        loaded = await bank.accounts.load(tx, "a1")
        assert (loaded.state, loaded.version) == (Balance(1), len(committed) + 2), "no version is given twice"


async def test_whoever_dies_between_the_file_and_the_commit_has_deleted_nothing_and_begins_again(
    bank: Bank, tmp_path: Path
) -> None:
    for cents in range(3):
        await bank.post(cents)
    file = tmp_path / "a1.jsonl"
    with pytest.raises(Died):
        await bank.delete(file, dies=True)
    assert read_export(file).events == 3
    async with bank.service.transaction(tenant="t1") as tx:
        assert (await bank.accounts.load(tx, "a1")).version == 3
    assert (await bank.delete(file)).events == 3, "the same file again is as good"


async def test_a_file_that_is_there_and_says_something_else_keeps_the_stream(bank: Bank, tmp_path: Path) -> None:
    await bank.post(1)
    file = tmp_path / "a1.jsonl"
    file.write_text("my notes")
    with pytest.raises(ConfigurationError, match="is no export of a stream, or is damaged"):
        await bank.delete(file)
    file.unlink()
    await bank.delete(tmp_path / "kept.jsonl")
    whole = (tmp_path / "kept.jsonl").read_bytes()
    for damaged, words in (
        (whole[:-10], "is no export|is not whole"),
        (b"".join(whole.splitlines(keepends=True)[:-1]), "its last line is missing"),
        (whole.replace(b'"version":1,"event_id"', b'"version":7,"event_id"'), "was changed"),
        (whole + b"more\n", "was changed"),
        (b"", "is no export"),
    ):
        file.write_bytes(damaged)
        with pytest.raises(ConfigurationError, match=words):
            read_export(file)
