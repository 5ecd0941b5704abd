"""Replaying: the log of an archive from its first entry, to find out whether it and its checkpoints are what was written.

A reader stops at the first thing that cannot be; here it is named, and what comes behind it is looked at too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from posthouse.errors import ArchiveDamaged
from posthouse.history.archive.files import File
from posthouse.history.archive.finding import Finding
from posthouse.history.archive.log import (
    CHECKPOINTS,
    LOG,
    Entry,
    Manifest,
    checkpoint_of,
    decoded,
    digest_of,
    entry_name,
    read_entry,
)
from posthouse.history.archive.places import Place


class Replayed(NamedTuple):
    """What came of it. `expired`: files that somebody let go of."""

    entries: Sequence[Entry]
    manifest: Manifest
    expired: Sequence[File]
    findings: Sequence[Finding]


def replayed(place: Place, known: int = 0) -> Replayed:
    """All of it. `known`: the highest entry that somebody else knows, who was asked before."""
    checkpoints, findings = _checkpoints(place)
    names = sorted(
        found.name for found in place.names(LOG)
    )  # before it is read: whoever writes meanwhile is not beyond its end
    entries, expired, manifest, whole = list[Entry](), list[File](), Manifest(), True
    while True:
        generation = manifest.generation + 1
        try:
            entry = read_entry(place, generation)
        except ArchiveDamaged as error:
            findings.append(
                Finding("log", entry_name(generation), f"it cannot be read, and readers stop there: {error}")
            )
            manifest, whole = msgspec.structs.replace(manifest, generation=generation), False
            continue
        if entry is None:
            break
        if whole and (misfit := manifest.misfit(entry)):
            findings.append(Finding("log", entry_name(generation), misfit))
        if entry.why == "expired":
            expired += [manifest.files[name] for name in entry.remove if name in manifest.files]
        entries.append(entry)
        manifest = manifest.with_all_of(entry)
        if entry.checkpoint or generation in checkpoints:
            findings += _compared(manifest, entry, checkpoints.get(generation), whole)
    findings += _end(manifest.generation, names, checkpoints, known)
    return Replayed(entries, manifest, expired, findings)


def _checkpoints(place: Place) -> tuple[dict[int, tuple[str, str]], list[Finding]]:
    """Name and hash of each, by its entry."""
    checkpoints, findings = dict[int, tuple[str, str]](), list[Finding]()
    for found in sorted(place.names(CHECKPOINTS)):
        data = place.get(found.name) or b""
        said = decoded(found.name, data)
        if said is None:
            findings.append(Finding("checkpoint", found.name, "it is none, or that of another entry: nobody reads it"))
        else:
            checkpoints[said.generation] = (found.name, digest_of(data))
    return checkpoints, findings


def _compared(manifest: Manifest, entry: Entry, checkpoint: tuple[str, str] | None, whole: bool) -> list[Finding]:
    """Whether a checkpoint, and the hash of it in the log, are what the entries up to it give."""
    right = digest_of(checkpoint_of(manifest)) if whole else entry.checkpoint
    findings = []
    if entry.checkpoint and entry.checkpoint != right:
        name = entry_name(entry.generation)
        findings.append(
            Finding("log", name, "the entries up to it give another hash than it has: one of them was changed")
        )
    if checkpoint is not None and checkpoint[1] != right:
        findings.append(Finding("checkpoint", checkpoint[0], "it is not what the log gives: it was changed"))
    elif checkpoint is not None and not entry.checkpoint:
        findings.append(
            Finding("checkpoint", checkpoint[0], "its entry of the log does not confirm it: nobody reads it")
        )
    return findings


def _end(last: int, names: Sequence[str], checkpoints: Mapping[int, tuple[str, str]], known: int) -> list[Finding]:
    """Whether the log ends where it did."""
    lacking, findings = entry_name(last + 1), list[Finding]()
    if beyond := [name for name in names if name > entry_name(last)]:
        words = f"it is missing, and {len(beyond):,} entries behind it, from {beyond[0]} on, count for nothing"
        findings.append(Finding("log", lacking, words))
    if foreign := [name for name in names if name <= entry_name(last) and not _is_entry(name)]:
        findings += [Finding("log", name, "it is no entry, and nobody reads it") for name in foreign]
    if known > last:
        words = f"it is missing: the database knows entries up to {known:,}, and the log ends with {last:,}"
        findings.append(Finding("log", lacking, words))
    if (highest := max(checkpoints, default=0)) > last:
        words = f"it is missing: {checkpoints[highest][0]} says that there was one of number {highest:,}"
        findings.append(Finding("log", lacking, words))
    return findings


def _is_entry(name: str) -> bool:
    number = name.removeprefix(LOG).removesuffix(".json")
    return number.isdecimal() and name == entry_name(int(number))
