"""A tree lies in tiles that never change, and is found in them again."""

from __future__ import annotations

import pytest

from posthouse.history.audit.merkle import folded, inclusion, leaves, peaks_of, root
from posthouse.history.audit.tiles import Edge, Missing, Tiles, partial, tile_path

LEAVES = leaves([b"%d" % number for number in range(70_000)])


def _grown(size: int, step: int) -> tuple[Edge, dict[str, bytes]]:
    edge, files = Edge(), dict[str, bytes]()
    for start in range(0, size, step):
        files |= edge.add(LEAVES[start : min(size, start + step)])
    return edge, files | dict(edge.partial_tiles())


@pytest.mark.parametrize(
    ("level", "index", "width", "path"),
    [
        (0, 0, 256, "tile/0/000"),
        (2, 999, 256, "tile/2/999"),
        (0, 1000, 1, "tile/0/x001/000.p/1"),
        (1, 1234067, 256, "tile/1/x001/x234/067"),
        ("entries", 273, 112, "tile/entries/273.p/112"),
    ],
)
def test_paths_are_those_of_the_specification(level: int | str, index: int, width: int, path: str) -> None:
    assert tile_path(level, index, width) == path


def test_the_specifications_example_of_70_000_entries() -> None:
    assert list(partial(70_000)) == [(0, 273, 112), (1, 1, 17), (2, 0, 1)]
    assert list(partial(256)) == [(1, 0, 1)]
    _, files = _grown(70_000, 4096)
    assert sum(path.startswith("tile/0/") for path in files) == 274
    assert {path for path in files if not path.startswith("tile/0/")} == {
        "tile/1/000",
        "tile/1/001.p/17",
        "tile/2/000.p/1",
    }
    assert {len(files[path]) for path in files if ".p/" not in path} == {8192}


@pytest.mark.parametrize("step", [1, 255, 256, 257, 5000])
def test_a_tree_is_the_same_however_it_grew(step: int) -> None:
    size = 5000
    edge, files = _grown(size, step)
    assert edge.size == size
    assert edge.root() == folded(peaks_of(LEAVES[:size]))
    assert files == _grown(size, 1000)[1]


@pytest.mark.parametrize("size", [1, 255, 256, 257, 65_535, 65_536, 66_000])
def test_roots_and_proofs_are_read_from_tiles(size: int) -> None:
    edge, files = _grown(size, 10_000)
    tiles = Tiles(files.get, size)
    assert root(size, tiles.full) == edge.root()
    again = tiles.edge()
    assert again.size == size
    assert again.root() == edge.root()
    index = size * 3 // 4
    in_memory = inclusion(index, size, lambda h, i: folded(peaks_of(LEAVES[i << h : (i + 1) << h])))
    assert inclusion(index, size, tiles.full) == in_memory


def test_a_full_tile_stands_for_the_partial_one_that_was_let_go() -> None:
    _, files = _grown(70_000, 70_000)
    assert "tile/0/001.p/44" not in files
    assert root(300, Tiles(files.get, 300).full) == folded(peaks_of(LEAVES[:300]))


def test_the_tiles_of_a_tree_know_every_earlier_one() -> None:
    _, files = _grown(1000, 1000)
    assert root(700, Tiles(files.get, 1000).full) == folded(peaks_of(LEAVES[:700]))


def test_a_tile_that_is_lost_or_cut_is_named() -> None:
    _, files = _grown(1000, 1000)
    files["tile/0/001"] = files["tile/0/001"][:-1]
    with pytest.raises(Missing, match="tile/0/001 has 8191 bytes and not 8192"):
        inclusion(300, 1000, Tiles(files.get, 1000).full)
    del files["tile/0/003.p/232"]
    with pytest.raises(Missing, match=r"tile/0/003\.p/232 is not there"):
        root(1000, Tiles(files.get, 1000).full)
