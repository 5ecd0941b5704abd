"""Checkpoints are signed notes, which other people's tools sign and open."""

from __future__ import annotations

import pytest

from posthouse.history.audit.notes import Checkpoint, NoteError, Verifier, opened, read_checkpoint, read_vkey, sign
from tests.kit.oracles.tlog import TlogOracle

# The example of C2SP's signed-note.
EXAMPLE = """This is an example message.

— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=
"""
EXAMPLE_KEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
SEED = bytes(range(32))
CHECKPOINT = Checkpoint("shop/audit", 3, bytes(32))


def _key(name: str = "shop/audit", seed: bytes = SEED) -> Verifier:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Verifier(name, Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw())


def test_the_specifications_example_opens() -> None:
    key = read_vkey(EXAMPLE_KEY)
    assert str(key) == EXAMPLE_KEY
    assert opened(EXAMPLE, [key]) == "This is an example message.\n"


def test_go_opens_what_is_signed_here_and_the_other_way_round(tlog_oracle: TlogOracle) -> None:
    note = sign(CHECKPOINT.text(), "shop/audit", SEED)
    assert tlog_oracle.ask("open", str(_key()), given=note) == CHECKPOINT.text()
    assert tlog_oracle.ask("open", str(_key(seed=bytes(32))), given=note).startswith("REFUSED")
    vkey, _, theirs = tlog_oracle.ask("sign", "shop/audit", given=CHECKPOINT.text()).partition("\n")
    assert read_checkpoint(theirs, [read_vkey(vkey)]) == CHECKPOINT


def test_a_checkpoint_comes_back_as_it_was_signed() -> None:
    note = sign(CHECKPOINT.text(), "shop/audit", SEED)
    assert read_checkpoint(note, [_key()]) == CHECKPOINT
    assert read_checkpoint(note, [_key("other", bytes(32)), _key()]) == CHECKPOINT


def test_a_witness_may_sign_it_too() -> None:
    note = sign(CHECKPOINT.text(), "shop/audit", SEED)
    witness = sign(CHECKPOINT.text(), "witness.example", bytes(32)).splitlines(keepends=True)[-1]
    assert read_checkpoint(note + witness, [_key()]) == CHECKPOINT
    assert read_checkpoint(note + witness, [_key("witness.example", bytes(32))]) == CHECKPOINT


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda note: note.replace("\n3\n", "\n4\n"), "is false"),
        (lambda note: note.replace("shop/audit\n", "shop/audits\n", 1), "is false"),
        (lambda note: note.replace("— shop/audit", "— shop/other"), "is signed by shop/other"),
        (lambda note: note.rstrip("\n"), "no signed note"),
        (lambda note: note.replace("\n3", "\r\n3"), "no signed note"),
        (lambda note: note.partition("\n\n")[0], "no signed note"),
        (lambda note: note + "nobody\n", "no signature"),
        (lambda note: "", "no signed note"),
    ],
)
def test_a_note_that_was_changed_is_refused(change: object, says: str) -> None:
    assert callable(change)
    with pytest.raises(NoteError, match=says):
        opened(change(sign(CHECKPOINT.text(), "shop/audit", SEED)), [_key()])


def test_another_key_of_the_same_name_is_not_this_one() -> None:
    with pytest.raises(NoteError, match=r"signed by shop/audit\+[0-9a-f]{8}, and not by shop/audit\+"):
        opened(sign(CHECKPOINT.text(), "shop/audit", SEED), [_key(seed=bytes(32))])
    with pytest.raises(NoteError, match="not by any key"):
        opened(sign(CHECKPOINT.text(), "shop/audit", SEED), [])


@pytest.mark.parametrize(
    "text", ["a\n", "a\n1\n", "a\n01\n" + "A" * 44 + "\n", "a\n1\nAAAA\n", "\n1\n" + "A" * 43 + "=\n"]
)
def test_a_signed_text_that_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(NoteError, match="no checkpoint"):
        read_checkpoint(sign(text, "shop/audit", SEED), [_key()])


@pytest.mark.parametrize(
    "text",
    ["", "shop", "shop+00000000+AAAA", str(_key()).replace("shop/", "shop /"), EXAMPLE_KEY.replace("foo", "fox")],
)
def test_what_is_no_vkey_is_refused(text: str) -> None:
    with pytest.raises(NoteError, match=r"no key for notes|was cut or changed"):
        read_vkey(text)


def test_a_name_or_a_text_that_no_note_takes_is_refused() -> None:
    for name in ("", "a b", "a+b"):
        with pytest.raises(NoteError, match="cannot sign"):
            sign("a\n", name, SEED)
    for text in ("a", "a\tb\n"):
        with pytest.raises(NoteError, match="a note is text"):
            sign(text, "a", SEED)
