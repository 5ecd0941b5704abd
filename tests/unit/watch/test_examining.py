"""What an examination leaves out, and says so."""

from __future__ import annotations

from posthouse.app import app_of
from posthouse.testing import Harness
from posthouse.watch.examining import examine
from tests.unit.console.acting.stays import stays


async def test_sagas_are_compared_with_their_classes_unless_too_many_are_not_over() -> None:
    of = stays()
    async with Harness(of.hotel) as harness:
        await of.begin(harness, "a", "b", "c")
        for most, left_out in ((None, False), (3, False), (2, True)):
            store, _ = await examine(app_of(of.hotel), sagas=most)
            found = [check.found for check in store.checks if check.name == "sagas"]
            assert any("not compared" in words and "3 are not over" in words for words in found) is left_out
