"""staff-service: who is at work."""

from __future__ import annotations

import pytest

from melmastoon.facts.staff import ShiftClosed, ShiftOpened
from melmastoon.staff import staff
from melmastoon.staff.commands import at_work, close_shift, open_shift
from posthouse import Reject
from posthouse.testing import Harness


async def test_a_shift_is_opened_and_closed_once_and_its_minutes_are_counted() -> None:
    async with Harness(staff) as house:
        for done in (True, False):
            async with staff.transaction("t1") as tx:
                assert await open_shift(tx, "s1", staff_id="m1", property_id="p1", duty="housekeeping") is done
        await house.settled()
        await house.advance(3 * 3600 + 59)
        for done in (True, False):
            async with staff.transaction("t1") as tx:
                assert await close_shift(tx, "s1") is done
        await house.settled()
        [opened] = await house.published(ShiftOpened)
        assert (opened.key, opened.data.shift_id, opened.data.duty) == ("m1", "s1", "housekeeping")
        assert [(e.data.shift_id, e.data.minutes) for e in await house.published(ShiftClosed)] == [("s1", 180)]


async def test_who_is_at_work_is_known_by_house_and_duty() -> None:
    async with Harness(staff), staff.transaction("t1") as tx:
        await open_shift(tx, "s1", staff_id="m2", property_id="p1", duty="housekeeping")
        await open_shift(tx, "s2", staff_id="m1", property_id="p1", duty="housekeeping")
        await open_shift(tx, "s3", staff_id="m3", property_id="p1", duty="front_desk")
        await open_shift(tx, "s4", staff_id="m4", property_id="p2", duty="housekeeping")
        assert await at_work(tx, "p1", "housekeeping") == ["m1", "m2"]
        await close_shift(tx, "s2")
        assert await at_work(tx, "p1", "housekeeping") == ["m2"]


async def test_nobody_works_two_shifts_at_once() -> None:
    async with Harness(staff), staff.transaction("t1") as tx:
        await open_shift(tx, "s1", staff_id="m1", property_id="p1", duty="housekeeping")
        with pytest.raises(Reject, match="m1 is at work already"):
            await open_shift(tx, "s2", staff_id="m1", property_id="p2", duty="housekeeping")
        await close_shift(tx, "s1")
        assert await open_shift(tx, "s2", staff_id="m1", property_id="p2", duty="housekeeping")
        with pytest.raises(Reject, match="no shift s9"):
            await close_shift(tx, "s9")
