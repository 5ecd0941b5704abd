"""A log takes every event once, whatever crashes and whoever else appends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from posthouse.errors import AuditDamaged, AuditUnavailable
from posthouse.history.audit.batches import (
    EVENTS,
    BatchError,
    batch_path,
    id_of,
    read_batch,
    read_bundle,
    read_travelled,
    travelled,
)
from posthouse.history.audit.checkpoints import newest
from posthouse.history.audit.log import AuditLog, checkpoint, copy, seal
from posthouse.history.audit.place import Place
from posthouse.history.audit.places.folder import Folder
from posthouse.history.audit.verify import verify
from tests.kit.audit import DAY, KEY, SIGNER, START, Spoilable, events, frame


class Crashed(Exception):
    """The process is gone."""


class Mortal:
    """A place whose process dies at its n-th write, before it or just after."""

    def __init__(self, place: Place, left: int, *, after: bool) -> None:
        self.name = place.name
        self._place = place
        self._left = left
        self._lock = threading.Lock()
        self._after = after

    def get(self, path: str) -> bytes | None:
        return self._place.get(path)

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        return self._place.list(prefix, after)

    def put(self, path: str, data: bytes) -> bool:
        return self._dying(lambda: self._place.put(path, data))

    def replace(self, path: str, data: bytes, expected: bytes | None) -> bool:
        return self._dying(lambda: self._place.replace(path, data, expected))

    def _dying(self, write: Callable[[], bool]) -> bool:
        with self._lock:  # several threads write
            self._left -= 1
            left = self._left
            done = write() if left > 0 or (left == 0 and self._after) else False
        if left <= 0:
            raise Crashed
        return done


def _logged(place: Place) -> list[str]:
    paths = list(place.list(EVENTS))
    return [id_of(event) for path in paths for event in read_batch(place.get(path) or b"").events]


def _day(place: Place, second: Place, day: int) -> None:
    """What a process does in a day: what the broker has not been acknowledged comes again."""
    log = AuditLog(place)
    for start in range(day * 300, day * 300 + 300, 150):
        log.append(events(start, start + 150))
    seal(place, second, SIGNER, START + day * DAY)


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_write_loses_nothing_and_doubles_nothing(tmp_path: Path, after: bool) -> None:
    crashes = 0
    while True:
        place, second = Folder(tmp_path / f"{crashes}" / "log"), Folder(tmp_path / f"{crashes}" / "second")
        _day(place, second, 0)
        try:
            _day(Mortal(place, crashes + 1, after=after), second, 1)
        except Crashed:
            crashes += 1
        else:
            break
        _day(place, second, 1)
        _day(place, second, 2)
        assert _logged(place) == [f"e{number}" for number in range(900)]
        report = verify(place, [KEY], second)
        assert (report.findings, report.signed) == ([], 900)
    assert crashes >= 9


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_while_copying_is_made_up_for(tmp_path: Path, after: bool) -> None:
    crashes = 0
    while True:
        place, second = Folder(tmp_path / f"{crashes}" / "log"), Folder(tmp_path / f"{crashes}" / "second")
        try:
            _day(place, Mortal(second, crashes + 1, after=after), 0)
        except Crashed:
            crashes += 1
        else:
            break
        _day(place, second, 1)
        assert verify(place, [KEY], second).findings == []
    assert crashes >= 6


def test_several_processes_append_to_one_log(tmp_path: Path) -> None:
    place = Folder(tmp_path)
    members = [AuditLog(place) for _ in range(3)]
    for number in range(0, 90, 10):
        assert members[number // 10 % 3].append(events(number, number + 10)) == 10
    assert members[0].append(events(40, 60)) == 0, "another one had them"
    assert members[1].append(events(85, 95)) == 5
    assert _logged(place) == [f"e{number}" for number in range(95)]
    assert [member.size() for member in members] == [95, 95, 95]


def test_one_that_comes_again_after_a_restart_is_known(tmp_path: Path) -> None:
    place = Folder(tmp_path)
    assert AuditLog(place).append([*events(0, 5), *events(3, 8)]) == 8
    assert AuditLog(place).append(events(2, 9)) == 1
    assert AuditLog(place).append([]) == 0


def test_a_zombie_that_signs_an_earlier_size_does_not_take_the_newest_back(tmp_path: Path) -> None:
    place = Folder(tmp_path)
    AuditLog(place).append(events(0, 10))
    old = checkpoint(place, SIGNER, START)
    AuditLog(place).append(events(10, 20))
    new = checkpoint(place, SIGNER, START + 1)
    place.replace("checkpoint", old.note.encode(), new.note.encode())
    AuditLog(place).append(events(20, 21))
    newer = checkpoint(place, SIGNER, START + 2)
    assert place.get("checkpoint") == newer.note.encode()
    assert newest(place, [KEY]) == newer


def test_nothing_is_signed_on_top_of_tiles_that_were_changed(tmp_path: Path) -> None:
    log = Spoilable(tmp_path)
    log.fill(300)
    (log.root / "tile/0/001.p/44").write_bytes(bytes(44 * 32))
    AuditLog(log.place).append(events(300, 310))
    with pytest.raises(AuditDamaged, match="are not those that checkpoints/0000000000000300"):
        checkpoint(log.place, SIGNER, START + 5 * DAY)
    log.remove("tile/0/001.p/44")
    with pytest.raises(AuditDamaged, match=r"tile/0/001\.p/44 is not there"):
        checkpoint(log.place, SIGNER, START + 5 * DAY)


def test_nothing_is_signed_on_top_of_entries_that_were_changed(tmp_path: Path) -> None:
    log = Spoilable(tmp_path)
    log.fill(300)
    bundle = log.root / "tile/entries/001.p/44"
    bundle.write_bytes(bundle.read_bytes().replace(b"e256", b"e257"))
    with pytest.raises(AuditDamaged, match="does not hold what"):
        checkpoint(log.place, SIGNER, START + 5 * DAY)


def test_a_tile_that_is_there_and_says_otherwise_stops_the_log(tmp_path: Path) -> None:
    place = Folder(tmp_path)
    AuditLog(place).append(events(0, 256))
    place.put("tile/0/000", bytes(8192))
    with pytest.raises(AuditDamaged, match=r"tile/0/000 in .* is not what the events say"):
        checkpoint(place, SIGNER, START)


def test_nothing_is_signed_that_the_second_place_contradicts(tmp_path: Path) -> None:
    ours, theirs = Spoilable(tmp_path / "a"), Spoilable(tmp_path / "b")
    ours.fill(10)
    theirs.fill(10)
    AuditLog(ours.place).append(events(10, 20))
    with pytest.raises(AuditDamaged, match=r"holds a checkpoint of 10 events that .* does not go on from"):
        seal(ours.place, theirs.second, SIGNER, START + 9 * DAY)
    assert len(list(ours.place.list("checkpoints/"))) == 1, "nothing was signed"


def test_a_log_that_was_emptied_does_not_begin_anew_beside_its_second_place(tmp_path: Path) -> None:
    log = Spoilable(tmp_path)
    log.fill(10)
    fresh = Folder(tmp_path / "fresh")
    AuditLog(fresh).append(events(0, 10))
    with pytest.raises(AuditDamaged, match="holds none: it was emptied"):
        seal(fresh, log.second, SIGNER, START)


def test_a_second_place_that_comes_late_gets_everything(tmp_path: Path) -> None:
    log = Spoilable(tmp_path)
    log.fill(300, 900, 1000)
    late = Folder(tmp_path / "late")
    assert copy(log.place, late, [KEY]) == 3
    assert copy(log.place, late, [KEY]) == 0
    assert verify(log.place, [KEY], late).findings == []


def test_a_batch_that_was_moved_or_cut_stops_the_log(tmp_path: Path) -> None:
    place = Folder(tmp_path)
    AuditLog(place).append(events(0, 5))
    (tmp_path / batch_path(5)).write_bytes((tmp_path / batch_path(0)).read_bytes())
    with pytest.raises(AuditDamaged, match="begins with event 0: it was moved there"):
        AuditLog(place).append(events(5, 6))
    (tmp_path / batch_path(5)).write_bytes(b"\x93")
    with pytest.raises(AuditDamaged, match="no batch of events"):
        AuditLog(place).append(events(5, 6))


def test_what_travelled_is_kept_exactly() -> None:
    one = frame(3, body=b"\x00\xff")
    found = read_travelled(travelled(one))
    assert (found.id, found.topic, found.key, found.body) == (one.id, one.topic, one.key, one.body)
    assert dict(found.headers) == one.headers
    for wrong in (b"", b"\x93\x01", b"\xc0"):
        with pytest.raises(BatchError):
            read_travelled(wrong)
    with pytest.raises(BatchError, match="was cut"):
        read_bundle(b"\x00\x05abc")


def test_a_folder_puts_once_and_lists_in_order(tmp_path: Path) -> None:
    place = Folder(tmp_path / "new")
    assert list(place.list("a/")) == []
    assert place.get("a/b") is None
    assert place.put("a/2", b"x")
    assert not place.put("a/2", b"y")
    assert place.get("a/2") == b"x"
    for path in ("a/10", "a/1/z", "a/1.p/3", "b/1"):
        assert place.put(path, b"")
    assert list(place.list("a/")) == ["a/1.p/3", "a/1/z", "a/10", "a/2"]
    assert list(place.list("a/", "a/1/z")) == ["a/10", "a/2"]
    assert not place.replace("a/2", b"z", b"y")
    assert place.replace("a/2", b"z", b"x")
    assert place.replace("a/3", b"z", None)
    assert place.get("a/2") == b"z"
    assert place.get("a/2/below") is None
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(AuditUnavailable, match="file"):
        Folder(tmp_path / "file").put("a", b"")
