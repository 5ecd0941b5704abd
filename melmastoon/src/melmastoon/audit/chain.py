"""Chain: one per tenant. Each entry's hash holds the one before it; each day is closed under a Merkle root."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import date

import msgspec

from melmastoon.facts.audit import EntryAppended, MerkleAnchored
from melmastoon.tables import run, typed
from posthouse import Reject, Tx
from posthouse.history.audit.merkle import folded, full_of, grown, inclusion, leaf, leaves

FIRST_SIGHT = """INSERT INTO audit_head (tenant, position, hash, day, day_begins, peaks, root)
    VALUES (?, 0, '', '', 1, '', '') ON CONFLICT DO NOTHING"""
HEAD = "SELECT position, hash, day, day_begins, peaks, root FROM audit_head WHERE tenant = ? FOR UPDATE"
MOVE = """UPDATE audit_head SET position = ?, hash = ?, day = ?, day_begins = ?, peaks = ?, root = ?
    WHERE tenant = ?"""
APPEND = """INSERT INTO audit_entry (tenant, position, entry_id, about, day, said_at, digest, hash)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
ANCHOR = "INSERT INTO audit_anchor (tenant, day, first_position, entries, root) VALUES (?, ?, ?, ?, ?)"
ENTRIES = """SELECT position, entry_id, about, day, said_at, digest, hash FROM audit_entry
    WHERE tenant = ? AND position > ? ORDER BY position LIMIT 1000"""
FIND = "SELECT position, day, hash FROM audit_entry WHERE tenant = ? AND entry_id = ?"
ANCHORED = "SELECT root FROM audit_anchor WHERE tenant = ? AND day = ?"
HASHES_OF_DAY = "SELECT position, hash FROM audit_entry WHERE tenant = ? AND day = ? ORDER BY position"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be remembered: the digest of a fact, or of a note."""

    entry_id: str
    about: str
    said_at: str
    digest: str
    announced: bool
    """Whether `entry.appended` is said about it."""


class Head(msgspec.Struct, kw_only=True, array_like=True):
    """The end of a chain, and the peaks of the day that is open."""

    position: int
    hash: str
    day: str
    day_begins: int
    peaks: str
    root: str


Said = EntryAppended | MerkleAnchored


async def append(tx: Tx, entries: Sequence[Entry], *, turns_the_day: bool = True) -> list[Said]:
    """Append these, and say what is to be said. The first entry of another day, by this service's clock, closes the one
    before, unless it is not to turn the day: then it still belongs to the open one. A day that is closed never grows."""
    head = await _locked(tx)
    said: list[Said] = []
    today = max(tx.today.isoformat(), head.day)  # should the clock be set back, the open day goes on
    if head.day != today and (turns_the_day or not _open_entries(head)):
        said += await _close_day(tx, head)
        head.day = today
    for entry in entries:
        head.position += 1
        head.hash = link(head.hash, head.position, head.day, entry)
        new = leaf(bytes.fromhex(head.hash))
        head.peaks = _text(grown(_peaks(head.peaks), head.position - head.day_begins, new))
        values = (head.position, entry.entry_id, entry.about, head.day, entry.said_at, entry.digest, head.hash)
        await run(tx, APPEND, tx.tenant, *values)
        if entry.announced:
            said.append(
                EntryAppended(entry_id=entry.entry_id, about=entry.about, position=head.position, entry_hash=head.hash)
            )
    await _save(tx, head)
    return said


async def close_day(tx: Tx) -> list[MerkleAnchored]:
    """Close the open day if it is over: for tenants of whom nothing more is heard."""
    head = await _locked(tx)
    if head.day >= tx.today.isoformat():
        return []
    said = await _close_day(tx, head)
    await _save(tx, head)
    return said


async def first_broken(tx: Tx) -> int | None:
    """The position of the first entry that is not as it was appended, or is missing; None when the chain holds."""
    before, last = "", 0
    while page := typed(await run(tx, ENTRIES, tx.tenant, last), tuple[int, str, str, str, str, str, str]):
        for position, entry_id, about, day, said_at, digest, hash in page:
            entry = Entry(entry_id=entry_id, about=about, said_at=said_at, digest=digest, announced=False)
            if hash != link(before, position, day, entry):
                return last + 1
            before, last = hash, position
    head = await _locked(tx)
    return None if (head.position, head.hash) == (last, before) else last + 1


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """That an entry is the `index`-th of the `size` of its day: its neighbours on the way to the root, as in RFC 6962."""

    entry_hash: str
    index: int
    size: int
    path: list[bytes]
    root: str


async def prove(tx: Tx, entry_id: str) -> Proof:
    """The proof of an entry whose day is closed."""
    found = typed(await run(tx, FIND, tx.tenant, entry_id), tuple[int, str, str])
    if not found:
        raise Reject(f"{entry_id} is not in the chain of this tenant")
    position, day, hash = found[0]
    anchored = typed(await run(tx, ANCHORED, tx.tenant, day), tuple[str])
    if not anchored:
        raise Reject(f"{day} is not closed yet: its entries can be proven once it is")
    hashes = typed(await run(tx, HASHES_OF_DAY, tx.tenant, day), tuple[int, str])
    index, of_day = position - hashes[0][0], leaves(bytes.fromhex(one) for _, one in hashes)
    path = inclusion(index, len(of_day), full_of(of_day))
    return Proof(entry_hash=hash, index=index, size=len(of_day), path=path, root=anchored[0][0])


def link(before: str, position: int, day: str, entry: Entry) -> str:
    """The hash of an entry behind another one."""
    parts = (before, position, day, entry.entry_id, entry.about, entry.said_at, entry.digest)
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


async def _locked(tx: Tx) -> Head:
    await run(tx, FIRST_SIGHT, tx.tenant)
    [head] = typed(await run(tx, HEAD, tx.tenant), Head)
    return head


async def _save(tx: Tx, head: Head) -> None:
    await run(tx, MOVE, *msgspec.structs.astuple(head), tx.tenant)


async def _close_day(tx: Tx, head: Head) -> list[MerkleAnchored]:
    """Put a root over the open day, and begin none."""
    entries = _open_entries(head)
    if not entries:
        return []
    root = folded(_peaks(head.peaks)).hex()
    await run(tx, ANCHOR, tx.tenant, head.day, head.day_begins, entries, root)
    said = MerkleAnchored(
        anchor_id=head.day,
        day=date.fromisoformat(head.day),
        first_position=head.day_begins,
        entries=entries,
        root=root,
        previous_root=head.root,
    )
    head.day_begins, head.peaks, head.root = head.position + 1, "", root
    return [said]


def _peaks(text: str) -> list[bytes]:
    return [bytes.fromhex(peak) for peak in text.split()]


def _text(peaks: Sequence[bytes]) -> str:
    return " ".join(peak.hex() for peak in peaks)


def _open_entries(head: Head) -> int:
    return head.position - head.day_begins + 1
