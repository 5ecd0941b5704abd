from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from posthouse.testing import Harness
from tests.unit.processes.saga.hotel import Weather, reservation


@pytest.fixture
async def h() -> AsyncIterator[Harness]:
    """The reservation service in memory, in fair weather."""
    Weather.drop_hold_fails = Weather.release_fails = 0
    async with Harness(reservation) as harness:
        yield harness
