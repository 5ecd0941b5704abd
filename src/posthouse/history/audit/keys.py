"""Keys of checkpoints: those of `posthouse keys` that are for the audit log."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from posthouse.errors import ConfigurationError
from posthouse.history.audit.log import Signer
from posthouse.history.audit.notes import Verifier
from posthouse.history.audit.settings import PRIVATE, PRIVATE_FILE
from posthouse.trust.signatures.keys import Key, private_in, read_keys, read_private

USE = "audit"


def verifiers(path: Path) -> list[Verifier]:
    """The keys for checkpoints in a public file; also those that are retired or revoked: what they signed is under what came after."""
    found = [verifier_of(key) for key in read_keys(path).values() if key.use == USE]
    if not found:
        raise ConfigurationError(
            f"{path} has no key for checkpoints: `posthouse keys new ID --use audit --source /shop`"
        )
    return found


def verifier_of(key: Key) -> Verifier:
    """A key as tools for signed notes know it: its source, without the first slash, is the name of the log."""
    return Verifier(key.source.removeprefix("/"), key.public)


def signer_in(path: Path, private: Mapping[str, bytes], now: float) -> Signer:
    """Who signs now: the newest active key whose private half is here. ConfigurationError where there is none, or where they are of
    several logs."""
    known = {id: key for id, key in read_keys(path).items() if key.use == USE}
    mine = [key for id, key in known.items() if id in private and key.state(now) == "active"]
    if not mine:
        has = f"{path} has {_named(known)}" if known else f"{path} has no key for checkpoints"
        raise ConfigurationError(
            f"{has}, and none of them is active with its private half here: `posthouse keys new ID --use audit --source /shop`"
        )
    if len({key.source for key in mine}) > 1:
        raise ConfigurationError(
            f"{path}: {_named([k.id for k in mine])} sign for different logs: leave one private half here"
        )
    key = max(mine, key=lambda key: (key.since, key.id))
    keys = [verifier_of(one) for one in known.values() if one.source == key.source]
    return Signer(key.source.removeprefix("/"), private[key.id], keys)


def private_here(path: Path | None) -> Mapping[str, bytes]:
    """The private halves in a file; without one, those of the environment."""
    if path is None and (said := os.environ.get(PRIVATE_FILE)):
        path = Path(said)
    return private_in(os.environ.get(PRIVATE, ""), PRIVATE) if path is None else read_private(path)


def revoked_in(path: Path, now: float) -> list[Verifier]:
    """Those that others may have had."""
    return [verifier_of(key) for key in read_keys(path).values() if key.use == USE and key.state(now) == "revoked"]


def _named(ids: Collection[str]) -> str:
    return ", ".join(sorted(ids))
