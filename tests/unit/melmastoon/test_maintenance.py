"""maintenance-service: tickets, and the rooms that they keep out of order."""

from __future__ import annotations

import pytest

from melmastoon.facts.maintenance import TicketClosed, TicketOpened
from melmastoon.maintenance import maintenance
from melmastoon.maintenance.commands import close_ticket, open_ticket
from posthouse import Reject
from posthouse.testing import Harness


async def test_a_ticket_is_opened_and_closed_once() -> None:
    async with Harness(maintenance) as house:
        for done in (True, False):
            async with maintenance.transaction("t1") as tx:
                assert await open_ticket(tx, "k1", property_id="p1", room_id="r1", summary="no water") is done
        for done in (True, False):
            async with maintenance.transaction("t1") as tx:
                assert await close_ticket(tx, "k1", parts=["valve"], labour_minutes=40) is done
        await house.settled()
        [opened] = await house.published(TicketOpened)
        assert (opened.data.ticket_id, opened.key, opened.data.out_of_order) == ("k1", "r1", True)
        [closed] = await house.published(TicketClosed)
        assert (closed.data.parts, closed.data.labour_minutes, closed.data.room_back) == (("valve",), 40, True)


async def test_a_room_comes_back_with_the_last_ticket_that_kept_it_out_of_order() -> None:
    async with Harness(maintenance) as house:
        async with maintenance.transaction("t1") as tx:
            await open_ticket(tx, "k1", property_id="p1", room_id="r1", summary="no water")
            await open_ticket(tx, "k2", property_id="p1", room_id="r1", summary="no light")
            await open_ticket(tx, "k3", property_id="p1", room_id="r1", summary="stain", out_of_order=False)
            await open_ticket(tx, "k4", property_id="p1", room_id="r2", summary="no water")
        for ticket in ("k1", "k2", "k3"):
            async with maintenance.transaction("t1") as tx:
                await close_ticket(tx, ticket, labour_minutes=5)
        await house.settled()
        closed = [(e.data.ticket_id, e.data.room_back) for e in await house.published(TicketClosed)]
        assert closed == [("k1", False), ("k2", True), ("k3", False)], (
            "a stain keeps nobody out, and brings nothing back"
        )
        assert [e.data.out_of_order for e in await house.published(TicketOpened)] == [True, True, False, True]


async def test_a_ticket_that_is_not_there_cannot_be_closed() -> None:
    async with Harness(maintenance), maintenance.transaction("t1") as tx:
        with pytest.raises(Reject, match="no ticket k9"):
            await close_ticket(tx, "k9", labour_minutes=1)
