"""Verifying finds what was done to an archive: each of these was done to one that is sound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from posthouse.errors import ArchiveDamaged
from posthouse.history.archive.log import Entry, entry_name, read_manifest
from posthouse.history.archive.places import open_place
from posthouse.history.archive.verifying import Verified, verify
from tests.kit.archives import TOPICS

Spoil = Callable[[Path], object]


def files(archive: Path) -> Sequence[Path]:
    """Its files of events, in the order in which they were written."""
    return sorted((archive / "data").rglob("*.parquet"), key=lambda path: (path.stem, str(path)))


def verified(archive: Path) -> Verified:
    return verify(open_place(f"file://{archive}"))


def faults(archive: Path) -> list[tuple[str, str]]:
    return [(found.kind, found.name) for found in verified(archive).findings if found.fault]


async def test_one_that_nobody_touched_is_sound(archive: Path) -> None:
    found = verified(archive)
    assert (found.sound, found.events, found.files) == (True, 2 * 27, len(files(archive)))
    assert found.findings == []


async def test_a_file_that_is_missing_is_named_with_its_events(archive: Path) -> None:
    gone = files(archive)[0]
    gone.unlink()
    name = gone.relative_to(archive).as_posix()
    assert ("missing", name) in faults(archive)
    (words,) = [found.words for found in verified(archive).findings if found.name == name]
    assert words == f"it is missing, with {read_manifest(open_place(f'file://{archive}')).files[name].rows} events"


async def test_a_truncated_file_is_named(archive: Path) -> None:
    cut = files(archive)[1]
    cut.write_bytes(cut.read_bytes()[:-100])
    assert ("truncated", cut.relative_to(archive).as_posix()) in faults(archive)


@pytest.mark.parametrize("at", [4, 0.5, -9])
async def test_a_file_of_which_one_byte_was_changed_is_named(archive: Path, at: float) -> None:
    changed = files(archive)[2]
    data = bytearray(changed.read_bytes())
    data[int(at * len(data)) if at == 0.5 else int(at)] ^= 1
    changed.write_bytes(data)
    assert ("changed", changed.relative_to(archive).as_posix()) in faults(archive)


async def test_a_file_that_was_put_in_the_place_of_another_is_named(archive: Path) -> None:
    first, second = files(archive)[:2]
    first.write_bytes(second.read_bytes())
    assert {kind for kind, name in faults(archive) if name == first.relative_to(archive).as_posix()} <= {
        "changed",
        "truncated",
    }
    assert faults(archive)


async def test_a_foreign_file_is_named(archive: Path) -> None:
    foreign = files(archive)[0].with_name("somebody.parquet")
    foreign.write_bytes(files(archive)[0].read_bytes())
    assert faults(archive) == [("foreign", foreign.relative_to(archive).as_posix())]


async def test_a_day_of_which_nothing_is_left_is_named(archive: Path) -> None:
    days = sorted({path.parent.name for path in files(archive)})
    assert len(days) > 1
    lost = [path for path in files(archive) if path.parent.name == days[0] and TOPICS[0] in path.parts]
    for path in lost:
        path.unlink()
    assert ("day", f"{TOPICS[0]} {days[0]}") in faults(archive)
    assert ("day", f"{TOPICS[1]} {days[0]}") not in faults(archive)


async def test_an_entry_of_the_log_that_is_missing_is_named_with_what_it_hides(archive: Path) -> None:
    (archive / entry_name(2)).unlink()
    assert ("log", entry_name(2)) in faults(archive)
    assert verified(archive).generation == 1


async def test_an_entry_that_forgets_a_file_leaves_numbers_that_lack(archive: Path) -> None:
    path = archive / entry_name(2)
    entry = msgspec.json.decode(path.read_bytes(), type=Entry)
    hidden, *left = entry.add
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(entry, add=tuple(left))))
    found = faults(archive)
    assert ("foreign", hidden.name) in found
    assert {name.split()[0] for kind, name in found if kind == "numbers"} == {hidden.topic}


async def test_an_entry_that_says_other_counts_is_found_out(archive: Path) -> None:
    path = archive / entry_name(1)
    entry = msgspec.json.decode(path.read_bytes(), type=Entry)
    wrong = msgspec.structs.replace(entry.add[0], rows=entry.add[0].rows + 1)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(entry, add=(wrong, *entry.add[1:]))))
    assert ("wrong", wrong.name) in faults(archive)


async def test_a_place_without_its_marker_is_nobody_s(archive: Path) -> None:
    (archive / "archive.json").unlink()
    assert faults(archive) == [("marker", "archive.json")]


async def test_a_place_that_has_no_archive_is_no_sound_one(tmp_path: Path) -> None:
    with pytest.raises(ArchiveDamaged, match="has no archive"):
        verify(open_place(f"file://{tmp_path}/empty"))


async def test_objects_of_a_plan_that_stands_are_not_foreign(archive: Path) -> None:
    about = files(archive)[0].with_name("about-to-be.parquet")
    about.write_bytes(b"half")
    name = about.relative_to(archive).as_posix()
    assert verify(open_place(f"file://{archive}"), planned=lambda: [name]).sound


async def test_what_is_written_while_it_is_verified_is_neither_foreign_nor_beyond_the_log(archive: Path) -> None:
    last = max((archive / "log").iterdir())
    entry = last.read_bytes()
    name = msgspec.json.decode(entry, type=Entry).add[0].name
    file = (archive / name).read_bytes()
    last.unlink()
    for added in msgspec.json.decode(entry, type=Entry).add[1:]:
        (archive / added.name).rename(archive / added.name.replace(".parquet", ".later"))
    (archive / name).unlink()

    def planned() -> Sequence[str]:
        (archive / name).write_bytes(file)  # a member goes on, after everything was listed
        for added in msgspec.json.decode(entry, type=Entry).add[1:]:
            (archive / added.name.replace(".parquet", ".later")).rename(archive / added.name)
        last.write_bytes(entry)
        return []

    listed = [found.name for found in open_place(f"file://{archive}").names("data/") if found.name.endswith(".later")]
    found = verify(open_place(f"file://{archive}"), planned=planned)
    assert [(each.kind, each.name) for each in found.findings if each.fault and each.name not in listed] == []
