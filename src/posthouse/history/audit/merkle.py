"""Merkle: the tree of RFC 6962 over SHA-256. One root for any number of entries, and short proofs that one entry is among them
and that one tree is the beginning of another. Pure.

The tree of n leaves is that of the largest power of two below n beside the rest. `FullTree` answers for the full trees in it,
wherever their hashes are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

FullTree = Callable[[int, int], bytes]
"""The root of a full tree: of the height `h`, the `i`-th of the leaves `i * 2**h` up to `(i + 1) * 2**h`."""

EMPTY = sha256(b"").digest()
"""The root of no leaves at all."""


def leaf(entry: bytes) -> bytes:
    """The leaf of an entry."""
    return sha256(b"\x00" + entry).digest()


def leaves(entries: Iterable[bytes]) -> list[bytes]:
    """Those of many."""
    return [sha256(b"\x00" + entry).digest() for entry in entries]


def node(left: bytes, right: bytes) -> bytes:
    """What stands over two."""
    return sha256(b"\x01" + left + right).digest()


def paired(hashes: Sequence[bytes]) -> list[bytes]:
    """The level above an even number of hashes."""
    return [sha256(b"\x01" + a + b).digest() for a, b in zip(hashes[::2], hashes[1::2], strict=True)]


def root_of_full(hashes: Sequence[bytes]) -> bytes:
    """The root over a power of two of hashes."""
    while len(hashes) > 1:
        hashes = paired(hashes)
    return hashes[0]


def peaks_of(hashes: Sequence[bytes]) -> list[bytes]:
    """The roots of the full trees side by side over any number of hashes, the largest first."""
    found, start = [], 0
    while start < len(hashes):
        width = 1 << (len(hashes) - start).bit_length() - 1
        found.append(root_of_full(hashes[start : start + width]))
        start += width
    return found


def folded(peaks: Sequence[bytes]) -> bytes:
    """The root over peaks, the largest first."""
    if not peaks:
        return EMPTY
    *others, root = peaks
    for peak in reversed(others):
        root = node(peak, root)
    return root


def grown(peaks: Sequence[bytes], count: int, leaf: bytes) -> list[bytes]:
    """The peaks of a tree of `count` leaves after one more leaf: for whoever keeps nothing else of it."""
    after = [*peaks, leaf]
    while count & 1:
        right = after.pop()
        after.append(node(after.pop(), right))
        count >>= 1
    return after


def full_of(leaves: Sequence[bytes]) -> FullTree:
    """The full trees over leaves that are in memory."""
    return lambda height, index: root_of_full(leaves[index << height : (index + 1) << height])


def root(size: int, full: FullTree) -> bytes:
    """That of the first `size` leaves."""
    return _root(0, size, full)


def inclusion(index: int, size: int, full: FullTree) -> list[bytes]:
    """The proof that leaf `index` is among `size`: the neighbours on the way up, the lowest first."""
    if not 0 <= index < size:
        raise ValueError(f"leaf {index} is not in a tree of {size}")
    low, high, path = 0, size, []
    while high - low > 1:
        middle = low + _half(high - low)
        if index < middle:
            path.append(_root(middle, high, full))
            high = middle
        else:
            path.append(_root(low, middle, full))
            low = middle
    return path[::-1]


def consistency(earlier: int, later: int, full: FullTree) -> list[bytes]:
    """The proof that the tree of `earlier` leaves is the beginning of that of `later`; empty where there is nothing to prove."""
    if not 0 <= earlier <= later:
        raise ValueError(f"a tree of {earlier} is not the beginning of one of {later}")
    if earlier in (0, later):
        return []
    low, high, path, whole = 0, later, list[bytes](), True
    while earlier != high:
        middle = low + _half(high - low)
        if earlier <= middle:
            path.append(_root(middle, high, full))
            high = middle
        else:
            path.append(_root(low, middle, full))
            low, whole = middle, False
    if not whole:
        path.append(_root(low, high, full))
    return path[::-1]


def includes(leaf_hash: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Whether a proof leads from a leaf to a root (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    at, last, reached = index, size - 1, leaf_hash
    for neighbour in path:
        if last == 0:
            return False
        if at & 1 or at == last:
            reached = node(neighbour, reached)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            reached = node(reached, neighbour)
        at, last = at >> 1, last >> 1
    return last == 0 and reached == root


def extends(earlier: int, before: bytes, later: int, after: bytes, path: Sequence[bytes]) -> bool:
    """Whether a proof shows that the tree `before`, of `earlier` leaves, is the beginning of `after` (RFC 9162, 2.1.4.2)."""
    if earlier == 0:
        return not path and before == EMPTY
    if earlier == later:
        return not path and before == after
    if not 0 < earlier < later or not path:
        return False
    steps = [before, *path] if earlier & (earlier - 1) == 0 else list(path)
    at, last = earlier - 1, later - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    old = new = steps[0]
    for neighbour in steps[1:]:
        if last == 0:
            return False
        if at & 1 or at == last:
            old, new = node(neighbour, old), node(neighbour, new)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            new = node(new, neighbour)
        at, last = at >> 1, last >> 1
    return last == 0 and old == before and new == after


def _half(count: int) -> int:
    """The largest power of two below a count of two or more."""
    return 1 << (count - 1).bit_length() - 1


def _root(low: int, high: int, full: FullTree) -> bytes:
    peaks = []
    while low < high:
        height = (high - low).bit_length() - 1
        peaks.append(full(height, low >> height))
        low += 1 << height
    return folded(peaks)
