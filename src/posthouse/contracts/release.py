"""Release: the frozen contracts of a release as one file, known by the hash of its bytes. Pure.

sha256-<64 digits>.json    every file of `event-schemas/`, the same bytes for the same contents; never changed
latest.json                which of them holds now, and who says so
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

import msgspec

from posthouse.contracts.lock import LOCK, Lock, read_lock
from posthouse.errors import ConfigurationError

KIND = "posthouse-contracts/1"
LATEST = "latest.json"
MOST_BYTES = 32 * 1024 * 1024
"""Of a bundle; one that is larger is not read."""

_HASH = re.compile(r"sha256-[0-9a-f]{64}")


class Release(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a bundle holds: texts by their path below the frozen folder."""

    kind: str
    files: Mapping[str, str]


class Pointer(msgspec.Struct, frozen=True, kw_only=True):
    """What latest.json says: the hash of the bundle that holds, how large it is, when it was published (milliseconds since 1970; it
    only grows), and a signature of these with the id of its key; empty where nobody signed."""

    kind: str = KIND
    bundle: str
    size: int = msgspec.field(name="bytes")
    at: int
    key: str = ""
    signature: str = ""

    @property
    def path(self) -> str:
        """Where its bundle is."""
        return f"{self.bundle}.json"

    @property
    def material(self) -> bytes:
        """What is signed."""
        return f"{self.kind} {self.bundle} {self.size} {self.at}".encode()


def packed(files: Mapping[str, bytes]) -> bytes:
    """One file of many: the same bytes on every machine. Raises ConfigurationError for what is no text, and where there is no lock."""
    if LOCK not in files:
        raise ConfigurationError(f"there is no {LOCK} among these files: run `posthouse catalog freeze` first")
    try:
        texts = {path: files[path].decode() for path in sorted(files)}
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"a file of the frozen catalogue is no text: {error}") from error
    data = msgspec.json.encode(Release(kind=KIND, files=texts), order="sorted") + b"\n"
    if len(data) > MOST_BYTES:
        raise ConfigurationError(f"the contracts take {len(data):,} bytes, and readers take {MOST_BYTES:,} at most")
    return data


def hash_of(data: bytes) -> str:
    return f"sha256-{hashlib.sha256(data).hexdigest()}"


def unpacked(data: bytes, wanted: str) -> Mapping[str, bytes]:
    """The files of a bundle. ConfigurationError where it is not the one that is wanted, or none."""
    if (found := hash_of(data)) != wanted:
        raise ConfigurationError(f"what is called {wanted} is {found}: it was changed, or is damaged")
    try:
        release = msgspec.json.decode(data, type=Release)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{wanted} is no bundle of contracts: {error}") from error
    if release.kind != KIND:
        raise ConfigurationError(f"{wanted} is of the kind {release.kind!r:.80}, and this is known here: {KIND}")
    return {path: text.encode() for path, text in release.files.items()}


def lock_of(files: Mapping[str, bytes]) -> Lock:
    """The lock of a bundle's files. Raises ConfigurationError."""
    if LOCK not in files:
        raise ConfigurationError(f"the bundle has no {LOCK}")
    return read_lock(files[LOCK])


def pointer_file(pointer: Pointer) -> bytes:
    return msgspec.json.encode(pointer) + b"\n"


def pointer_in(data: bytes) -> Pointer:
    """What latest.json says. Raises ConfigurationError."""
    try:
        found = msgspec.json.decode(data, type=Pointer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{LATEST} cannot be read: {error}") from error
    if found.kind != KIND or not _HASH.fullmatch(found.bundle) or not 0 < found.size <= MOST_BYTES:
        raise ConfigurationError(f"{LATEST} names no bundle of contracts that is known here")
    return found
