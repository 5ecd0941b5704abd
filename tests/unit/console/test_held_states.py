"""What the console says of a state is what the docs say."""

from __future__ import annotations

from pathlib import Path

from posthouse.console.held_states import MEANINGS

PAGE = Path(__file__).parents[3] / "docs" / "held.md"


def test_every_state_has_the_sentence_of_the_docs() -> None:
    rows = [
        line.strip("|\n ").split(" | ")
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("| `")
    ]
    said = {row[0].strip("`"): tuple(row[1:4]) for row in rows}
    assert {state: (of.means, of.key, of.press) for state, of in MEANINGS.items()} == said
