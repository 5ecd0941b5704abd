"""A read model is made anew beside the live one, and swapped in."""

from __future__ import annotations

from typing import Literal

import pytest

from posthouse.processes import Plan
from posthouse.testing import Harness
from tests.unit.processes.projection.listings import Hotel


@pytest.mark.parametrize("source", ["log", "streams"])
@pytest.mark.parametrize("lists", [True, False])
async def test_a_rebuilt_model_has_what_the_old_one_had_and_goes_on(source: Literal["log", "streams"], lists: bool) -> None:
    hotel = Hotel(lists=lists)
    async with Harness(hotel.service) as harness:
        for number in range(5):
            await hotel.list_room(f"r{number}", 10, 20, 30)
        await harness.settled()
        before = await hotel.rows()
        done = await hotel.service.projections.rebuild("listings", Plan(source=source))
        assert (done.generation, done.replaced, done.source, done.events) == (2, 1, source, 15)
        assert await hotel.live() == 2
        assert await hotel.rows() == before == [("t1", f"r{n}", 30, 3) for n in range(5)]
        await hotel.list_room("r0", 99)
        await harness.settled()
        assert (await hotel.rows())[0] == ("t1", "r0", 99, 4)
