"""What Home says is stuck."""

from __future__ import annotations

import pytest

from posthouse.console.sampling import Look
from posthouse.console.troubles import troubles
from posthouse.store.sagas import FOR_AN_OPERATOR
from posthouse.watch.samples import Sample


@pytest.mark.parametrize("state", FOR_AN_OPERATOR)
def test_a_saga_that_rests_until_somebody_decides_needs_a_person(state: str) -> None:
    [trouble] = troubles(Look(0.0, [Sample("saga_instances", {"service": "s", "saga": "stay", "state": state}, 1.0)]))
    assert trouble.gravity == "now"
