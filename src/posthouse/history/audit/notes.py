"""Notes: signed texts (C2SP signed-note), and checkpoints, which are notes about a tree (C2SP tlog-checkpoint). Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256

import msgspec

ED25519 = b"\x01"
"""The type of a signature in the id of its key."""
SIGNATURES = 64
"""At most so many under one note are looked at."""
_NAME = re.compile(r"[^\s+]+")
_LINE = re.compile(r"— ([^\s+]+) ([A-Za-z0-9+/]+={0,2})")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


class NoteError(ValueError):
    """A text that is no note, or none that this key has signed; the message says which."""


class Verifier(msgspec.Struct, frozen=True):
    """A public key, known by a name. `str()` is its vkey, which every tool for signed notes reads."""

    name: str
    public: bytes

    @property
    def id(self) -> bytes:
        return sha256(self.name.encode() + b"\n" + ED25519 + self.public).digest()[:4]

    def __str__(self) -> str:
        return f"{self.name}+{self.id.hex()}+{base64.b64encode(ED25519 + self.public).decode()}"


def read_vkey(text: str) -> Verifier:
    """The key that a vkey stands for. NoteError for anything else."""
    name, _, rest = text.strip().partition("+")
    id, _, public = rest.partition("+")
    raw = _unbase64(public)
    if not _NAME.fullmatch(name) or raw is None or len(raw) != 33 or raw[:1] != ED25519:
        raise NoteError(f"{text.strip()!r} is no key for notes: write NAME+ID+BASE64 of an Ed25519 key")
    found = Verifier(name, raw[1:])
    if found.id.hex() != id:
        raise NoteError(f"the key of {name!r} has the id {found.id.hex()}, not {id}: it was cut or changed on its way")
    return found


def sign(text: str, name: str, seed: bytes) -> str:
    """The note of a text that ends with a line end, under one signature. `seed`: the 32 bytes of the private key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # an extra

    if not _NAME.fullmatch(name):
        raise NoteError(f"{name!r} cannot sign: a name has no blanks and no +")
    if not text.endswith("\n") or any(ord(char) < 32 and char != "\n" for char in text):
        raise NoteError("a note is text that ends with a line end, without control characters")
    private = Ed25519PrivateKey.from_private_bytes(seed)
    id = Verifier(name, private.public_key().public_bytes_raw()).id
    return f"{text}\n— {name} {base64.b64encode(id + private.sign(text.encode())).decode()}\n"


def opened(note: str, keys: Iterable[Verifier]) -> str:
    """The text of a note that one of these keys has signed. NoteError when none has, or when a signature is false."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # an extra

    text, lines = _parted(note)
    known = {(key.name, key.id): key for key in keys}
    good = False
    for name, raw in lines:
        key = known.get((name, raw[:4]))
        if key is None:
            continue
        try:
            Ed25519PublicKey.from_public_bytes(key.public).verify(raw[4:], text.encode())
        except InvalidSignature:
            raise NoteError(
                f"the signature of {name} is false: the text was changed, or somebody else signed"
            ) from None
        good = True
    if not good:
        signers = ", ".join(sorted({f"{name}+{raw[:4].hex()}" for name, raw in lines}))
        wanted = ", ".join(f"{name}+{id.hex()}" for name, id in known)
        raise NoteError(f"it is signed by {signers}, and not by {wanted or 'any key that was given'}")
    return text


def _parted(note: str) -> tuple[str, list[tuple[str, bytes]]]:
    head, blank, tail = note.rpartition("\n\n")
    if not blank or not tail.endswith("\n") or any(ord(char) < 32 and char != "\n" for char in note):
        raise NoteError("it is no signed note: text, an empty line, signatures")
    lines = []
    for line in tail.splitlines()[:SIGNATURES]:
        parts = _LINE.fullmatch(line)
        raw = _unbase64(parts[2]) if parts else None
        if parts is None or raw is None or len(raw) < 5:
            raise NoteError(f"{line[:60]!r} is no signature")
        lines.append((parts[1], raw))
    return head + "\n", lines


class Checkpoint(msgspec.Struct, frozen=True):
    """The size and the root of a tree, and whose tree it is."""

    origin: str
    size: int
    root: bytes

    def text(self) -> str:
        """What is signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"


def read_checkpoint(note: str, keys: Sequence[Verifier]) -> Checkpoint:
    """The checkpoint that a note holds. NoteError unless one of the keys has signed it under its own name."""
    lines = opened(note, keys).split("\n")
    root = _unbase64(lines[2]) if len(lines) > 3 else None
    if root is None or len(root) != 32 or not lines[0] or not _NUMBER.fullmatch(lines[1]):
        raise NoteError("it is no checkpoint: a name, a number and a root, each on a line of its own")
    return Checkpoint(lines[0], int(lines[1]), root)


def _unbase64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
