"""The stage: what every act needs to know: which day it is, and how a booking stands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import date, timedelta

import msgspec

from melmastoon.demo.cast import Booking
from melmastoon.demo.script import DAY
from melmastoon.demo.world import World
from melmastoon.facts.reservation import reservation
from melmastoon.tables import run, typed

STANDING = """
SELECT status, room_id, check_in, check_out, missing, change_missing FROM bookings WHERE tenant = ? AND booking_id = ?"""


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """How a booking stands, as its row says."""

    status: str = ""
    room_id: str = ""
    check_in: str = ""
    check_out: str = ""
    missing: str = ""
    change_missing: str = ""


class Stage(msgspec.Struct, kw_only=True):
    """A world, the guests, and the first day of the play."""

    world: World
    first_day: date
    midnight: float
    cast: Sequence[Booking]

    @property
    def today(self) -> date:
        return self.day(int((self.world.now() - self.midnight) // DAY))

    def day(self, number: int) -> date:
        """A day of the play."""
        return self.first_day + timedelta(days=number)

    async def standing(self, booking: Booking) -> Standing:
        """Nothing but defaults for a booking that was never held."""
        async with reservation.transaction(booking.house.tenant) as tx:
            found = typed(await run(tx, STANDING, tx.tenant, booking.id), Standing)
        return found[0] if found else Standing()


Played = Callable[[Stage, Booking], Awaitable[bool]]
"""One act: what somebody does about a booking. What does not fit any more is not done: False."""
