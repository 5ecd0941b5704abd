"""Which acts ask for a grant is as the page says, of every act that there is."""

from __future__ import annotations

import re
from pathlib import Path

from posthouse.console.acting.table import ACTS

PAGE = Path(__file__).parents[4] / "docs" / "grants.md"
ROW = re.compile(r"^\| (`[a-z.]+`(?:, `[a-z.]+`)*) \| (replay|edit|none) \| ", re.MULTILINE)


def test_the_page_says_of_every_act_whether_it_asks_for_a_grant() -> None:
    said = {
        act: grant for acts, grant in ROW.findall(PAGE.read_text("utf-8")) for act in re.findall(r"`([a-z.]+)`", acts)
    }
    asked = {name.removesuffix(".all"): act.grant or "none" for name, act in ACTS.items()}
    assert said == asked


def test_an_act_on_many_asks_like_that_on_one() -> None:
    for name, act in ACTS.items():
        if (one := ACTS.get(name.removesuffix(".all"))) is not None:
            assert act.grant == one.grant, name
