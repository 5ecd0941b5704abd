"""Halves: where the private keys of this process are, read as often as that changes, and what is wrong with them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from posthouse.errors import ConfigurationError
from posthouse.outage import span
from posthouse.trust.signatures.keys import Key, private_in, read_private

PRIVATE, PRIVATE_FILE = "POSTHOUSE_SIGNING_PRIVATE", "POSTHOUSE_SIGNING_PRIVATE_FILE"
"""Variables of the environment: private keys themselves, or where they are."""


class Halves:
    """Private keys in a file, in the files of a folder but for hidden ones, as secrets are mounted, or in a text. No place: none."""

    def __init__(self, path: Path | None = None, text: str = "") -> None:
        self._path = path
        self._text = text

    def read(self) -> Mapping[str, bytes]:
        """By the ids of their public ones. ConfigurationError for what is no key, and for an id that has two."""
        if self._path is None:
            return private_in(self._text, PRIVATE)
        found: dict[str, bytes] = {}
        for file in self._files():
            for id, seed in read_private(file).items():
                if found.setdefault(id, seed) != seed:
                    raise ConfigurationError(f"{self._path}: the private key {id!r} is there twice, and not the same")
        return found

    def stamp(self) -> object:
        """Something else once what is there has changed."""
        return [(file, stamp_of(file)) for file in self._files()]

    def open_to_others(self) -> Iterator[Path]:
        """Files that somebody else than their owner and his group may read."""
        with_modes = ((file, file.stat().st_mode) for file in self._files())
        return (file for file, mode in with_modes if mode & stat.S_IROTH and os.name == "posix")

    def _files(self) -> list[Path]:
        if self._path is None or not self._path.is_dir():
            return [] if self._path is None else [self._path]
        return sorted(one for one in self._path.iterdir() if not one.name.startswith(".") and one.is_file())


def halves_here(path: Path | None = None) -> Halves:
    """At a path, else where the environment says."""
    if path is None and (said := os.environ.get(PRIVATE_FILE)):
        path = Path(said)
    return Halves(path) if path is not None else Halves(text=os.environ.get(PRIVATE, ""))


def stamp_of(path: Path) -> object:
    """Something else once a file was changed; None while it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class Lack(NamedTuple):
    """What is missing to sign facts of a source, and whether already now nothing can be signed."""

    words: str
    now: bool


def lacking(keys: Mapping[str, Key], here: Mapping[str, bytes], source: str, now: float) -> Iterator[Lack]:
    """Nothing where no key is for the source. Keys for the same topics and tenants follow one another; those for others may be at home
    in another process, unless this one has none at all."""
    turns: dict[object, list[Key]] = {}
    for key in keys.values():
        if key.source == source and key.use == "facts":
            turns.setdefault((key.topics, key.tenants), []).append(key)
    ours = [turn for turn in turns.values() if any(key.id in here for key in turn)] or list(turns.values())
    if ours and not any(key.state(now) == "active" for turn in ours for key in turn):
        yield Lack(f"nothing of {source} can be signed: no key is active. `posthouse keys new` makes one", now=True)
    for turn in ours:
        yield from _missing(turn, here, source, now)


def _missing(turn: Sequence[Key], here: Mapping[str, bytes], source: str, now: float) -> Iterator[Lack]:
    active = sorted((key for key in turn if key.state(now) == "active"), key=lambda key: (key.since, key.id))
    if active and active[-1].id not in here:
        if none := not any(key.id in here for key in active):
            words = f"nothing of {source} can be signed: the private half of {active[-1].id} is not here"
        else:
            words = f"{active[-1].id} signs for {source} by now, and its private half is not here"
        yield Lack(words, now=none)
    for key in turn:
        if key.state(now) == "next" and key.id not in here:
            yield Lack(
                f"{key.id} signs for {source} in {span(key.since - now)}: its private half is not here", now=False
            )
