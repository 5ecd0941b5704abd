"""The log of an archive: what is live in it, and since when. It decides; the store follows it, and a listing means nothing.

An entry is an object that is written once, under its number, and only where there is none of that number yet. Whoever writes entry N has
therefore read all before it: a member that was thought to be dead finds the entry by which its plan was given up in its way, and
nothing that it wrote counts. Files come and go in one entry, so that readers see what was compacted in one form, never in both or
neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from posthouse.errors import ArchiveDamaged
from posthouse.history.archive.files import File
from posthouse.history.archive.places import Place

LOG, CHECKPOINTS = "log/", "checkpoint/"
EVERY = 100
"""Entries from one checkpoint to the next: so many are read at most before a reader knows what is live."""

Why = Literal["written", "compacted", "expired", "given up", "deleted"]


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change: files that are live from now on, and files that are not any more. `done` are the plans that these came of, `aborted`
    those that will never be done, and `abandoned` are the objects that may have come of them. `deleted` were not live, and are not there
    any more. `id` tells it from any other of the same number; `at` and `by` are for people."""

    generation: int
    id: str
    why: Why
    at: float
    by: str
    add: tuple[File, ...] = ()
    remove: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    aborted: tuple[str, ...] = ()
    abandoned: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What is live after an entry of the log. `gone`: what is not live any more, or never was, and lies there still, since when:
    whoever began to read before may need it."""

    generation: int = 0
    files: Mapping[str, File] = {}
    gone: Mapping[str, float] = {}

    def after(self, entry: Entry) -> Manifest:
        """The same after the next entry."""
        removed, deleted = set(entry.remove), set(entry.deleted)
        files = {name: file for name, file in self.files.items() if name not in removed}
        gone = {name: at for name, at in self.gone.items() if name not in deleted}
        gone.update(dict.fromkeys((*entry.remove, *entry.abandoned), entry.at))
        return Manifest(generation=entry.generation, files=files | {file.name: file for file in entry.add}, gone=gone)


class _Checkpoint(msgspec.Struct, frozen=True):
    generation: int
    files: tuple[File, ...]
    gone: Mapping[str, float]


def entry_name(generation: int) -> str:
    """What the object of an entry is called."""
    return f"{LOG}{generation:020d}.json"


def read_entry(place: Place, generation: int) -> Entry | None:
    """One entry; None where the log is not that long."""
    found = place.get(entry_name(generation))
    if found is None:
        return None
    try:
        entry = msgspec.json.decode(found, type=Entry)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ArchiveDamaged(f"{entry_name(generation)} is no entry of the log: {error}") from error
    if entry.generation != generation:
        raise ArchiveDamaged(f"{entry_name(generation)} says that it is entry {entry.generation}")
    return entry


def read_manifest(place: Place) -> Manifest:
    """What is live now: from the last checkpoint on."""
    manifest = _checkpointed(place)
    while (entry := read_entry(place, manifest.generation + 1)) is not None:
        manifest = manifest.after(entry)
    return manifest


def read_log(place: Place) -> list[Entry]:
    """Every entry, from the first."""
    entries: list[Entry] = []
    while (entry := read_entry(place, len(entries) + 1)) is not None:
        entries.append(entry)
    return entries


def _checkpointed(place: Place) -> Manifest:
    """A checkpoint saves reading: one that cannot be read is as good as none."""
    for found in sorted(place.names(CHECKPOINTS), reverse=True):
        try:
            said = msgspec.json.decode(place.get(found.name) or b"", type=_Checkpoint)
        except (msgspec.DecodeError, msgspec.ValidationError):
            continue
        return Manifest(generation=said.generation, files={file.name: file for file in said.files}, gone=said.gone)
    return Manifest()


def write_checkpoint(place: Place, manifest: Manifest) -> None:
    """For readers to begin at; whoever is second finds it there."""
    data = msgspec.json.encode(_Checkpoint(manifest.generation, tuple(manifest.files.values()), manifest.gone))
    place.put_new(f"{CHECKPOINTS}{manifest.generation:020d}.json", data)


async def current(place: Place) -> Manifest:
    """`read_manifest`, from a loop."""
    return await asyncio.to_thread(read_manifest, place)


def names_of(entries: Sequence[Entry]) -> set[str]:
    """Every file that was ever live."""
    return {file.name for entry in entries for file in entry.add}
