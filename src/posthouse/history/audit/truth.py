"""Truth: what a checkpoint signs, put together from whatever copies of its tiles lead to its root."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from posthouse.history.audit.batches import BatchError, read_bundle
from posthouse.history.audit.merkle import leaf, root_of_full
from posthouse.history.audit.notes import Checkpoint
from posthouse.history.audit.tiles import HEIGHT, WIDTH, Edge, Missing, hashes_of, partial, read_tile, tile_path

Read = Callable[[str], bytes | None]


class Truth:
    """`reads` are the copies. A tile is believed when it leads to the root, whatever the others are; None is what nobody knows."""

    def __init__(self, reads: Sequence[Read], checkpoint: Checkpoint) -> None:
        self.size = checkpoint.size
        self._reads = reads
        self._known: dict[tuple[int, int], list[bytes] | None] = {}
        self.found = self._find_edge(checkpoint.root)
        """Whether some copies lead to the root at all."""

    def tile(self, level: int, index: int) -> list[bytes] | None:
        """The hashes of a tile, believed."""
        at = (level, index)
        if at not in self._known:
            above = self.tile(level + 1, index // WIDTH) if self.size >> HEIGHT * (level + 1) > index else None
            expected = above[index % WIDTH] if above and index % WIDTH < len(above) else None
            copies = self._copies(level, index, WIDTH) if expected else []
            self._known[at] = next((hashes for hashes in copies if root_of_full(hashes) == expected), None)
        return self._known[at]

    def full(self, height: int, index: int) -> bytes:
        """A FullTree of `merkle`; Missing where nobody knows."""
        level, above = divmod(height, HEIGHT)
        tile = self.tile(level, (index << above) // WIDTH)
        at = (index << above) % WIDTH
        if tile is None or at + (1 << above) > len(tile):
            raise Missing(tile_path(level, (index << above) // WIDTH), "is not what was signed")
        return root_of_full(tile[at : at + (1 << above)])

    def entries(self, index: int) -> list[bytes | None]:
        """The entries under a tile of leaves, each as far as a copy has it."""
        tile = self.tile(0, index) or []
        known: list[bytes | None] = [None] * len(tile)
        paths = [tile_path("entries", index, len(tile))] if tile else []
        for path in [*paths, *([tile_path("entries", index)] if 0 < len(tile) < WIDTH else [])]:
            for read in self._reads:
                try:
                    copy = read_bundle(read(path) or b"")
                except BatchError:
                    continue
                for at, (one, hash) in enumerate(zip(copy, tile, strict=False)):
                    if known[at] is None and leaf(one) == hash:
                        known[at] = one
        return known

    def _find_edge(self, root: bytes) -> bool:
        """The partial tiles have no tile above them: those count that lead to the root together."""
        edges = list(partial(self.size))
        for combination in product(*(self._copies(level, index, width) for level, index, width in edges)):
            levels: list[list[bytes]] = []
            for (level, _, _), hashes in zip(edges, combination, strict=True):
                levels += [[] for _ in range(level - len(levels))]
                levels.append(hashes)
            if Edge(levels).root() == root:
                for (level, index, _), hashes in zip(edges, combination, strict=True):
                    self._known[level, index] = hashes
                return True
        return False

    def _copies(self, level: int, index: int, width: int) -> list[list[bytes]]:
        found: list[bytes] = []
        for read in self._reads:
            try:
                copy = read_tile(read, level, index, width)
            except Missing:
                continue
            if copy not in found:
                found.append(copy)
        return [hashes_of(copy) for copy in found]
