"""How fast the platform lives. A demonstration lives through a ten-minute hold in a second: all its deadlines and times to
live are given in seconds of the house, and divided by the pace."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from posthouse.errors import ConfigurationError

PACE = "MELMASTOON_PACE"
"""The variable in the environment: 60 means that a minute passes in a second. 1 unless it is given."""


def seconds(of_the_house: float, environment: Mapping[str, str] = os.environ) -> float:
    """Seconds on the clock for so many seconds of the house. What was declared with them keeps them: set the pace before
    the services are imported."""
    return of_the_house / _pace(environment.get(PACE, "1"))


def _pace(text: str) -> float:
    try:
        pace = float(text)
    except ValueError:
        pace = math.nan
    if not 0 < pace < math.inf:
        raise ConfigurationError(f"{PACE} must be a number above 0, as in {PACE}=60, not {text!r}")
    return pace
