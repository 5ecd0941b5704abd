"""The page on recovery: its commands are those that there are, and each tier is performed by a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.commands import is_one_of_ours

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "recovery.md").read_text(encoding="utf-8")
PROOF = (ROOT / "tests" / "faults" / "test_recovery.py").read_text(encoding="utf-8")
TIERS = [int(number) for number in re.findall(r"^## (\d)\.", PAGE, re.MULTILINE)]
COMMANDS = re.findall(r"^posthouse .+$", PAGE, re.MULTILINE)
NUMBERS = {"$SAID_AGAIN": "1 2", "$NEW": "3"}


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_of_the_page_is_one_of_ours_with_options_that_it_has(line: str) -> None:
    for name, numbers in NUMBERS.items():
        line = line.replace(name, numbers)
    is_one_of_ours(line)


def test_each_tier_is_performed_by_a_test_that_takes_its_commands_from_the_page() -> None:
    assert TIERS == [1, 2, 3, 4]
    assert len(COMMANDS) >= 15
    for tier in TIERS:
        body = re.search(rf"^def test_tier_{tier}_.*?(?=^(?:def|class|@)|\Z)", PROOF, re.MULTILINE | re.DOTALL)
        assert body is not None
        assert f"blocks({tier})" in body[0]
