"""A store of objects that refuses a put although nothing is there (409) costs nobody a row, a bundle, a tile or an archive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from posthouse.cli.catalog.bundling import publish
from posthouse.clock import ManualClock
from posthouse.contracts.release import LATEST, hash_of, pointer_in
from posthouse.errors import ArchiveUnavailable, AuditUnavailable, ConfigurationError
from posthouse.history.archive.journal import MARKER, Journal, read_marker
from posthouse.history.archive.places import open_place as open_archive
from posthouse.history.archive.places import prove
from posthouse.history.audit.log import AuditLog, seal
from posthouse.history.audit.place import open_place
from posthouse.history.sweep import Sweep
from posthouse.stores.sqlite import SqliteStore
from posthouse.testing.store_contract.samples import entry
from posthouse.testing.store_contract.steps import claim
from tests.kit.audit import SIGNER, START, events
from tests.kit.servers.conflicting import ConflictingS3, conflicting_s3

ALWAYS = 1_000
DAY = 86_400.0


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[ConflictingS3]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with conflicting_s3() as server:
        yield server


def files(folder: Path) -> list[Path]:
    return list(folder.glob("inbox/*/*/*/*.jsonl"))


async def test_rows_leave_the_store_only_once_their_file_is_in_the_bucket(s3: ConflictingS3) -> None:
    store = SqliteStore(":memory:", clock=ManualClock())
    await store.upgrade()
    for number in range(5):
        await claim(store, entry(None, event_id=f"e{number}"))
    sweep = Sweep(store, -1.0, None, open_place(s3.url))
    s3.conflicts["inbox/"] = ALWAYS
    with pytest.raises(ArchiveUnavailable, match=r"refused \d times as if it were there"):
        await sweep.inbox()
    assert len(await store.retention.old_seen(-1.0, 100)) == 5
    s3.conflicts["inbox/"] = 2
    assert (await sweep.inbox())[0] == 5
    [file] = s3.objects.values()
    assert len(file.splitlines()) == 5
    await store.aclose()


async def test_rows_stay_where_the_file_of_their_name_holds_something_else(tmp_path: Path) -> None:
    store = SqliteStore(":memory:", clock=ManualClock())
    await store.upgrade()
    sweep = Sweep(store, -1.0, None, open_place(str(tmp_path)))
    await claim(store, entry(None))
    rows = await store.retention.old_seen(-1.0, 100)
    await sweep.inbox()
    [file] = files(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(b"")
    with pytest.raises(ArchiveUnavailable, match="does not hold the rows that it is named after"):
        await sweep._write("inbox", rows[0].received_at, rows)
    file.write_bytes(whole)
    await sweep._write("inbox", rows[0].received_at, rows)
    await store.aclose()


def test_latest_never_leads_to_a_bundle_that_is_not_there(s3: ConflictingS3) -> None:
    place = open_place(s3.url)
    s3.conflicts["sha256-"] = ALWAYS
    with pytest.raises(AuditUnavailable):
        publish(place, b"{}")
    assert s3.objects == {}
    s3.conflicts["sha256-"] = 1
    assert publish(place, b"{}")
    assert f"{pointer_in(s3.objects[LATEST]).bundle}.json" in s3.objects
    s3.objects[f"{hash_of(b'[]')}.json"] = b"spoilt"
    with pytest.raises(ConfigurationError, match="is not the bundle that it is named after"):
        publish(place, b"[]")


def test_a_put_that_is_refused_for_a_moment_is_no_damage_to_an_audit_log(s3: ConflictingS3, tmp_path: Path) -> None:
    log, second = AuditLog(open_place(str(tmp_path))), open_place(s3.url)
    log.append(events(0, 300))
    s3.conflicts.update({"tile/0": 1, "tile/entries": 1, "checkpoints/": 1})
    signed = seal(log.place, None, SIGNER, START)
    assert signed.checkpoint.size == 300
    for path in ("tile/0/000", "tile/entries/000", signed.path):
        data = log.place.get(path)
        assert data is not None
        assert second.put(path, data)
        assert second.get(path) == data
        assert second.put(path, data), "the same bytes are there: whoever put them"
        assert not second.put(path, b"other")


async def test_two_archives_never_share_a_bucket_because_a_marker_was_refused(s3: ConflictingS3) -> None:
    clock = ManualClock()
    place = open_archive(s3.url.removesuffix("&allow_http=true"))
    journals = []
    for name in ("a", "b"):
        store = SqliteStore(":memory:", clock=clock)
        journals.append((Journal(f"{name}.event-archive", place, store.archives, clock, name), store))
    (first, _), (second, _) = journals
    s3.conflicts[MARKER] = ALWAYS
    with pytest.raises(ArchiveUnavailable):
        first._mark("of a")
    assert s3.objects == {}
    s3.conflicts[MARKER] = 1
    assert first._mark("of a").id == "of a"
    assert second._mark("of b").id == "of a"
    found = read_marker(place)
    assert found is not None
    assert found.id == "of a"
    for _, store in journals:
        await store.aclose()


def test_a_store_whose_first_answer_was_lost_keeps_its_word_all_the_same(s3: ConflictingS3) -> None:
    s3.lost["probe/"] = 1
    prove(open_archive(s3.url.removesuffix("&allow_http=true")))
    assert s3.objects == {}
