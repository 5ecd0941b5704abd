"""Fault 46 on PostgreSQL: sagas that one release started and another one ends. The tests are those of SQLite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posthouse.stores.postgres import PostgresStore
from tests.unit.processes.saga.test_releases import (
    OUTSIDE,
    Till,
    test_a_deadline_that_is_not_declared_any_more_is_held_with_a_word_on_it,
    test_a_state_that_cannot_be_read_is_held_with_a_word_on_it,
    test_a_state_that_gained_fields_is_read_with_their_defaults,
    test_a_step_that_is_not_declared_any_more_is_never_passed_over_in_silence,
)

__all__ = [
    "test_a_deadline_that_is_not_declared_any_more_is_held_with_a_word_on_it",
    "test_a_state_that_cannot_be_read_is_held_with_a_word_on_it",
    "test_a_state_that_gained_fields_is_read_with_their_defaults",
    "test_a_step_that_is_not_declared_any_more_is_never_passed_over_in_silence",
]


@pytest.fixture
async def till(tmp_path: Path, postgres_url: str) -> AsyncIterator[Till]:
    store = PostgresStore(postgres_url)
    await store.upgrade()
    await store.aclose()
    yield Till(tmp_path, postgres_url)
    await OUTSIDE.aclose()
