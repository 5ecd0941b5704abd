"""The deadlines of the sagas, in one place, and at any pace."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from melmastoon.reservation import reservation

IN_ANOTHER_PROCESS = """
import json
from melmastoon.reservation import reservation
print(json.dumps({name: dict(saga.deadlines) for name, saga in reservation.declared.saga_types.items()}))
"""


def test_deadlines_are_those_of_the_house() -> None:
    assert {name: dict(saga.deadlines) for name, saga in reservation.declared.saga_types.items()} == {
        "booking": {"hold_expired": 30.0, "hold_lapsed": 600.0},
        "check_in": {"not_ready": 30.0},
        "check_out": {"not_done": 30.0},
        "date_change": {"not_done": 30.0},
    }
    assert reservation.declared.saga_types["booking"].undos["room_committed"].within == 60.0


def test_at_a_pace_of_60_a_hold_lasts_ten_seconds() -> None:
    environment = {**os.environ, "MELMASTOON_PACE": "60"}
    ran = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(ran.stdout) == {
        "booking": {"hold_expired": 0.5, "hold_lapsed": 10.0},
        "check_in": {"not_ready": 0.5},
        "check_out": {"not_done": 0.5},
        "date_change": {"not_done": 0.5},
    }
