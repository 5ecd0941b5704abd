"""The log of an archive: what is live in it, and since when. It decides; the store follows it, and a listing means nothing.

An entry is an object that is written once, under its number, and only where there is none of that number yet. Whoever writes entry N has
therefore read all before it: a member that was thought to be dead finds the entry by which its plan was given up in its way, and
nothing that it wrote counts. Files come and go in one entry, so that readers see what was compacted in one form, never in both or
neither.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from posthouse.errors import ArchiveDamaged
from posthouse.history.archive.files import File
from posthouse.history.archive.places import Place

log = logging.getLogger("posthouse.archive")

LOG, CHECKPOINTS = "log/", "checkpoint/"
EVERY = 100
"""Entries from one checkpoint to the next: so many are read at most before a reader knows what is live."""

Why = Literal["written", "compacted", "expired", "given up", "deleted"]


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change: files that are live from now on, and files that are not any more. `done` are the plans that these came of, `aborted`
    those that will never be done, and `abandoned` are the objects that may have come of them. `deleted` were not live, and are not there
    any more. `checkpoint` is the hash of what is live after it, where a checkpoint follows. `id` tells it from any other of the same
    number; `at` and `by` are for people."""

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
    checkpoint: str = ""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What is live after an entry of the log. `gone`: what is not live any more, or never was, and lies there still, since when:
    whoever began to read before may need it."""

    generation: int = 0
    files: Mapping[str, File] = {}
    gone: Mapping[str, float] = {}

    def misfit(self, entry: Entry) -> str:
        """Why an entry cannot be the next one; empty where it can."""
        if entry.generation != self.generation + 1:
            return f"it does not follow entry {self.generation}"
        if lacking := [name for name in entry.remove if name not in self.files]:
            return f"it takes {lacking[0]} away, which is not live: somebody else had replaced it"
        if double := [file.name for file in entry.add if file.name in self.files]:
            return f"it adds {double[0]}, which is live already"
        return ""

    def after(self, entry: Entry) -> Manifest:
        """The same after the next entry. Raises ArchiveDamaged for one that cannot be: what it adds would be there twice."""
        if misfit := self.misfit(entry):
            raise ArchiveDamaged(f"{entry_name(entry.generation)}: {misfit}. Run `posthouse archive verify`")
        return self.with_all_of(entry)

    def with_all_of(self, entry: Entry) -> Manifest:
        """What an entry says, whether it can be so or not."""
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
    """A checkpoint saves reading, and the log decides: one that its entry does not confirm is as good as none. One of an entry that
    is not there says that the log lost its end: ArchiveDamaged."""
    for found in sorted(place.names(CHECKPOINTS), reverse=True):
        data = place.get(found.name) or b""
        said = decoded(found.name, data)
        if said is None:
            continue
        entry = read_entry(place, said.generation)
        if entry is None:
            raise ArchiveDamaged(
                f"{found.name} is there, and entry {said.generation} of the log is not: the log lost its end, or somebody put that "
                "checkpoint there. Run `posthouse archive verify`"
            )
        if entry.checkpoint == digest_of(data):
            return said
        log.warning("%s is not what was written, and is not read: run `posthouse archive verify`", found.name)
    return Manifest()


def decoded(name: str, data: bytes) -> Manifest | None:
    """A checkpoint; None where there is none that is called so."""
    try:
        said = msgspec.json.decode(data, type=_Checkpoint)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    if name != checkpoint_name(said.generation):
        return None
    return Manifest(generation=said.generation, files={file.name: file for file in said.files}, gone=said.gone)


def checkpoint_name(generation: int) -> str:
    """What the object of a checkpoint is called."""
    return f"{CHECKPOINTS}{generation:020d}.json"


def checkpoint_of(manifest: Manifest) -> bytes:
    """The checkpoint, byte for byte the same whoever makes it."""
    files = tuple(manifest.files[name] for name in sorted(manifest.files))
    return msgspec.json.encode(_Checkpoint(manifest.generation, files, dict(sorted(manifest.gone.items()))))


def digest_of(checkpoint: bytes) -> str:
    """As its entry has it."""
    return hashlib.sha256(checkpoint).hexdigest()


def sealed(manifest: Manifest, entry: Entry) -> Entry:
    """An entry with the hash of the checkpoint that follows it, where one does."""
    if entry.generation % EVERY or manifest.generation + 1 != entry.generation:
        return entry
    return msgspec.structs.replace(entry, checkpoint=digest_of(checkpoint_of(manifest.after(entry))))


def write_checkpoint(place: Place, manifest: Manifest) -> None:
    """For readers to begin at; whoever is second finds it there."""
    place.put_new(checkpoint_name(manifest.generation), checkpoint_of(manifest))


async def current(place: Place) -> Manifest:
    """`read_manifest`, from a loop."""
    return await asyncio.to_thread(read_manifest, place)


def names_of(entries: Sequence[Entry]) -> set[str]:
    """Every file that was ever live."""
    return {file.name for entry in entries for file in entry.add}
