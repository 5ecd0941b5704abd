"""Time as it would pass, in memory."""

import pytest

from tests.kit.time_passing import TimePassing


class TestInMemory(TimePassing):
    @pytest.fixture
    def where(self) -> str:
        return "sqlite://"
