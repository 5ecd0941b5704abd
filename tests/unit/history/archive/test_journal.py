"""The log of an archive decides, whatever the store says that went back in time, and whatever else is in the place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import ManualClock
from posthouse.errors import ArchiveDamaged, ArchiveError, ArchiveUnavailable, ConfigurationError
from posthouse.history.archive.folders import Folder
from posthouse.history.archive.journal import Journal, read_marker
from posthouse.history.archive.log import entry_name, read_manifest
from posthouse.history.archive.places import Place, check_place, open_place, prove
from posthouse.store import Store
from posthouse.stores.sqlite import SqliteStore
from tests.kit.archives import NAME, TOPICS, doubled_and_lost, member, published, until_archived


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = await empty_store(ManualClock())
    yield store
    await store.aclose()


async def empty_store(clock: ManualClock) -> Store:
    store: Store = SqliteStore(":memory:", clock=clock)
    await store.upgrade()
    return store


def journal(place: Place, store: Store, name: str = NAME) -> Journal:
    return Journal(name, place, store.archives, ManualClock(), "one")


class Liar(Folder):
    """Says that it keeps what is there, and writes over it: as object stores did."""

    def put_new(self, name: str, data: bytes) -> bool:
        (self.path / name).unlink(missing_ok=True)
        return super().put_new(name, data)


class Polite(Folder):
    """Says that something was there already, and wrote over it all the same."""

    def put_new(self, name: str, data: bytes) -> bool:
        there = (self.path / name).exists()
        (self.path / name).unlink(missing_ok=True)
        super().put_new(name, data)
        return not there


@pytest.mark.parametrize("kind", [Liar, Polite])
async def test_a_place_that_writes_over_what_is_there_is_refused_before_anything_is_written(
    kind: type[Folder], tmp_path: Path, store: Store
) -> None:
    place = kind("file:///liar", str(tmp_path))
    with pytest.raises(ArchiveError, match="does not keep an object that is there already"):
        await journal(place, store).open()
    assert list(place.names("")) == []


def test_a_folder_keeps_its_word(tmp_path: Path) -> None:
    prove(open_place(f"file://{tmp_path}/new/folder"))


async def test_a_place_that_has_another_archive_is_refused_and_stays_as_it_is(tmp_path: Path, store: Store) -> None:
    place = open_place(f"file://{tmp_path}")
    await journal(place, store).open()
    other = await empty_store(ManualClock())
    with pytest.raises(ArchiveError, match=r"has another archive, of shop\.archive: give this one a folder of its own"):
        await journal(place, other, "stock.archive").open()
    found = read_marker(place)
    assert found is not None
    assert found.name == NAME
    await other.aclose()


async def test_a_log_that_lost_its_end_is_refused(tmp_path: Path, store: Store) -> None:
    place = open_place(f"file://{tmp_path}")
    one = journal(place, store)
    await one.open()
    await one.commit("deleted", deleted=["data/none"])
    place.delete([entry_name(1)])
    with pytest.raises(ArchiveError, match="lacks entry 1 of its log"):
        await journal(place, store).open()


async def test_an_entry_that_is_none_is_damage_and_no_end_of_the_log(tmp_path: Path, store: Store) -> None:
    place = open_place(f"file://{tmp_path}")
    await journal(place, store).open()
    place.put_new(entry_name(1), b"{}")
    with pytest.raises(ArchiveDamaged, match="is no entry of the log"):
        await journal(place, store).open()


async def test_a_store_that_was_restored_from_before_reads_in_the_log_what_it_forgot(tmp_path: Path) -> None:
    clock = ManualClock()
    place, broker = open_place(f"file://{tmp_path}/archive"), MemoryBroker(clock=clock)
    store: Any = SqliteStore(tmp_path / "shop.db", clock=clock)
    await store.upgrade()
    frames = await published(broker, 6)
    await until_archived(broker, clock, member(broker, place, store.archives, clock))
    await store.aclose()
    backup = (tmp_path / "shop.db").read_bytes()
    store = SqliteStore(tmp_path / "shop.db", clock=clock)
    frames += await published(broker, 6, first=6)
    await until_archived(broker, clock, member(broker, place, store.archives, clock))
    await store.aclose()
    for suffix in ("", "-wal", "-shm"):
        (tmp_path / f"shop.db{suffix}").unlink(missing_ok=True)
    (tmp_path / "shop.db").write_bytes(backup)
    store = SqliteStore(tmp_path / "shop.db", clock=clock)
    for topic in TOPICS:
        await broker.seek(NAME, topic, position=0)
    late = member(broker, place, store.archives, clock)
    await until_archived(broker, clock, late)
    assert late.written == 0
    assert doubled_and_lost(place, frames) == ([], [])
    await store.aclose()


async def test_an_empty_store_adopts_what_another_one_archived(tmp_path: Path, store: Store) -> None:
    clock = ManualClock()
    place, broker = open_place(f"file://{tmp_path}"), MemoryBroker(clock=clock)
    frames = await published(broker, 6)
    await until_archived(broker, clock, member(broker, place, store.archives, clock))
    new, marker = await empty_store(clock), read_marker(place)
    assert marker is not None
    with pytest.raises(ArchiveError, match="posthouse archive adopt"):
        await journal(place, new).open()
    await new.archives.move(NAME, marker.id)
    for topic in TOPICS:
        await broker.seek(NAME, topic, position=0)
    heir = member(broker, place, new.archives, clock)
    await until_archived(broker, clock, heir)
    assert heir.written == 0
    assert doubled_and_lost(place, frames) == ([], [])
    await new.aclose()


async def test_events_that_the_store_forgot_are_looked_for_in_the_files(tmp_path: Path, store: Store) -> None:
    clock = ManualClock()
    place, broker = open_place(f"file://{tmp_path}"), MemoryBroker(clock=clock)
    frames = await published(broker, 6)
    await until_archived(broker, clock, member(broker, place, store.archives, clock))
    clock.advance(30 * 86_400.0)
    store.archives._clock.advance(30 * 86_400.0)  # type: ignore[attr-defined]
    while await store.archives.forget(NAME, 8 * 86_400.0, 100):
        pass
    for topic in TOPICS:
        await broker.seek(NAME, topic, position=0)
    late = member(broker, place, store.archives, clock)
    await until_archived(broker, clock, late)
    assert late.written == 0
    assert doubled_and_lost(place, frames) == ([], [])


async def test_an_event_that_is_published_again_after_the_store_forgot_it_is_no_other(tmp_path: Path) -> None:
    clock = ManualClock(1_800_000_000.0)
    store: Store = SqliteStore(":memory:", clock=clock)
    await store.upgrade()
    place, broker = open_place(f"file://{tmp_path}"), MemoryBroker(clock=clock)
    frames = await published(broker, 6)
    await until_archived(broker, clock, member(broker, place, store.archives, clock))
    clock.advance(9 * 86_400.0)
    while await store.archives.forget(NAME, 8 * 86_400.0, 100):
        pass
    verdicts = await broker.publish(frames)
    assert all(verdict.accepted for verdict in verdicts)
    frames += await published(broker, 2, first=6)
    late = member(broker, place, store.archives, clock)
    await until_archived(broker, clock, late)
    assert late.written == 4
    assert doubled_and_lost(place, frames) == ([], [])
    await store.aclose()


async def test_a_clock_that_jumped_and_went_back_doubles_nothing(tmp_path: Path) -> None:
    clock, jumped = ManualClock(1_800_000_000.0), ManualClock(1_800_000_000.0 + 9 * 86_400.0)
    store: Any = SqliteStore(":memory:", clock=clock)
    await store.upgrade()
    place, broker = open_place(f"file://{tmp_path}"), MemoryBroker(clock=clock)
    frames = await published(broker, 6)
    await until_archived(broker, clock, member(broker, place, store.archives, clock))
    store.archives._clock = jumped
    while await store.archives.forget(NAME, 8 * 86_400.0, 100):
        pass
    store.archives._clock = clock
    for topic in TOPICS:
        await broker.seek(NAME, topic, position=0)
    late = member(broker, place, store.archives, clock)
    await until_archived(broker, clock, late)
    assert late.written == 0
    assert doubled_and_lost(place, frames) == ([], [])
    await store.aclose()


async def test_a_full_disk_loses_nothing_and_is_over_when_there_is_room(tmp_path: Path, store: Store) -> None:
    clock = ManualClock()

    class Full(Folder):
        tries = 0

        def refuses(self) -> bool:
            self.tries += 1
            return self.tries in (1, 3, 6, 11, 16)  # each file, and the entry

        def put_new(self, name: str, data: bytes) -> bool:
            if name.startswith(("data/", "log/")) and self.refuses():
                raise ArchiveUnavailable(f"{name}: No space left on device")
            return super().put_new(name, data)

    place, broker = Full("file:///full", str(tmp_path)), MemoryBroker(clock=clock)
    frames = await published(broker, 6)
    await until_archived(broker, clock, member(broker, place, store.archives, clock))
    assert doubled_and_lost(place, frames) == ([], [])
    assert read_manifest(place).generation > 1


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s4://bucket", "Known: az, file, gs, s3"),
        ("/var/lib/archive", "a folder or a bucket"),
        ("file://var/lib", "three slashes"),
        ("file:///", "three slashes"),
        ("s3:///folder", "name the bucket"),
    ],
)
def test_a_url_that_names_no_place_is_refused_with_what_to_write(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        check_place(url)


def test_an_option_that_the_driver_does_not_know_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="regoin"):
        open_place("s3://bucket/folder?regoin=eu")
