"""What opens something has 128 random bits of the system; chance that can be foretold only shortens pauses and plays dice."""

from __future__ import annotations

import ast
import uuid
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import posthouse
from posthouse.clock import new_id

ROOT = Path(posthouse.__file__).parent
FORETOLD = {"clock.py", "edges/broadcast.py", "cli/quickstart/story.py"}
"""Modules that may ask `random`: for pauses, lifetimes of connections, a story. Tests of users play dice in `testing`."""
BITS = 128
NAMES = {("local/notifier.py", "8")}
"""Draws that open nothing and must be short: PostgreSQL cuts the name of a connection after 63 bytes."""


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in ROOT.rglob("*.py"):
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def test_chance_that_can_be_foretold_makes_no_keys() -> None:
    found = {
        place
        for place, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) and any(name.name == "random" for name in node.names)
    }
    assert {place for place in found if not place.startswith("testing/")} == FORETOLD


def test_every_token_has_128_bits_of_the_system_at_least() -> None:
    drawn = [
        (place, node)
        for place, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("token_bytes", "token_hex", "token_urlsafe", "urandom")
    ]
    assert len(drawn) > 5
    for place, node in drawn:
        (size,) = node.args
        said = ast.unparse(size)
        bits = 8 * size.value if isinstance(size, ast.Constant) and isinstance(size.value, int) else None
        assert bits is None or bits >= BITS or (place, said) in NAMES, f"{place}:{node.lineno} draws {said} bytes"


def test_ids_of_one_process_count_up_and_have_32_new_random_bits_each() -> None:
    ids = [uuid.UUID(new_id()).int for _ in range(4096)]
    assert all(one < other for one, other in pairwise(ids))
    changed = [0] * 32
    for one, other in pairwise(ids):
        for bit in range(32):
            changed[bit] += (one ^ other) >> bit & 1
    assert all(0.4 < count / len(ids) < 0.6 for count in changed), changed
