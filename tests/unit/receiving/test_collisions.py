"""Collisions: run again a few times, and then given up."""

from __future__ import annotations

import pytest

from posthouse.errors import StoreCollision, StoreUnavailable, VersionConflict
from posthouse.receiving.collisions import TRIES, despite_collisions


class Transaction:
    """Meets with one trouble after the other, and then succeeds."""

    def __init__(self, *troubles: Exception) -> None:
        self._troubles = list(troubles)
        self.runs = 0

    async def __call__(self) -> str:
        self.runs += 1
        if self._troubles:
            raise self._troubles.pop(0)
        return "done"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posthouse.receiving.collisions.LAST_PAUSE", 0.0)


@pytest.mark.parametrize("trouble", [StoreCollision("deadlock"), VersionConflict("folio", 1, 2)])
async def test_a_transaction_that_another_one_was_in_the_way_of_is_run_again(trouble: Exception) -> None:
    transaction = Transaction(*[trouble] * (TRIES - 1))
    assert await despite_collisions(transaction, "books") == "done"
    assert transaction.runs == TRIES


async def test_the_last_collision_is_raised() -> None:
    transaction = Transaction(*[StoreCollision("deadlock")] * TRIES)
    with pytest.raises(StoreCollision):
        await despite_collisions(transaction, "books")
    assert transaction.runs == TRIES


async def test_other_troubles_are_none_of_its_business() -> None:
    transaction = Transaction(StoreUnavailable("away"))
    with pytest.raises(StoreUnavailable):
        await despite_collisions(transaction, "books")
    assert transaction.runs == 1
