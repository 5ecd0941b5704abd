"""Merkle: one hash for many entries, and a short proof that one of them is among these. Pure functions over hex texts.

Leaves and nodes are hashed apart, as in RFC 9162. The tree of n leaves is that of its largest power of two beside the rest:
so it grows leaf by leaf when only its peaks are kept, the roots of the full trees in it, the largest first."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

Step = tuple[str, str]
"""The side on which the neighbour stands, `left` or `right`, and its hash."""


def leaf(entry_hash: str) -> str:
    """The leaf of one entry."""
    return hashlib.sha256(b"\x00" + bytes.fromhex(entry_hash)).hexdigest()


def node(left: str, right: str) -> str:
    """What stands over two."""
    return hashlib.sha256(b"\x01" + bytes.fromhex(left) + bytes.fromhex(right)).hexdigest()


def grown(peaks: Sequence[str], count: int, new: str) -> list[str]:
    """The peaks of a tree of `count` leaves after one more leaf."""
    after = [*peaks, new]
    while count & 1:
        right = after.pop()
        after.append(node(after.pop(), right))
        count >>= 1
    return after


def root_of(peaks: Sequence[str]) -> str:
    """The root over peaks; there is at least one."""
    *others, root = peaks
    for peak in reversed(others):
        root = node(peak, root)
    return root


def proof(leaves: Sequence[str], index: int) -> list[Step]:
    """The way from a leaf to the root."""
    if len(leaves) == 1:
        return []
    half = 1 << (len(leaves) - 1).bit_length() - 1
    left, right = leaves[:half], leaves[half:]
    if index < half:
        return [*proof(left, index), ("right", _root(right))]
    return [*proof(right, index - half), ("left", _root(left))]


def proves(entry_hash: str, steps: Sequence[Step], root: str) -> bool:
    """Whether these steps lead from an entry to a root."""
    reached = leaf(entry_hash)
    for side, neighbour in steps:
        reached = node(neighbour, reached) if side == "left" else node(reached, neighbour)
    return reached == root


def _root(leaves: Sequence[str]) -> str:
    peaks: list[str] = []
    for count, one in enumerate(leaves):
        peaks = grown(peaks, count, one)
    return root_of(peaks)
