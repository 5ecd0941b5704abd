"""How fast the platform lives."""

from __future__ import annotations

import pytest

from melmastoon.pace import seconds
from posthouse.errors import ConfigurationError


def test_without_a_pace_seconds_are_seconds() -> None:
    assert seconds(30, {}) == 30.0


def test_a_pace_divides_every_duration() -> None:
    assert seconds(600, {"MELMASTOON_PACE": "60"}) == 10.0
    assert seconds(30, {"MELMASTOON_PACE": "0.5"}) == 60.0


@pytest.mark.parametrize("pace", ["0", "-1", "fast", "nan", "inf", ""])
def test_a_pace_that_is_no_number_above_zero_is_refused_with_an_example(pace: str) -> None:
    with pytest.raises(ConfigurationError, match="MELMASTOON_PACE must be a number above 0, as in MELMASTOON_PACE=60"):
        seconds(30, {"MELMASTOON_PACE": pace})
