"""The tree is that of RFC 6962, and what it proves is what others prove."""

from __future__ import annotations

import random

import pytest

from posthouse.history.audit.merkle import (
    EMPTY,
    consistency,
    extends,
    folded,
    full_of,
    grown,
    includes,
    inclusion,
    leaf,
    leaves,
    peaks_of,
    root,
)
from tests.kit.oracles.tlog import TlogOracle

# The eight inputs and the roots of their trees from the tests of Certificate Transparency's own implementation.
INPUTS = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
ENTRIES = [bytes.fromhex(text) for text in INPUTS]


def test_roots_are_those_of_the_vectors() -> None:
    full = full_of(leaves(ENTRIES))
    assert [root(size, full).hex() for size in range(1, 9)] == ROOTS
    assert [folded(peaks_of(leaves(ENTRIES[:size]))).hex() for size in range(1, 9)] == ROOTS
    assert root(0, full) == EMPTY == bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 13, 64, 65, 100])
def test_every_proof_holds_and_for_nothing_else(size: int) -> None:
    hashes = leaves([bytes([number]) for number in range(size)])
    full, top = full_of(hashes), root(size, full_of(hashes))
    for index in range(size):
        path = inclusion(index, size, full)
        assert includes(hashes[index], index, size, path, top)
        assert not includes(leaf(b"other"), index, size, path, top)
        assert not includes(hashes[index], index, size, [*path, EMPTY], top)
        assert not includes(hashes[index], index, size, path, EMPTY)
        for other in {0, index ^ 1, index + 1, size - 1} - {index}:
            assert not includes(hashes[index], other, size, path, top)
        if path:
            assert not includes(hashes[index], index, size, path[:-1], top)
            assert not includes(hashes[index], index, size, [EMPTY, *path[1:]], top)
    for earlier in range(size + 1):
        before, path = root(earlier, full), consistency(earlier, size, full)
        assert extends(earlier, before, size, top, path)
        if 0 < earlier < size:
            assert not extends(earlier, EMPTY, size, top, path)
            assert not extends(earlier, before, size, EMPTY, path)
            assert not extends(earlier, before, size, top, path[:-1])
            assert not extends(earlier, before, size, top, [*path, EMPTY])
            assert not extends(earlier + 1, before, size, top, path)


def test_a_tree_grows_from_its_peaks_alone() -> None:
    peaks: list[bytes] = []
    for count, one in enumerate(leaves(ENTRIES)):
        peaks = grown(peaks, count, one)
        assert folded(peaks).hex() == ROOTS[count]


def test_what_is_not_in_a_tree_cannot_be_proven() -> None:
    full = full_of(leaves(ENTRIES))
    for index in (-1, 8):
        with pytest.raises(ValueError, match="not in a tree of 8"):
            inclusion(index, 8, full)
        assert not includes(leaf(b""), index, 8, [], EMPTY)
    with pytest.raises(ValueError, match="not the beginning"):
        consistency(9, 8, full)
    assert not extends(9, EMPTY, 8, EMPTY, [EMPTY])
    assert not extends(8, EMPTY, 8, leaf(b""), [])
    assert not extends(0, leaf(b""), 8, EMPTY, [])


def test_go_makes_the_same_roots(tlog_oracle: TlogOracle) -> None:
    chance = random.Random(4)
    entries = [chance.randbytes(chance.randrange(60)) for _ in range(700)]
    full = full_of(leaves(entries))
    assert tlog_oracle.roots(entries) == [root(size, full) for size in range(1, 701)]


@pytest.mark.parametrize("size", [1, 2, 5, 31, 32, 33, 97])
def test_go_makes_the_same_proofs(tlog_oracle: TlogOracle, size: int) -> None:
    entries = [b"%d" % number for number in range(size)]
    full = full_of(leaves(entries))
    ours = {("record", index): inclusion(index, size, full) for index in range(size)}
    ours |= {("tree", earlier): consistency(earlier, size, full) for earlier in range(1, size + 1)}
    assert tlog_oracle.proofs(entries) == ours
