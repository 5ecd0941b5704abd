"""Erasure: the key goes, everybody forgets it, the receipt is said once, and whatever is kept opens no more."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from pathlib import Path

import msgspec
import pytest

from posthouse import App, Event, RuleBroken, Saga, Turn, Tx, starts
from posthouse.contracts.boxes import ERASED
from posthouse.erasure import erase, prove, reapply_all
from posthouse.errors import BrokerError, ConfigurationError, ContractError, FrameRefused
from posthouse.events import decode_any
from posthouse.store import HeldFilter
from posthouse.trust.secrets import keyring
from posthouse.trust.secrets.keys.sqlite import SqliteKeys
from posthouse.trust.secrets.keystore import Erasure, Holder
from posthouse.watch.status import drained
from tests.kit.guests import GuestRegistered, Hotel
from tests.kit.waiting import eventually


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring, "LOOK", 0.05)


def _put_back(folder: Path, name: str, backup: str) -> None:
    for path in folder.glob(f"{name}*"):
        path.unlink()
    shutil.copy(folder / backup, folder / name)


def _read(folder: Path, name: str) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob(f"{name}*"))


async def test_a_person_is_erased_everywhere_and_it_is_proven(tmp_path: Path) -> None:
    hotel, told = Hotel(tmp_path), list[Event[object]]()

    @hotel.service.on(hotel.erased, consumer="told")
    async def tell(event: Event[object], tx: Tx) -> None:
        told.append(event)

    async with hotel.app.running():
        await hotel.register("g1", "Ada")
        await hotel.register("g2", "Bob")
        await eventually(lambda: len(hotel.heard) == 2)
        hotel.fails = True
        await hotel.register("g1", "Ada")
        await eventually(lambda: hotel.app.store.held.find(HeldFilter(state="dead")))
        await drained(hotel.service)  # its dead letter is in outbox and log too
        async with hotel.service.transaction("t1") as tx:
            tx.publish(hotel.registered(guest_id="g1", name="Ada"), after=3600.0)
        before = {one.place: one for one in await prove(hotel.app, "t1", "g1")}
        assert (before["outbox"].boxes, before["outbox"].opened) == (6, 6)
        done = await erase(hotel.service, "t1", "g1", why="asked on 3 May", by="dpo")
        assert done.proven, done
        assert {one.place: (one.boxes, one.opened, one.plain) for one in done.places if one.boxes} == {
            "outbox": (6, 0, 0),
            "held events": (2, 0, 0),
            "timers": (2, 0, 0),
            "log": (6, 0, 0),
        }
        (receipt,) = await eventually(lambda: told)
        assert receipt.data.subject == "g1"  # type: ignore[attr-defined]
        hotel.fails = False
        (held,) = await hotel.app.store.held.find(HeldFilter(state="dead"))
        await hotel.app.held.retry(held.id)
        await eventually(lambda: len(hotel.heard) == 3)
        with pytest.raises(RuleBroken, match="was erased"):
            await hotel.register("g1", "Ada is back")
        again = await erase(hotel.service, "t1", "g1", why="asked again")
        assert (again.again, again.receipt, again.number) == (True, "", done.number)
        await drained(hotel.service)
    assert hotel.heard[-1].data.name == ERASED
    assert len(told) == 1


async def test_others_keep_their_keys_and_the_same_id_of_another_tenant_too(tmp_path: Path) -> None:
    hotel = Hotel(tmp_path)
    async with hotel.app.running():
        await hotel.register("g1", "Ada", tenant="t1")
        await hotel.register("g1", "Bob", tenant="t2")
        await erase(hotel.service, "t1", "g1", why="asked")
        found = {one.place: one for one in await prove(hotel.app, "t2", "g1")}
        assert (found["outbox"].boxes, found["outbox"].opened) == (2, 2)


async def test_every_process_says_that_it_forgot(tmp_path: Path) -> None:
    hotel, other = Hotel(tmp_path), Hotel(tmp_path)
    await hotel.register("g1", "Ada")
    await other.register("g1", "Ada")
    assert other.app.opened.vault is not None
    assert other.app.opened.vault.keyring.known("t1", "g1") is not None
    done = await erase(hotel.service, "t1", "g1", why="asked")
    assert (len(done.forgot), done.silent) == (2, [])
    assert other.app.opened.vault.keyring.known("t1", "g1") is None
    await hotel.app.aclose()
    await other.app.aclose()


async def test_whoever_has_not_said_so_is_named_until_his_lease_is_over(tmp_path: Path) -> None:
    hotel = Hotel(tmp_path)
    await hotel.register("g1", "Ada")
    assert hotel.app.opened.vault is not None
    store = hotel.app.opened.vault.store
    await store.hear(Holder(id="x", name="billing (process 7)", forgot=0, age=0.0, lease=30.0))
    done = await erase(hotel.service, "t1", "g1", why="asked", within=0.2)
    assert (done.silent, done.proven) == (["billing (process 7)"], False)
    with sqlite3.connect(tmp_path / "keys.db") as keys:
        keys.execute("UPDATE posthouse_key_holder SET seen_at = seen_at - 36 WHERE id = 'x'")
    keys.close()
    assert (await erase(hotel.service, "t1", "g1", why="asked", within=0.2)).proven
    await hotel.app.aclose()


@pytest.mark.parametrize("step", ["_begin", "_forgotten", "_say", "_drop_snapshots", "prove"])
async def test_what_was_cut_short_anywhere_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """As after a kill between two steps: nothing in memory is used again."""
    hotel = Hotel(tmp_path)
    await hotel.register("g1", "Ada")

    async def killed(*arguments: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(f"posthouse.erasure.{step}", killed)
        with pytest.raises(asyncio.CancelledError):
            await erase(hotel.service, "t1", "g1", why="asked")
    await hotel.app.aclose()
    again = Hotel(tmp_path)
    done = await erase(again.service, "t1", "g1", why="asked")
    assert done.proven
    rows = await again.app.store.outbox.kept(0, 100)
    said = [event.type for event in (decode_any(row.headers, row.body) for row in rows)]
    assert said.count("hotel.subject.erased.v1") == 1
    await again.app.aclose()


async def test_a_restored_store_of_the_service_does_not_bring_anybody_back(tmp_path: Path) -> None:
    hotel = Hotel(tmp_path)
    await hotel.register("g1", "Ada")
    await hotel.app.aclose()
    for name in ("hotel.db", "log.db"):
        with sqlite3.connect(tmp_path / name) as live, sqlite3.connect(tmp_path / f"backup-{name}") as kept:
            live.backup(kept)
        live.close()
        kept.close()
    await erase(hotel.service, "t1", "g1", why="asked")
    await hotel.app.aclose()
    for name in ("hotel.db", "log.db"):
        _put_back(tmp_path, name, f"backup-{name}")
    back = Hotel(tmp_path)
    async with back.app.running():
        await eventually(lambda: back.heard)
        found = {one.place: one for one in await prove(back.app, "t1", "g1")}
    assert back.heard[0].data.name == ERASED
    assert (found["outbox"].boxes, found["outbox"].opened) == (2, 0)


async def test_nothing_is_proven_by_a_log_that_was_not_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hotel = Hotel(tmp_path)
    async with hotel.app.running():
        await hotel.register("g1", "Ada")
        await drained(hotel.service)

        async def forbidden(*arguments: object) -> None:
            raise BrokerError("no right to $JS.API.STREAM.INFO.hotel_guest_dlq")

        with monkeypatch.context() as patch:
            patch.setattr(type(hotel.app.broker), "survey", forbidden)
            done = await erase(hotel.service, "t1", "g1", why="asked")
        assert list(done.unseen) == ["log"]
        assert not done.proven
        assert (await erase(hotel.service, "t1", "g1", why="asked")).proven, "once it may look"


async def test_a_service_that_has_nothing_to_do_tells_a_restored_key_store_whom_it_forgot(tmp_path: Path) -> None:
    idle, desk = Hotel(tmp_path), Hotel(tmp_path)
    async with desk.app.running():
        await desk.register("g1", "Ada")
        await drained(desk.service)
    async with idle.app.running():
        with sqlite3.connect(tmp_path / "keys.db") as live, sqlite3.connect(tmp_path / "backup.db") as kept:
            live.backup(kept)
        live.close()
        assert (await erase(desk.service, "t1", "g1", why="asked")).proven
        await desk.app.aclose()
        assert idle.app.opened.vault is not None
        ring = idle.app.opened.vault.keyring
        await asyncio.sleep(10 * keyring.LOOK)
        with sqlite3.connect(tmp_path / "backup.db") as kept, sqlite3.connect(tmp_path / "keys.db") as live:
            kept.backup(live)
        kept.close()
        live.close()

        async def erased() -> bool:
            return bool(await ring.store.erased("t1", ["g1"]))

        await eventually(erased, "nobody asked for a key, and it is told all the same")
        assert (await ring.fetch("t1", ["g1"]))["g1"].__class__.__name__ == "Erased"


@pytest.mark.parametrize("from_log", [False, True])
async def test_a_restored_key_store_is_told_again_whom_it_forgot(tmp_path: Path, from_log: bool) -> None:
    hotel = Hotel(tmp_path)
    async with hotel.app.running():
        await hotel.register("g1", "Ada")
        await eventually(lambda: hotel.heard)
    with sqlite3.connect(tmp_path / "keys.db") as live, sqlite3.connect(tmp_path / "backup.db") as kept:
        live.backup(kept)
    live.close()
    kept.close()
    async with hotel.app.running():
        await erase(hotel.service, "t1", "g1", why="asked")
        await drained(hotel.service)
    _put_back(tmp_path, "keys.db", "backup.db")
    if from_log:
        with sqlite3.connect(tmp_path / "hotel.db") as store:
            store.execute("DELETE FROM posthouse_action")
        store.close()
    back = Hotel(tmp_path)
    if from_log:
        assert await reapply_all(back.service, log=True) == (1, 0)
    await back.app.open()
    with pytest.raises(RuleBroken, match="was erased"):
        await back.register("g1", "Ada")
    await back.app.aclose()


async def test_a_process_that_runs_notices_that_the_key_store_was_brought_back(tmp_path: Path) -> None:
    hotel = Hotel(tmp_path)
    await hotel.register("g1", "Ada")
    await hotel.register("g2", "Bob")
    await erase(hotel.service, "t1", "g1", why="asked")
    with sqlite3.connect(tmp_path / "keys.db") as keys:  # as it was before, with a key that somebody kept
        keys.execute("UPDATE posthouse_key SET erasure = NULL, erased_at = NULL, wrapped = x'00' WHERE subject = 'g1'")
    keys.close()
    assert hotel.app.opened.vault is not None
    store = hotel.app.opened.vault.store
    await eventually(lambda: store.erased("t1", ["g1"]))
    await hotel.app.aclose()


async def test_what_was_never_encrypted_is_told(tmp_path: Path) -> None:
    hotel = Hotel(tmp_path)
    plain = App(hotel.service, store=f"sqlite:///{tmp_path}/hotel.db", broker=f"embedded:///{tmp_path}/log.db")
    await hotel.register("g1", "Ada")
    await plain.aclose()
    hotel.service.hosted_by(hotel.app)
    done = await erase(hotel.service, "t1", "g1", why="asked")
    assert ({one.place: one.plain for one in done.places}["outbox"], done.proven) == (2, False)
    await hotel.app.aclose()


async def test_why_is_asked_for_and_a_receipt_too(tmp_path: Path) -> None:
    hotel = Hotel(tmp_path)
    with pytest.raises(ConfigurationError, match="say why"):
        await erase(hotel.service, "t1", "g1", why=" ")
    del hotel.service.declared.catalogue._types["hotel.subject.erased.v1"]
    with pytest.raises(ConfigurationError, match=r"GuestErased = subject_erased\(hotel\)"):
        await erase(hotel.service, "t1", "g1", why="asked")
    await hotel.app.aclose()


async def test_two_processes_make_one_key(tmp_path: Path) -> None:
    hotels = [Hotel(tmp_path) for _ in range(4)]
    await asyncio.gather(*(hotel.register("g1", "Ada") for hotel in hotels))
    rings = [hotel.app.opened.vault.keyring for hotel in hotels if hotel.app.opened.vault is not None]
    found = await prove(hotels[0].app, "t1", "g1")
    assert (found[0].boxes, found[0].opened) == (8, 8)
    assert len(rings) == 4
    for hotel in hotels:
        await hotel.app.aclose()


async def test_an_erased_key_is_not_in_the_file_any_more(tmp_path: Path) -> None:
    hotel = Hotel(tmp_path)
    await hotel.register("g1", "Ada")
    assert hotel.app.opened.vault is not None
    store = hotel.app.opened.vault.store
    wrapped = (await store.get("t1", ["g1"]))["g1"].wrapped
    assert wrapped is not None
    assert wrapped in _read(tmp_path, "keys.db")
    await store.erase(Erasure(tenant="t1", subject="g1", why="asked", by="dpo", at=1.0))
    assert wrapped not in _read(tmp_path, "keys.db")
    await hotel.app.aclose()


async def test_what_a_saga_kept_before_it_was_encrypted_is_told(tmp_path: Path) -> None:
    hotel = Hotel(tmp_path)

    @hotel.service.saga("stay", correlate="guest_id")
    class Stay(Saga):
        guest_id: str
        name: str = ""

        @starts(GuestRegistered)
        def begin(self, event: Event[GuestRegistered], turn: Turn) -> None:
            self.name = event.data.name

    before = App(hotel.service, store=f"sqlite:///{tmp_path}/hotel.db", broker=f"embedded:///{tmp_path}/log.db")
    async with before.running():
        await hotel.register("g1", "Ada")
        await hotel.register("g2", "Bob")
        await eventually(lambda: len(hotel.heard) == 2)
        await drained(hotel.service)
    app = App(hotel.service, store=before.store, broker=f"embedded:///{tmp_path}/new.db", secrets=hotel.secrets)
    async with app.running():
        done = await erase(hotel.service, "t1", "g1", why="asked")
    (sagas,) = [found for found in done.places if found.place == "sagas"]
    assert (sagas.boxes, sagas.plain) == (0, 2)
    assert not done.proven


async def test_an_erasure_that_came_after_a_restore_does_not_hide_those_that_it_lost(tmp_path: Path) -> None:
    hotel = Hotel(tmp_path)
    await hotel.register("g1", "Ada")
    await hotel.register("g2", "Bob")
    assert hotel.app.opened.vault is not None
    ring, store = hotel.app.opened.vault.keyring, hotel.app.opened.vault.store
    await erase(hotel.service, "t1", "g1", why="asked")
    with sqlite3.connect(tmp_path / "keys.db") as keys:  # as it was before, with a key that somebody kept
        keys.execute("UPDATE posthouse_key SET erasure = NULL, erased_at = NULL, wrapped = x'00' WHERE subject = 'g1'")
    keys.close()
    other = SqliteKeys(tmp_path / "keys.db")  # before this process looks again
    await other.erase(Erasure(tenant="t1", subject="g2", why="asked", by="x", at=1.0))
    await other.aclose()
    await ring.look()
    assert ring.known("t1", "g2") is None
    await eventually(lambda: store.erased("t1", ["g1"]))
    await hotel.app.aclose()


async def test_a_process_that_slept_through_an_erasure_does_not_use_the_key_that_it_had_just_read(
    tmp_path: Path,
) -> None:
    writer, reader = Hotel(tmp_path), Hotel(tmp_path, lease=1.0)
    await writer.register("g1", "Ada")
    (row,) = [row for row in await writer.app.store.outbox.kept(0, 10) if row.tenant == "t1"]
    await reader.app.open()
    vault = reader.app.opened.vault
    assert vault is not None
    master, reads, wakes = vault.keyring.master, asyncio.Event(), asyncio.Event()

    class Sleeps:
        place = master.place
        begin, wrap, aclose = master.begin, master.wrap, master.aclose

        async def unwrap(self, tenant: str, subject: str, wrapped: bytes) -> bytes:
            reads.set()
            await wakes.wait()
            return await master.unwrap(tenant, subject, wrapped)

    vault.keyring.master = Sleeps()
    decrypting = asyncio.create_task(vault.decrypt(decode_any(row.headers, row.body)))
    await reads.wait()
    looking = vault.keyring._looking
    assert looking is not None
    looking.cancel()
    with sqlite3.connect(tmp_path / "keys.db") as keys:
        keys.execute("UPDATE posthouse_key_holder SET seen_at = seen_at - 3600 WHERE name LIKE 'hotel%'")
    keys.close()
    assert (await erase(writer.service, "t1", "g1", why="asked", within=5.0)).proven
    vault.keyring._heard -= 3600.0
    wakes.set()
    assert ERASED.encode() in (await decrypting).data
    await writer.app.aclose()
    await reader.app.aclose()


async def test_whoever_has_a_key_can_be_erased_however_long_the_id(tmp_path: Path) -> None:
    hotel = Hotel(tmp_path)
    async with hotel.app.running():
        longest = "ü" * 128
        await hotel.register(longest, "Ada")
        done = await erase(hotel.service, "t1", longest, why="asked", within=5)
        assert done.receipt
        for wrong in (longest + "g", "g" * 1_000):
            with pytest.raises(ContractError, match=r"'guest_id'.* the longest id of a person has 256"):
                await hotel.register(wrong, "Bob")
            with pytest.raises(ConfigurationError, match="the longest id of a person has 256"):
                await erase(hotel.service, "t1", wrong, why="asked")


async def test_an_id_that_no_key_store_takes_is_refused_on_its_way_in(tmp_path: Path) -> None:
    hotel = Hotel(tmp_path)
    await hotel.app.open()
    vault = hotel.app.opened.vault
    assert vault is not None
    box = {"$secret": 1, "of": "g" * 8_000, "kind": "contact", "gap": "text", "box": "AAAA"}
    data = msgspec.json.encode({"guest_id": "g1", "email": box})
    event = Event(id="e1", type="hotel.guest.registered.v1", source="/x", time="", tenant="t1", data=data)
    await vault.gather([event])
    for step in (vault.decrypt, vault.carry):
        with pytest.raises(FrameRefused, match=r"unreadable: .* 8,000 bytes"):
            await step(event)
    assert (await vault.reveal(hotel.app.store, event)).unreadable == ["email"]
    await hotel.app.aclose()
