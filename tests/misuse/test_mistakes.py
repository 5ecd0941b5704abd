"""Deliberate mistakes: each gets its sentence, from us, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.misuse.mistakes import MISTAKES
from tests.misuse.page import page
from tests.misuse.scene import Mistake, answer_to

ALL = [mistake for mistakes in MISTAKES.values() for mistake in mistakes]
PAGE = Path(__file__).parents[2] / "docs" / "mistakes.md"


@pytest.mark.parametrize("mistake", ALL, ids=[mistake.name for mistake in ALL])
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_a_mistake_gets_its_sentence_and_leaves_nothing(mistake: Mistake, tmp_path: Path) -> None:
    answer = answer_to(mistake.code, tmp_path)
    assert answer.ours, f"{answer.kind}: {answer.text}"
    assert mistake.sentence in answer.text
    assert answer.left == []


def test_there_are_enough_of_them() -> None:
    assert len(ALL) >= 150
    assert len({mistake.code for mistake in ALL}) == len(ALL)


def test_the_page_is_what_the_suite_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()
