"""Time as it would pass, on PostgreSQL."""

import pytest

from tests.kit.time_passing import TimePassing


class TestOnPostgres(TimePassing):
    @pytest.fixture
    def where(self, posthouse_store: str) -> str:
        return posthouse_store
