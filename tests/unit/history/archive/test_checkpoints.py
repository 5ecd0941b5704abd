"""A checkpoint saves reading, and the log decides: readers believe none that it does not confirm, and verifying compares all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from posthouse.clock import ManualClock
from posthouse.errors import ArchiveDamaged
from posthouse.history.archive.files import File
from posthouse.history.archive.journal import Journal
from posthouse.history.archive.log import CHECKPOINTS, EVERY, entry_name, read_manifest
from posthouse.history.archive.places import Place, open_place
from posthouse.history.archive.verifying import verify
from posthouse.stores.sqlite import SqliteStore
from tests.kit.archives import NAME

ENTRIES = EVERY + 4


def file(number: int) -> File:
    return File(
        name=f"data/hot/shop/2027-01-01/{number}.parquet", plan=f"{number}", retention="hot", topic="shop", day="2027-01-01",
        rows=1, bytes=1, sha256="", first_at=0.0, last_at=0.0, partitions={0: (number, number, 1)},
    )  # fmt: skip


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """An archive whose log is long enough for a checkpoint; of its files only the log matters here."""
    clock = ManualClock()
    store = SqliteStore(":memory:", clock=clock)
    await store.upgrade()
    place = open_place(f"file://{tmp_path}/archive")
    journal = Journal(NAME, place, store.archives, clock, "one")
    await journal.open()
    for number in range(1, ENTRIES + 1):
        await store.archives.plan(NAME, f"{number}", "one", [], [], 30.0)
        await journal.commit("written", plan=f"{number}", add=[file(number)])
    yield place
    await store.aclose()


def path(place: Place, number: int = EVERY) -> Path:
    return Path(place.url.removeprefix("file://")) / f"{CHECKPOINTS}{number:020d}.json"


def told(place: Place, known: int = 0) -> list[tuple[str, str]]:
    return [
        (found.kind, found.name) for found in verify(place, known=known).findings if found.kind in ("log", "checkpoint")
    ]


def test_a_reader_begins_at_a_checkpoint_that_the_log_confirms(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    get = type(place).get

    def noted(self: Place, name: str) -> bytes | None:
        read.append(name)
        return get(self, name)

    monkeypatch.setattr(type(place), "get", noted)
    assert len(read_manifest(place).files) == ENTRIES
    assert len(read) < 10
    assert told(place) == []


def test_a_checkpoint_that_was_changed_is_not_believed(place: Place) -> None:
    spoilt = msgspec.json.decode(path(place).read_bytes())
    path(place).write_bytes(msgspec.json.encode(spoilt | {"files": spoilt["files"][:3]}))
    assert len(read_manifest(place).files) == ENTRIES
    assert ("checkpoint", f"{CHECKPOINTS}{EVERY:020d}.json") in told(place)


@pytest.mark.parametrize("said", [99, 10**17])
def test_a_checkpoint_of_another_number_than_its_name_is_not_believed(place: Place, said: int) -> None:
    foreign = path(place, 10**20 - 1)
    foreign.write_bytes(b'{"generation":%d,"files":[],"gone":{}}' % said)
    assert len(read_manifest(place).files) == ENTRIES
    assert ("checkpoint", f"{CHECKPOINTS}{foreign.name}") in told(place)


def test_a_checkpoint_of_an_entry_that_the_log_does_not_have_stops_readers(place: Place) -> None:
    path(place, 500).write_bytes(b'{"generation":500,"files":[],"gone":{}}')
    with pytest.raises(ArchiveDamaged, match="the log lost its end"):
        read_manifest(place)
    assert ("log", entry_name(ENTRIES + 1)) in told(place)


def test_a_log_that_was_cut_is_found_out_by_its_checkpoint_and_by_the_store(place: Place) -> None:
    assert told(place, known=ENTRIES) == []
    place.delete([entry_name(ENTRIES)])
    assert ("log", entry_name(ENTRIES)) in told(place, known=ENTRIES)
    place.delete([entry_name(number) for number in range(60, ENTRIES)])
    assert ("log", entry_name(60)) in told(place)
    with pytest.raises(ArchiveDamaged, match="the log lost its end"):
        read_manifest(place)


def test_an_entry_before_a_checkpoint_that_was_changed_is_found_out_by_its_hash(place: Place) -> None:
    entry = path(place).parent.parent / entry_name(7)
    entry.write_bytes(entry.read_bytes().replace(b'"rows":1', b'"rows":2'))
    assert ("log", entry_name(EVERY)) in told(place)


def test_an_entry_that_is_cut_short_is_named_and_what_is_behind_it_looked_at(place: Place) -> None:
    entry = path(place).parent.parent / entry_name(7)
    entry.write_bytes(entry.read_bytes()[:20])
    found = verify(place)
    assert found.generation == ENTRIES
    assert [finding.name for finding in found.findings if finding.kind == "log"] == [entry_name(7)]
