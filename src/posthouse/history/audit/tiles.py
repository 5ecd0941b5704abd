"""Tiles: a tree as files that never change (C2SP tlog-tiles). A tile holds up to 256 hashes of one level; each hash of a level
stands for a full tile of the level below. Pure: `Edge` grows, and says which tiles have become full."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from posthouse.history.audit.merkle import folded, peaks_of, root_of_full

WIDTH = 256
"""Hashes in a full tile."""
HEIGHT = 8
HASH = 32
"""Bytes of one hash."""

Written = tuple[str, bytes]
"""A path, and what is at it."""


def tile_path(level: int | str, index: int, width: int = WIDTH) -> str:
    """Where a tile is; `entries` is the level of the bundles of entries. A width below 256 is that of a partial one."""
    groups = [f"{index % 1000:03d}"]
    while index := index // 1000:
        groups.insert(0, f"x{index % 1000:03d}")
    return f"tile/{level}/{'/'.join(groups)}" + (f".p/{width}" if width < WIDTH else "")


def partial(size: int) -> Iterator[tuple[int, int, int]]:
    """Level, index and width of the partial tiles of a tree."""
    level, left = 0, size
    while left:
        if left % WIDTH:
            yield level, left // WIDTH, left % WIDTH
        level, left = level + 1, left // WIDTH


class Edge:
    """The right edge of a growing tree: of each level the hashes that fill no tile yet."""

    def __init__(self, levels: Sequence[Sequence[bytes]] = ()) -> None:
        self._levels = [list(hashes) for hashes in levels]

    @property
    def size(self) -> int:
        """How many leaves there are."""
        return sum(len(hashes) << HEIGHT * level for level, hashes in enumerate(self._levels))

    def leaves(self) -> Sequence[bytes]:
        """Those of the tile of leaves that is not full yet."""
        return self._levels[0] if self._levels else []

    def add(self, leaves: Sequence[bytes]) -> Iterator[Written]:
        """Append leaves; what comes out are the tiles that became full, each after those below it."""
        yield from self._add(0, leaves, self.size >> HEIGHT)

    def root(self) -> bytes:
        """The root as it stands."""
        return folded([peak for hashes in reversed(self._levels) for peak in peaks_of(hashes)])

    def partial_tiles(self) -> Iterator[Written]:
        """The tiles at the edge, as the root of this size needs them."""
        for level, index, width in partial(self.size):
            yield tile_path(level, index, width), b"".join(self._levels[level])

    def _add(self, level: int, hashes: Sequence[bytes], index: int) -> Iterator[Written]:
        if level == len(self._levels):
            self._levels.append([])
        here = self._levels[level]
        start = 0
        while start < len(hashes):
            taken = hashes[start : start + WIDTH - len(here)]
            here += taken
            start += len(taken)
            if len(here) == WIDTH:
                tile = list(here)
                here.clear()
                yield tile_path(level, index), b"".join(tile)
                yield from self._add(level + 1, [root_of_full(tile)], index >> HEIGHT)
                index += 1


class Tiles:
    """The full trees of a tree of `size`, read from its tiles. `read` gives the bytes at a path, None where there is nothing.
    Raises Missing for a tile that is not there, or not as long as it must be."""

    def __init__(self, read: Callable[[str], bytes | None], size: int) -> None:
        self._read = read
        self._size = size
        self._seen: dict[tuple[int, int], list[bytes]] = {}

    def full(self, height: int, index: int) -> bytes:
        """A FullTree of `merkle`."""
        level, above = divmod(height, HEIGHT)
        first, count = index << above, 1 << above
        tile = self.tile(level, first // WIDTH)
        at = first % WIDTH
        return root_of_full(tile[at : at + count])

    def tile(self, level: int, index: int) -> list[bytes]:
        """The hashes of a tile that lie in this tree."""
        if (found := self._seen.get((level, index))) is None:
            width = min(WIDTH, (self._size >> HEIGHT * level) - index * WIDTH)
            found = self._seen[level, index] = hashes_of(read_tile(self._read, level, index, width))
            if len(self._seen) > 4096:
                self._seen.pop(next(iter(self._seen)))
        return found

    def edge(self) -> Edge:
        """What a tree of this size goes on from."""
        levels: list[list[bytes]] = []
        for level, index, _ in partial(self._size):
            levels += [[] for _ in range(level - len(levels))]
            levels.append(self.tile(level, index))
        return Edge(levels)


class Missing(Exception):
    """A tile that a tree needs cannot be read: its path, and why."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} {why}")
        self.path = path


def read_tile(read: Callable[[str], bytes | None], level: int, index: int, width: int) -> bytes:
    """The first `width` hashes of a tile, from the partial one or from the full one that took its place."""
    path = tile_path(level, index, width)
    found = read(path)
    if found is None and width < WIDTH:
        found = read(tile_path(level, index))
        found = None if found is None else found[: width * HASH]
    if found is None:
        raise Missing(path, "is not there")
    if len(found) != width * HASH:
        raise Missing(path, f"has {len(found)} bytes and not {width * HASH}")
    return found


def hashes_of(tile: bytes) -> list[bytes]:
    """The hashes in the bytes of a tile."""
    return [tile[at : at + HASH] for at in range(0, len(tile), HASH)]
