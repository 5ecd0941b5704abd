"""Secrets in an App: what is stored and sent is encrypted, and who may sees it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from posthouse import App, Payload, Personal, RuleBroken, Seam
from posthouse.errors import ConfigurationError, SecretsUnavailable
from posthouse.events import decode_any
from posthouse.receiving.editing import check_edit, with_fields
from posthouse.store import HeldFilter
from posthouse.trust.secrets import WITHHELD, Secrets
from posthouse.trust.secrets.keys.sqlite import SqliteKeys
from posthouse.trust.secrets.keystore import Erasure, StoredKey
from posthouse.watch.status import drained
from tests.kit.guests import Hotel
from tests.kit.waiting import eventually


def everything_in(folder: Path, *files: str) -> bytes:
    return b"".join(path.read_bytes() for name in files for path in folder.glob(f"{name}*"))


def names_in(folder: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in folder.glob(pattern))


async def test_names_are_in_no_file_and_handlers_see_them(tmp_path: Path) -> None:
    hotel = Hotel(tmp_path)
    async with hotel.app.running():
        await hotel.register("g1", "Ada-Lovelace", born=1815)
        await eventually(lambda: hotel.heard)
        await drained(hotel.service)
    assert (hotel.heard[0].data.name, hotel.heard[0].data.born) == ("Ada-Lovelace", 1815)
    stored = everything_in(tmp_path, "hotel.db", "log.db", "keys.db")
    assert b"g1" in stored
    assert b"Ada-Lovelace" not in stored


async def test_a_service_without_the_right_sees_placeholders(tmp_path: Path) -> None:
    hotel = Hotel(tmp_path, reads=["contact"])
    async with hotel.app.running():
        await hotel.register("g1", "Ada", email="ada@x.org", born=1815)
        await eventually(lambda: hotel.heard)
    seen = hotel.heard[0].data
    assert (seen.name, seen.email, seen.born, seen.room) == (WITHHELD, "ada@x.org", None, "12")


async def test_the_same_person_of_two_tenants_has_two_keys(tmp_path: Path) -> None:
    hotel = Hotel(tmp_path)
    async with hotel.app.running():
        await hotel.register("g1", "Ada", tenant="t1")
        await hotel.register("g1", "Bob", tenant="t2")
        await eventually(lambda: len(hotel.heard) == 2)
        assert hotel.app.opened.vault is not None
        store = hotel.app.opened.vault.store
        one, two = (await store.get("t1", ["g1"]))["g1"], (await store.get("t2", ["g1"]))["g1"]
    assert one.wrapped != two.wrapped


async def test_a_producer_whose_key_store_is_away_is_told_before_the_commit(tmp_path: Path) -> None:
    hotel = Hotel(tmp_path, patience=0.3)
    await hotel.app.open()
    await hotel.register("g1", "Ada")
    keys = sqlite3.connect(tmp_path / "keys.db", isolation_level=None)
    keys.execute("BEGIN EXCLUSIVE")
    await hotel.register("g1", "Ada again")  # its key is in memory
    with pytest.raises(SecretsUnavailable, match="key store"):
        await hotel.register("g2", "Bob")
    keys.execute("ROLLBACK")
    keys.close()
    await hotel.register("g2", "Bob")
    assert sum((await hotel.app.store.counts()).committed.values()) == 3
    await hotel.app.aclose()


async def test_a_consumer_whose_key_store_is_away_waits_and_loses_nothing(tmp_path: Path) -> None:
    writer, reader = Hotel(tmp_path), Hotel(tmp_path, patience=0.2)
    await writer.register("g1", "Ada")
    await writer.app.aclose()
    keys = sqlite3.connect(tmp_path / "keys.db", isolation_level=None)
    keys.execute("BEGIN EXCLUSIVE")
    async with reader.app.running():
        (waits,) = await eventually(lambda: reader.app.store.held.find(HeldFilter(state="retrying")))
        await eventually(
            lambda: reader.app.store.held.find(HeldFilter()), right=lambda rows: rows[0].turn > waits.turn + 2
        )
        assert reader.heard == []
        keys.execute("ROLLBACK")
        await eventually(lambda: reader.heard)
        await drained(reader.service)
        assert await reader.app.store.held.find(HeldFilter()) == []
    keys.close()
    assert [event.data.name for event in reader.heard] == ["Ada"]


async def test_the_keys_of_many_are_asked_for_once_and_again_for_whoever_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hotel = Hotel(tmp_path)
    await hotel.app.open()
    for number in range(20):
        await hotel.register(f"g{number}", f"Guest {number}", tenant=f"t{number % 2}")
    rows = await hotel.app.store.outbox.kept(0, 100)
    events = [decode_any(row.headers, row.body) for row in rows]
    vault = hotel.app.opened.vault
    assert vault is not None
    store, asked = vault.store, list[tuple[str, int]]()
    get = store.get

    async def noting(tenant: str, subjects: Collection[str]) -> Mapping[str, StoredKey]:
        asked.append((tenant, len(subjects)))
        return await get(tenant, subjects)

    monkeypatch.setattr(store, "get", noting)
    vault.keyring.forget()
    await vault.gather(events[:10])
    await vault.gather(events[:12])
    assert sorted(asked) == [("t0", 1), ("t0", 5), ("t1", 1), ("t1", 5)]
    names = [msgspec.json.decode((await vault.decrypt(event)).data)["name"] for event in events[:12]]
    assert (names, len(asked)) == ([f"Guest {number}" for number in range(12)], 4)
    await hotel.app.aclose()


async def test_nothing_is_said_about_somebody_who_was_erased(tmp_path: Path) -> None:
    hotel = Hotel(tmp_path)
    await hotel.register("g1", "Ada")
    vault = hotel.app.opened.vault
    assert vault is not None
    await vault.store.erase(Erasure(tenant="t1", subject="g1", why="asked", by="dpo", at=1.0))
    await vault.keyring.look()
    with pytest.raises(RuleBroken, match="was erased"):
        await hotel.register("g1", "Ada")
    await hotel.app.aclose()


async def test_an_edit_seals_what_it_changes_and_keeps_what_it_does_not(tmp_path: Path) -> None:
    hotel = Hotel(tmp_path)
    hotel.fails = True
    async with hotel.app.running():
        await hotel.register("g1", "Ada-Lovelace", email="ada@x.org")
        (held,) = await eventually(lambda: hotel.app.store.held.find(HeldFilter(state="dead")))
        hotel.fails = False
        event = decode_any(held.headers, held.body)
        catalogue = hotel.service.declared.catalogue
        data = with_fields(catalogue, event, {"name": "Grace-Hopper", "room": "13"})
        await hotel.app.held.edit(held.id, data, lambda _, new: check_edit("hotel", catalogue, event, new))
        await eventually(lambda: hotel.heard)
        await drained(hotel.service)
    seen = hotel.heard[0].data
    assert (seen.name, seen.email, seen.room) == ("Grace-Hopper", "ada@x.org", "13")
    assert b"Grace-Hopper" not in everything_in(tmp_path, "hotel.db", "log.db")


def test_two_steps_for_one_place_are_refused(tmp_path: Path) -> None:
    async def own(tx: object, events: list[object]) -> list[object]:
        return events

    hotel = Hotel(tmp_path)
    with pytest.raises(ConfigurationError, match="two steps for one place"):
        App(hotel.service, seam=Seam(encrypt=own), secrets=Secrets())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"keys": "redis://x"}, "names no key store. Known: postgres, postgresql, sqlite."),
        ({"master": "awskms:alias/x"}, "names no master key. Did you mean 'aws-kms'?"),
        ({"master": "master.key"}, "names no master key. Write file:master.key"),
    ],
)
def test_what_names_nothing_is_told(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        Secrets(**options)  # type: ignore[arg-type]  # what it refuses
    assert words in str(told.value)


class NoteTaken(Payload):
    guest_id: str
    free: dict[str, dict[str, str | int]]


@pytest.mark.parametrize("like", [{"$secret": 0, "of": "g1"}, {"$secret": 1, "of": "g1", "box": "AAAA"}])
async def test_what_only_looks_encrypted_is_refused_before_the_commit(
    tmp_path: Path, like: dict[str, str | int]
) -> None:
    hotel = Hotel(tmp_path)
    hotel.service.event("note.taken.v1", key="guest_id")(NoteTaken)
    async with hotel.app.running():
        with pytest.raises(RuleBroken, match=r"'free\.a' looks like an encrypted value"):
            async with hotel.service.transaction("t1") as tx:
                tx.publish(NoteTaken(guest_id="g1", free={"a": like}))


class MailRequested(Payload):
    to: str
    guest_id: str
    words: Annotated[str, Personal("identity", of="guest_id")]
    line: str = ""


async def test_a_saga_says_somebodys_secret_to_somebody_else(tmp_path: Path) -> None:
    hotel = Hotel(tmp_path)
    hotel.service.event("mail.requested.v1", key="to")(MailRequested)
    async with hotel.app.running():
        vault = hotel.app.opened.vault
        assert vault is not None
        await hotel.register("g1", "Ada")
        (row,) = [row for row in await hotel.app.store.outbox.kept(0, 10) if row.tenant == "t1"]
        held = msgspec.json.decode((await vault.carry(decode_any(row.headers, row.body))).data)
        vault.keyring.forget()
        async with hotel.service.transaction("t1") as tx:
            tx.publish(MailRequested(to="g2", guest_id="g1", words=held["name"]))
        row = (await hotel.app.store.outbox.kept(0, 10))[-1]
        said = decode_any(row.headers, row.body)
        assert msgspec.json.decode(said.data)["words"]["of"] == "g1"
        assert msgspec.json.decode((await vault.decrypt(said)).data)["words"] == "Ada"
        with pytest.raises(RuleBroken, match="carried"):
            async with hotel.service.transaction("t1") as tx:
                tx.publish(MailRequested(to="g2", guest_id="g1", words="", line=held["name"]))


class Registered(Payload):
    guest_id: str
    name: str
    room: str = ""


class Marked(Payload):
    guest_id: str
    name: Annotated[str, Personal("identity")]


@pytest.mark.parametrize("older", [Registered, Marked])
async def test_an_older_version_does_not_say_openly_what_is_personal_in_the_newer(
    tmp_path: Path, older: type[Payload]
) -> None:
    hotel = Hotel(tmp_path)
    first = hotel.service.event("guest.seen.v1", key="guest_id", about="guest_id" if older is Marked else "")(older)

    class Newer(Marked):
        pass

    newer = hotel.service.event("guest.seen.v2", key="guest_id", about="guest_id")(Newer)
    hotel.service.downcast(newer, to=first)(lambda fact: first(guest_id=fact.guest_id, name=fact.name))
    if older is Marked:
        async with hotel.app.running():
            return
    with pytest.raises(ConfigurationError, match=r"seen\.v1: 'name' is personal in .*seen\.v2 and not here"):
        async with hotel.app.running():
            pass


async def test_a_key_store_that_was_replaced_by_another_file_is_used_at_once(tmp_path: Path) -> None:
    running, other = SqliteKeys(tmp_path / "keys.db"), SqliteKeys(tmp_path / "backup.db")
    for keys in (running, other):
        await keys.upgrade()
    await running.add("t1", {"ada": b"1"})
    await other.add("t1", {"ada": b"2"})
    await other.aclose()
    for beside in ("-wal", "-shm"):
        (tmp_path / f"keys.db{beside}").unlink()
    os.replace(tmp_path / "backup.db", tmp_path / "keys.db")
    assert (await running.get("t1", ["ada"]))["ada"].wrapped == b"2"
    await running.erase(Erasure(tenant="t1", subject="ada", why="asked", by="me", at=1.0))
    await running.aclose()
    again = SqliteKeys(tmp_path / "keys.db")
    assert (await again.get("t1", ["ada"]))["ada"].wrapped is None
    await again.aclose()


@pytest.mark.parametrize("missing", ["master.key", "keys.db", "master.key and keys.db", "half of the master"])
async def test_what_was_lost_or_is_not_mounted_is_waited_for_and_never_made_anew(tmp_path: Path, missing: str) -> None:
    first = Hotel(tmp_path)
    await first.register("g1", "Ada")
    await first.app.aclose()
    away = tmp_path / "away"
    away.mkdir()
    for name in ("master.key", "keys.db"):
        if name in missing:
            (tmp_path / name).rename(away / name)
    if missing == "half of the master":
        shutil.copy(tmp_path / "master.key", away)
        (tmp_path / "master.key").write_bytes(b"")
    before = names_in(tmp_path, "*.key")
    hotel = Hotel(tmp_path)
    async with hotel.app.running():
        (waits,) = await eventually(lambda: hotel.app.store.held.find(HeldFilter(state="retrying")))
        await eventually(
            lambda: hotel.app.store.held.find(HeldFilter()), right=lambda rows: rows[0].turn > waits.turn + 1
        )
        with pytest.raises(SecretsUnavailable, match=r"(key store|master key) .*mount it where it was"):
            await hotel.register("g2", "Bob")
        (held,) = await hotel.app.store.held.find(HeldFilter())
        assert (held.state, held.attempts, hotel.heard) == ("retrying", 0, [])
        assert names_in(tmp_path, "*.key") == before
        shutil.copytree(away, tmp_path, dirs_exist_ok=True)
        await hotel.register("g1", "Ada again")
        await eventually(lambda: len(hotel.heard) == 2)
        await drained(hotel.service)
    assert [event.data.name for event in hotel.heard] == ["Ada", "Ada again"]


async def test_a_key_store_that_is_lost_is_made_anew_by_whoever_says_so(tmp_path: Path) -> None:
    first = Hotel(tmp_path)
    await first.register("g1", "Ada")
    await first.app.aclose()
    for left in names_in(tmp_path, "keys.db*"):
        (tmp_path / left).unlink()
    hotel = Hotel(tmp_path)
    await hotel.app.open()
    with pytest.raises(SecretsUnavailable, match="posthouse subject upgrade"):
        await hotel.register("g2", "Bob")
    assert hotel.app.opened.vault is not None
    assert await hotel.app.opened.vault.store.upgrade()
    await hotel.register("g2", "Bob")
    await hotel.app.aclose()
