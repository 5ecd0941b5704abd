"""What is proven here is believed by a stranger's tool, and by nobody once it was touched."""

from __future__ import annotations

import base64
from hashlib import sha256
from pathlib import Path

import pytest

from posthouse.errors import AuditDamaged, AuditError
from posthouse.history.audit.batches import travelled
from posthouse.history.audit.checkpoints import newest, read
from posthouse.history.audit.log import AuditLog
from posthouse.history.audit.proofs import check, check_extension, prove, prove_extension
from tests.kit.audit import KEY, OTHER_KEY, Spoilable, events, frame
from tests.kit.oracles.tlog import TlogOracle


@pytest.fixture
def log(tmp_path: Path) -> Spoilable:
    made = Spoilable(tmp_path)
    made.fill(300, 1000)
    return made


def _entry(proof: str, id: str) -> str:
    """The entry, from the proof's extra line, as a stranger makes it."""
    extra = base64.b64decode(proof.splitlines()[1].removeprefix("extra "))
    return (sha256(extra).digest() + id.encode()).hex()


@pytest.mark.parametrize("number", [0, 255, 256, 423, 767, 768, 999])
def test_a_proof_is_believed_by_go_and_by_us(log: Spoilable, tlog_oracle: TlogOracle, number: int) -> None:
    proof = prove(log.place, [KEY], f"e{number}")
    found = check(proof, [KEY])
    assert (found.position, found.checkpoint.size, found.event.id) == (number, 1000, f"e{number}")
    assert found.event.body == frame(number).body
    entry = _entry(proof, f"e{number}")
    assert tlog_oracle.ask("include", str(KEY), entry, given=proof) == f"GOOD {number} 1000\n"
    assert tlog_oracle.ask("include", str(OTHER_KEY), entry, given=proof).startswith("REFUSED")
    forged = ("0" if entry[0] != "0" else "1") + entry[1:]
    assert tlog_oracle.ask("include", str(KEY), forged, given=proof).startswith("REFUSED")


@pytest.mark.parametrize("size", [1, 255, 256, 257, 700, 70_000])
def test_go_reads_the_whole_log_from_its_tiles(tmp_path: Path, tlog_oracle: TlogOracle, size: int) -> None:
    log = Spoilable(tmp_path)
    log.fill(size, batch=5000)
    assert tlog_oracle.ask("fsck", str(KEY), str(log.root)) == f"GOOD {size}\n"
    assert tlog_oracle.ask("fsck", str(KEY), str(log.second_root)) == f"GOOD {size}\n"
    bundle = next(path for path in (log.root / "tile/entries").rglob("*") if path.is_file())
    bundle.write_bytes(bundle.read_bytes()[:-1] + b"x")
    assert tlog_oracle.ask("fsck", str(KEY), str(log.root)).startswith("REFUSED")


def test_go_believes_that_a_checkpoint_goes_on_from_another(log: Spoilable, tlog_oracle: TlogOracle) -> None:
    old, new = sorted((log.root / "checkpoints").iterdir())
    proof = prove_extension(log.place, [KEY], 300)
    before = read(log.place, f"checkpoints/{old.name}", [KEY]).checkpoint
    assert check_extension(proof, before, [KEY]).size == 1000
    hashes = "\n".join(proof.partition("\n\n")[0].splitlines()[1:])
    assert tlog_oracle.ask("extend", str(KEY), str(old), str(new), given=hashes) == "GOOD 300 1000\n"
    with pytest.raises(ValueError, match="does not go on from"):
        check_extension(proof.replace(hashes, "\n".join(hashes.splitlines()[:-1])), before, [KEY])
    with pytest.raises(ValueError, match="no proof from a checkpoint of 300"):
        check_extension(proof.replace("old 300", "old 301"), before, [KEY])


def test_a_proof_that_was_touched_proves_nothing(log: Spoilable) -> None:
    proof = prove(log.place, [KEY], "e423")
    lines = proof.splitlines(keepends=True)
    other = prove(log.place, [KEY], "e424").splitlines(keepends=True)
    salted = base64.b64decode(lines[1].removeprefix("extra "))
    changed = base64.b64encode(salted.replace(b'"o423"', b'"o424"')).decode()
    for forged, says in (
        (proof.replace("index 423", "index 424"), "not the one that was signed"),
        (proof.replace(lines[1], f"extra {changed}\n"), "not the one that was signed"),
        (proof.replace(lines[1], other[1]), "not the one that was signed"),
        (proof.replace(lines[5], ""), "not the one that was signed"),
        (proof.replace("\n1000\n", "\n1001\n"), "signature of shop/audit is false"),
        (proof.replace("index 423", "index -1"), "no proof of an event"),
        (proof.replace(lines[1], "extra AAAA\n"), "no proof of an event"),
        (proof.replace(lines[5], "§\n"), "is no base64"),
        (proof.replace(lines[1], f"extra {base64.b64encode(bytes(40)).decode()}\n"), "no event"),
        ("", "no proof"),
        (lines[0] + "\n" + lines[-1], "no proof"),
    ):
        assert forged != proof
        with pytest.raises(ValueError, match=says):
            check(forged, [KEY])
    with pytest.raises(ValueError, match="and not by"):
        check(proof, [OTHER_KEY])


def test_a_proof_stands_when_the_log_has_gone_on_or_is_gone(log: Spoilable) -> None:
    proof = prove(log.place, [KEY], "e423")
    log.fill(5000)
    assert check(proof, [KEY]).checkpoint.size == 1000
    assert check(prove(log.place, [KEY], "e423"), [KEY]).checkpoint.size == 5000


def test_what_cannot_be_proven_says_why(log: Spoilable, tmp_path: Path) -> None:
    AuditLog(log.place).append(events(1000, 1001))
    with pytest.raises(AuditError, match="e1000 is logged, and not under a checkpoint yet"):
        prove(log.place, [KEY], "e1000")
    with pytest.raises(AuditError, match="nobody is not among the 1,000 events"):
        prove(log.place, [KEY], "nobody")
    with pytest.raises(AuditDamaged, match="and not by"):
        prove(log.place, [OTHER_KEY], "e5")
    with pytest.raises(AuditError, match="holds no checkpoint yet"):
        prove(Spoilable(tmp_path / "empty").place, [KEY], "e5")
    with pytest.raises(AuditError, match="none is of 1,001 before it"):
        prove_extension(log.place, [KEY], 1001)


def test_an_event_that_was_touched_is_not_proven(log: Spoilable) -> None:
    changed = list(log.batch(400).events)
    changed[23] = travelled(frame(423, body=b"{}"))
    log.rewrite(400, changed)
    with pytest.raises(AuditDamaged, match="e423 cannot be proven: the event is not the one that was signed"):
        prove(log.place, [KEY], "e423")
    log.rewrite(400, changed[:10])
    with pytest.raises(AuditDamaged, match="the event at position 423 is missing"):
        prove(log.place, [KEY], "e423")
    log.remove("tile/0/000")
    with pytest.raises(AuditDamaged, match="tile/0/000 is not there"):
        prove(log.place, [KEY], "e5")
    assert newest(log.place, [KEY]) is not None
