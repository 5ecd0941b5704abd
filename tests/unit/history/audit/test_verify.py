"""Whoever touches an event or a file of a log is found out, and what he did is named."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from posthouse.errors import AuditDamaged
from posthouse.history.audit.batches import (
    SALT,
    Batch,
    batch_path,
    entries,
    read_bundle,
    travelled,
    write_batch,
    write_bundle,
)
from posthouse.history.audit.findings import Finding
from posthouse.history.audit.log import AuditLog, checkpoint, seal
from posthouse.history.audit.merkle import leaves
from posthouse.history.audit.notes import sign
from posthouse.history.audit.places.folder import Folder
from posthouse.history.audit.tiles import Edge
from posthouse.history.audit.verify import verify
from tests.kit.audit import KEY, OTHER_KEY, SIGNER, START, Spoilable, events, frame
from tests.kit.long import LONG


@pytest.fixture
def log(tmp_path: Path) -> Spoilable:
    made = Spoilable(tmp_path)
    made.fill(300, 1000)
    return made


def _kinds(findings: list[Finding]) -> list[tuple[str, str | None, int | None]]:
    return [(finding.kind, finding.id, finding.position) for finding in findings]


def test_a_log_that_nobody_touched_is_as_it_was_signed(log: Spoilable) -> None:
    report = log.verify()
    assert (report.findings, report.events, report.signed, report.checkpoints) == ([], 1000, 1000, 2)
    assert log.verify(alone=True).findings == []


def test_events_that_wait_for_a_checkpoint_are_counted_and_not_accused(log: Spoilable) -> None:
    AuditLog(log.place).append(events(1000, 1010))
    report = log.verify()
    assert (report.findings, report.events, report.signed) == ([], 1010, 1000)


@pytest.mark.parametrize("alone", [True, False])
def test_a_changed_event_is_named(log: Spoilable, alone: bool) -> None:
    changed = list(log.batch(400).events)
    changed[23] = changed[23].replace(b'"o423"', b'"o424"')
    log.rewrite(400, changed)
    [finding] = log.verify(alone=alone).findings
    assert finding == Finding("changed", "event e423 at position 423 was changed", "e423", 423)


@pytest.mark.parametrize("part", [b"shop.orders.order", b"t1:o", b"application/", b"e423"])
def test_nothing_of_an_event_can_be_changed_not_even_its_id(log: Spoilable, part: bytes) -> None:
    changed = list(log.batch(400).events)
    assert part in changed[23]
    changed[23] = changed[23].replace(part, part[:-1] + b"X")
    log.rewrite(400, changed)
    assert _kinds(list(log.verify().findings)) == [("changed", "e423", 423)]


def test_a_changed_salt_is_a_changed_event(log: Spoilable) -> None:
    batch = log.batch(400)
    log.rewrite(400, batch.events, batch.salts[: 23 * SALT] + bytes(SALT) + batch.salts[24 * SALT :])
    assert _kinds(list(log.verify().findings)) == [("changed", "e423", 423)]


@pytest.mark.parametrize("with_salt", [True, False])
def test_a_removed_event_is_named_with_its_salt_or_without(log: Spoilable, with_salt: bool) -> None:
    batch = log.batch(400)
    left = [*batch.events[:23], *batch.events[24:]]
    log.rewrite(400, left, batch.salts[: 23 * SALT] + batch.salts[24 * SALT :] if with_salt else batch.salts)
    assert log.said() == ["event e423 at position 423 was removed"]


@pytest.mark.parametrize("with_salt", [True, False])
def test_an_added_event_is_named(log: Spoilable, with_salt: bool) -> None:
    batch = log.batch(400)
    more = [*batch.events[:23], travelled(frame(7777)), *batch.events[23:]]
    log.rewrite(400, more, batch.salts[: 23 * SALT] + bytes(SALT) + batch.salts[23 * SALT :] if with_salt else None)
    assert log.said() == ["event e7777 was added at position 423: it was never signed"]


def test_an_event_that_is_there_twice_was_added(log: Spoilable) -> None:
    log.rewrite(400, [*log.batch(400).events, log.batch(400).events[3]])
    assert _kinds(list(log.verify().findings)) == [("added", "e403", 500)]


def test_reordered_events_are_named(log: Spoilable) -> None:
    batch = list(log.batch(400).events)
    batch[23], batch[50] = batch[50], batch[23]
    log.rewrite(400, batch)
    assert _kinds(list(log.verify().findings)) == [("reordered", "e423", 423), ("reordered", "e450", 450)]


def test_an_event_that_was_moved_far_away_is_named_once(log: Spoilable) -> None:
    batch, other = log.batch(400), log.batch(800)
    log.rewrite(400, [*batch.events[:23], *batch.events[24:]])
    log.rewrite(800, [*other.events[:5], batch.events[23], *other.events[5:]])
    assert log.said() == ["event e423 was moved: it was logged at position 423, and stands at 805"]


@pytest.mark.timeout(900 if LONG else 120)
def test_one_of_each_among_many_is_named(tmp_path: Path) -> None:
    """Among 20,000; among 1,000,000 in `make test-long`."""
    log = Spoilable(tmp_path)
    log.fill(7000, 1_000_000 if LONG else 20_000, batch=1000)
    changed, removed = list(log.batch(1000).events), list(log.batch(5000).events)
    added, moved = list(log.batch(9000).events), list(log.batch(15_000).events)
    changed[11] = changed[11].replace(b"order_id", b"order_iD")
    del removed[22]
    added.insert(33, travelled(frame(99_999)))
    moved.insert(900, moved.pop(44))
    for first, spoiled in ((1000, changed), (5000, removed), (9000, added), (15_000, moved)):
        log.rewrite(first, spoiled)
    assert _kinds(list(log.verify().findings)) == [
        ("changed", "e1011", 1011),
        ("removed", "e5022", 5022),
        ("added", "e99999", 9033),
        ("reordered", "e15044", 15_044),
    ]


def test_any_single_change_at_all_is_found(log: Spoilable) -> None:
    """Any byte of any file below the log, but not more than one."""
    chance = random.Random(7)
    files = sorted(path for path in log.root.rglob("*") if path.is_file() and path.name != ".lock")
    for path in [*files, *chance.choices(files, k=60)]:
        kept = path.read_bytes()
        at = chance.randrange(len(kept))
        path.write_bytes(kept[:at] + bytes([kept[at] ^ (1 << chance.randrange(8))]) + kept[at + 1 :])
        assert log.said(), f"{path}: byte {at}"
        path.write_bytes(kept)
        assert log.said() == []


def test_a_lost_batch_is_told_as_one_thing(log: Spoilable) -> None:
    log.remove(batch_path(400))
    assert log.said() == ["100 events at positions 400 to 499 were removed: e400 to e499"]


def test_the_first_and_the_last_batch_are_missed_too(log: Spoilable) -> None:
    log.remove(batch_path(0))
    log.remove(batch_path(900))
    assert log.said() == [
        "100 events at positions 0 to 99 were removed: e0 to e99",
        "100 events at positions 900 to 999 were removed: e900 to e999",
    ]


@pytest.mark.parametrize("alone", [True, False])
def test_a_lost_or_changed_tile_is_named_and_no_event_is_accused(log: Spoilable, alone: bool) -> None:
    log.remove("tile/0/001")
    tile = log.root / "tile/0/002"
    tile.write_bytes(bytes(32) + tile.read_bytes()[32:])
    log.remove("tile/entries/003.p/232")
    (log.root / "tile/entries/000").write_bytes(b"\x00\x00")
    assert log.said(alone=alone) == [
        f"tile/entries/000 in {log.place.name} was changed",
        f"tile/0/001 is missing in {log.place.name}",
        f"tile/0/002 in {log.place.name} was changed",
        f"tile/entries/003.p/232 is missing in {log.place.name}",
    ]


def test_a_tile_of_the_second_place_is_looked_at_too(log: Spoilable) -> None:
    (log.second_root / "tile/0/001").unlink()
    assert log.said() == [f"tile/0/001 is missing in {log.second.name}"]


def _forge(log: Spoilable) -> None:
    """Change an event, and every file that follows from it: all that can be done without the key."""
    batch = list(log.batch(400).events)
    batch[23] = batch[23].replace(b'"o423"', b'"o424"')
    log.rewrite(400, batch)
    edge, all_entries = Edge(), list[bytes]()
    for first in range(0, 1000, 100):
        all_entries += entries(log.batch(first))
    for path, tile in [*edge.add(leaves(all_entries)), *edge.partial_tiles()]:
        (log.root / path).write_bytes(tile)
    (log.root / "tile/entries/001").write_bytes(write_bundle(all_entries[256:512]))


def test_who_forges_everything_but_the_signature_is_named_with_the_second_place(log: Spoilable) -> None:
    _forge(log)
    findings = log.verify().findings
    assert _kinds(list(findings))[0] == ("changed", "e423", 423)
    assert {finding.words for finding in findings[1:]} == {
        f"{path} in {log.place.name} was changed" for path in ("tile/0/001", "tile/1/000.p/3", "tile/entries/001")
    }


def test_and_is_found_without_it_between_two_checkpoints(log: Spoilable) -> None:
    _forge(log)
    [finding] = log.verify(alone=True).findings
    assert finding.kind == "unknown"
    assert finding.words.startswith("events at positions 300 to 999 are not what checkpoints/0000000000001000-")


def test_a_log_that_is_made_anew_with_the_key_is_a_split_view(log: Spoilable, tmp_path: Path) -> None:
    anew = Spoilable(tmp_path / "anew")
    anew.fill(300, 1000)  # other salts: another tree
    shutil.rmtree(log.root)
    shutil.copytree(anew.root, log.root)
    assert log.said(alone=True) == []
    words = [finding.words for finding in log.verify().findings if finding.kind == "split"]
    assert "two checkpoints of 300 events are signed, with different roots" in words[0]


def test_a_log_whose_end_was_cut_off_went_back(log: Spoilable) -> None:
    """As if the second day had never been."""
    for path in log.root.rglob("*"):
        if "0000000000001000" in path.name or (path.parent.name == "events" and int(path.name) >= 300):
            path.unlink()
    old = next((log.root / "checkpoints").iterdir())
    (log.root / "checkpoint").write_bytes(old.read_bytes())
    shutil.rmtree(log.root / "tile")
    said = log.said()
    assert (
        f"the log went back: the newest checkpoint in {log.place.name} is of 300 events, {log.second.name} has one of 1,000"
        in said
    )
    assert "700 events at positions 300 to 999 were removed: e300 to e999" in said


def test_a_log_without_a_checkpoint_proves_nothing(tmp_path: Path) -> None:
    log = Spoilable(tmp_path)
    AuditLog(log.place).append(events(0, 5))
    assert log.said(alone=True) == [f"{log.place.name} holds no checkpoint: nothing is proven of what is there"]


def test_the_newest_file_that_goes_back_is_named(log: Spoilable) -> None:
    old, new = sorted((log.root / "checkpoints").iterdir())
    (log.root / "checkpoint").write_bytes(old.read_bytes())
    assert log.said() == [
        f"`checkpoint` in {log.place.name} went back: it is of 300 events, checkpoints/{new.name} is of 1,000"
    ]
    (log.root / "checkpoint").unlink()
    assert "`checkpoint` is missing" in log.said()[0]


def test_the_newest_checkpoint_that_was_taken_away_is_missed_without_a_second_place(log: Spoilable) -> None:
    _, new = sorted((log.root / "checkpoints").iterdir())
    new.unlink()
    assert "is of 1,000 events, and checkpoints/0000000000000300-" in log.said(alone=True)[0]


def test_of_a_second_place_that_is_behind_only_that_is_said(log: Spoilable) -> None:
    AuditLog(log.place).append(events(1000, 1300))
    checkpoint(log.place, SIGNER, START + 9)
    assert _kinds(list(log.verify().findings)) == [("back", None, None)]
    (log.second_root / "tile/0/002").unlink()
    assert log.said()[1:] == [f"tile/0/002 is missing in {log.second.name}"]


def test_a_checkpoint_that_was_taken_away_is_missed(log: Spoilable) -> None:
    old, _ = sorted((log.root / "checkpoints").iterdir())
    old.unlink()
    assert log.said() == [f"checkpoints/{old.name} of {log.second.name} is not in {log.place.name} any more"]


def test_a_wrong_key_is_one_clear_sentence(log: Spoilable) -> None:
    report = log.verify(keys=[OTHER_KEY], alone=True)
    [finding] = report.findings
    assert finding.kind == "checkpoint"
    assert finding.words == (
        f"none of the 2 checkpoints in {log.place.name} counts: it is signed by shop/audit+{KEY.id.hex()}, "
        f"and not by shop/audit+{OTHER_KEY.id.hex()}"
    )


def test_a_checkpoint_that_somebody_else_made_is_not_believed(log: Spoilable) -> None:
    [*_, new] = sorted((log.root / "checkpoints").iterdir())
    new.write_text(sign(new.read_text().partition("\n\n")[0] + "\n", "shop/audit", bytes(32)))
    assert (
        f"checkpoints/{new.name} in {log.place.name}: it is signed by shop/audit+{OTHER_KEY.id.hex()}" in log.said()[0]
    )


def test_an_unreadable_batch_is_told_and_the_rest_is_still_looked_at(log: Spoilable) -> None:
    path = log.root / batch_path(400)
    path.write_bytes(path.read_bytes()[:-40])
    changed = list(log.batch(800).events)
    changed[1] = changed[1].replace(b"o801", b"o8o1")
    log.rewrite(800, changed)
    assert [finding.kind for finding in log.verify().findings] == ["removed", "changed", "file"]
    assert log.said()[2].startswith(f"{batch_path(400)} in {log.place.name} cannot be read: it is no batch of events")


def test_a_file_among_the_batches_that_is_none_is_named(log: Spoilable) -> None:
    assert log.place.put(batch_path(450), b"nothing")
    [said] = log.said()
    assert said.startswith(f"{batch_path(450)} in {log.place.name} cannot be read")


def test_a_batch_that_is_not_signed_yet_has_to_follow_the_one_before(log: Spoilable) -> None:
    AuditLog(log.place).append(events(1000, 1010))
    AuditLog(log.place).append(events(1010, 1020))
    log.remove(batch_path(1000))
    assert log.said() == [
        f"{batch_path(1010)} in {log.place.name}, which nobody has signed yet, does not go on from event 1,000, where the one before it ends"
    ]


def test_an_event_whose_id_is_no_text_any_more_is_named(log: Spoilable) -> None:
    changed = list(log.batch(400).events)
    changed[23] = changed[23].replace(b"e423", b"e4\xff3")
    log.rewrite(400, changed)
    assert _kinds(list(log.verify().findings)) == [("changed", "e423", 423)]


def test_bundles_that_are_lost_everywhere_do_not_hide_an_event(log: Spoilable) -> None:
    for root in (log.root, log.second_root):
        shutil.rmtree(root / "tile/entries")
    changed = list(log.batch(400).events)
    changed[23] = changed[23].replace(b"o423", b"o4z3")
    log.rewrite(400, changed)
    findings = [finding for finding in log.verify().findings if finding.kind != "file"]
    assert _kinds(findings) == [("changed", "e423", 423)]


def test_entries_hold_no_event(log: Spoilable) -> None:
    [first, *_] = read_bundle((log.second_root / "tile/entries/000").read_bytes())
    assert (len(first), first[32:]) == (34, b"e0")
    assert not (log.second_root / "events").exists()


def test_an_empty_log_can_be_signed_and_goes_on(tmp_path: Path) -> None:
    log = Spoilable(tmp_path)
    seal(log.place, log.second, SIGNER, START)
    assert verify(log.place, [KEY], log.second).findings == []
    log.fill(10)
    assert log.said() == []


def test_a_second_place_that_is_named_and_empty_is_no_witness(log: Spoilable, tmp_path: Path) -> None:
    shutil.rmtree(log.second_root)
    [words] = log.said()
    assert words.startswith(f"the second place {log.second_root} holds no checkpoint that counts")
    log.second_root.write_text("a file is no folder")
    assert log.said() == [words]
    [finding] = verify(log.place, [KEY], Folder(tmp_path / "misspelt")).findings
    assert (finding.kind, "misspelt holds no checkpoint" in finding.words) == ("back", True)


def test_a_second_place_that_was_put_back_is_behind(log: Spoilable, tmp_path: Path) -> None:
    shutil.copytree(log.second_root, tmp_path / "before")
    log.fill(1200)
    shutil.rmtree(log.second_root)
    shutil.copytree(tmp_path / "before", log.second_root)
    [finding] = log.verify().findings
    assert finding.kind == "back"
    assert "is behind: its newest checkpoint is of 1,000 events" in finding.words
    log.seal()
    assert log.said() == []


def test_a_checkpoint_that_only_the_second_place_lost_is_named(log: Spoilable) -> None:
    path = min((log.second_root / "checkpoints").iterdir())
    path.unlink()
    assert log.said() == [
        f"checkpoints/{path.name} of {log.place.name} is missing in the second place {log.second.name}"
    ]


@pytest.mark.parametrize("end", [1000, 1010])
def test_an_empty_batch_is_named_and_neither_appended_to_nor_signed_over_nor_waited_for(
    log: Spoilable, end: int
) -> None:
    AuditLog(log.place).append(events(1000, end))
    writing = AuditLog(log.place)
    assert writing.size() == end
    path = log.root / batch_path(end)
    path.write_bytes(write_batch(Batch(end, b"", [])))
    [words] = log.said()
    assert words.startswith(f"events/{end:016d} in {log.place.name}, which nobody has signed yet, holds no event")
    for refused in (lambda: writing.append(events(end, end + 1)), lambda: AuditLog(log.place).size(), log.seal):
        with pytest.raises(AuditDamaged, match=f"events/{end:016d} holds no event"):
            refused()
    path.unlink()
    assert AuditLog(log.place).append(events(end, 1020)) == 1020 - end
    log.seal()
    assert log.said() == []


def test_a_batch_far_behind_the_end_takes_no_event_after_it(log: Spoilable) -> None:
    far = 9_999_999_999_999_998
    (log.root / batch_path(far)).write_bytes(write_batch(Batch(far, bytes(SALT), events(1, 2))))
    with pytest.raises(AuditDamaged, match="does not go on from event 1,000"):
        AuditLog(log.place).append(events(1000, 1001))
    [words] = log.said()
    assert "does not go on from event 1,000" in words


def test_a_file_among_the_events_that_is_none_is_named(log: Spoilable) -> None:
    for name in ("00000000000000003", "evil"):
        (log.root / "events" / name).write_bytes(b"x")
    assert log.said() == [
        f"events/{name} in {log.place.name} is no file of this log: somebody put it there"
        for name in ("00000000000000003", "evil")
    ]
