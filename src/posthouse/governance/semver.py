"""Semantic versions of schemas, beside the major one in the event's name. Pure.

A change of the schema that may pass raises the minor number, one of words alone the patch. What breaks readers is another
event, with a name and a major number of its own.
"""

from __future__ import annotations

from msgspec.structs import replace

from posthouse.contracts.lock import Lock
from posthouse.governance.document import Document

Numbers = tuple[int, int, int]


def numbers(semver: str, major: int) -> Numbers:
    """Those of a version; the first ones where a lock of an older release has none."""
    found = [int(part) for part in semver.split(".")] if semver else [major, 0, 0]
    return found[0], found[1], found[2]


def raised(before: Numbers, *, schema: bool, words: bool) -> Numbers:
    """What must follow when the schema has changed, or only its words."""
    major, minor, patch = before
    if schema:
        return major, minor + 1, 0
    return (major, minor, patch + 1) if words else before


def text_of(found: Numbers) -> str:
    return ".".join(map(str, found))


def with_semver(document: Document, lock: Lock) -> Document:
    """The document with the versions that its schemas were frozen under; those that are otherwise in the code have none."""
    known = {(locked.subject, locked.hash): locked.semver for locked in lock.schemas.values()}
    return replace(
        document,
        events=tuple(replace(entry, semver=known.get((entry.subject, entry.hash), "")) for entry in document.events),
    )
