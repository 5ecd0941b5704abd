"""Keys: the public file that says which key signs for whom, and from when to when."""

from __future__ import annotations

import base64
import binascii
import os
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import msgspec

from posthouse.errors import ConfigurationError, did_you_mean

State = Literal["next", "active", "retired", "revoked"]
Use = Literal["facts", "edits", "audit", "contracts"]

DLQ = ".dlq"
"""Topics of dead letters carry what was signed for the topic that they are named after."""
KEY_BYTES = 32


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A public key. It signs for one `source`, on `topics`, for `tenants`; in patterns `*` stands for anything. A key for `edits`
    signs held events that an operator changed, one for `audit` checkpoints of the audit log, and neither ever a fact on its way.
    Moments are seconds since 1970, None where there is none.

    It signs `since` a moment until it is `retired`, and verifies from the day on which it is in the file, so that readers know it
    first; what arrived before `until`, and before it was `revoked`. Never is the time that an event carries looked at."""

    id: str
    public: bytes
    source: str
    topics: tuple[str, ...] = ("*",)
    tenants: tuple[str, ...] = ("*",)
    use: Use = "facts"
    since: float = 0.0
    retired: float | None = None
    until: float | None = None
    revoked: float | None = None

    def state(self, now: float) -> State:
        """How it stands."""
        if self.revoked is not None and self.revoked <= now:
            return "revoked"
        if self.retired is not None and self.retired <= now:
            return "retired"
        return "next" if self.since > now else "active"

    def refuses(self, at: float) -> str:
        """Why it does not stand for what arrived at that moment; empty when it does."""
        if self.revoked is not None and at >= self.revoked:
            return f"key {self.id!r} was revoked before it arrived"
        if self.until is not None and at >= self.until:
            return f"key {self.id!r} was out of use before it arrived"
        return ""

    def signs_for(self, source: str, topic: str, tenant: str) -> bool:
        """Whether such facts are its own."""
        return source == self.source and fits(topic.removesuffix(DLQ), self.topics) and fits(tenant, self.tenants)


def fits(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of them stands for a name."""
    return any(pattern in ("*", name) or fnmatchcase(name, pattern) for pattern in patterns)


def read_keys(path: Path) -> Mapping[str, Key]:
    """The keys of a public file, by their ids. ConfigurationError with everything that is wrong with it."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(
            f"the keys in {path} cannot be read: {error}. `posthouse keys new` makes them"
        ) from error
    tables, problems = found.pop("keys", {}), []
    problems += [f"{path}: {name!r} is no table of keys.{did_you_mean(name, ['keys'])}" for name in found]
    if not isinstance(tables, dict):
        raise ConfigurationError(f"{path}: keys is no table: write [keys.ID]")
    keys: dict[str, Key] = {}
    for id, table in tables.items():
        try:
            keys[id] = _key(id, table)
        except ValueError as error:
            problems.append(f"{path}: key {id!r}: {error}")
    if problems:
        raise ConfigurationError(*problems)
    return keys


_FIELDS = [field for field in Key.__struct_fields__ if field != "id"]
_MOMENTS = ("since", "retired", "until", "revoked")


def _key(id: str, table: Any) -> Key:
    if not isinstance(table, dict):
        raise ValueError("it is no table")
    for name in table:
        if name not in _FIELDS:
            raise ValueError(f"there is no {name!r}.{did_you_mean(name, _FIELDS)}")
    given = dict(table)
    for name in _MOMENTS:
        if name in given:
            given[name] = _moment(name, given[name])
    given["public"] = unbase64_key(given.get("public"), "public")
    try:
        return msgspec.convert({**given, "id": id}, Key)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def unbase64_key(text: object, name: str) -> bytes:
    """32 bytes in base64; ValueError for anything else."""
    try:
        found = base64.b64decode(text if isinstance(text, str) else "", validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if len(found) != KEY_BYTES:
        raise ValueError(f"{name} is not the base64 text of {KEY_BYTES} bytes")
    return found


def _moment(name: str, value: object) -> float:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ValueError(f"{name} is a moment with its zone, as in 2026-11-18T12:00:00Z, without quotes")
    return value.timestamp()


def write_keys(path: Path, keys: Iterable[Key]) -> None:
    """Replace the public file at one stroke: who reads it meanwhile sees the one before, or this."""
    lines = [
        "# Public keys of signed facts, as `posthouse keys` writes them. No secret is in here: give it to every reader."
    ]
    for key in keys:
        lines += ["", f"[keys.{_text(key.id)}]", f"source = {_text(key.source)}"]
        lines += [f"{name} = [{', '.join(map(_text, getattr(key, name)))}]" for name in ("topics", "tenants")]
        lines += [f"use = {_text(key.use)}", f"public = {_text(base64.b64encode(key.public).decode())}"]
        moments = [(name, getattr(key, name)) for name in _MOMENTS]
        lines += [f"{name} = {datetime.fromtimestamp(at, UTC).isoformat()}" for name, at in moments if at is not None]
    replace_file(path, "\n".join(lines) + "\n", mode=0o644)


def replace_file(path: Path, text: str, *, mode: int) -> None:
    """Write a file that is never there by half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _text(text: str) -> str:
    return msgspec.json.encode(text).decode()  # which is TOML, too


def read_private(path: Path) -> Mapping[str, bytes]:
    """Private keys by the ids of their public ones: lines of an id, a colon and base64. ConfigurationError for anything else."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the private keys in {path} cannot be read: {error}") from error
    return private_in(text, str(path))


def private_in(text: str, where: str) -> Mapping[str, bytes]:
    """The same in a text, also with commas in place of line ends. What is wrong is told by its line, never by its words."""
    found: dict[str, bytes] = {}
    for number, line in enumerate(text.replace(",", "\n").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        id, _, secret = line.strip().rpartition(":")
        try:
            found[id.strip()] = unbase64_key(secret.strip(), "the private key")
        except ValueError as error:
            raise ConfigurationError(f"{where}, line {number}: {error}: write ID:BASE64") from None
    return found
