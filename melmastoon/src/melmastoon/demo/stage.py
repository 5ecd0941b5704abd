"""The stage: what every act needs to know: which day it is, and how a booking stands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import date, timedelta

import msgspec

from melmastoon.demo.cast import Booking
from melmastoon.demo.script import DAY, Do, Scene
from melmastoon.demo.world import World
from melmastoon.facts.reservation import reservation
from melmastoon.tables import run, typed

STANDING = """
SELECT status, room_id, check_in, check_out, missing, change_missing FROM bookings WHERE tenant = ? AND booking_id = ?"""


CONFIRMED = frozenset(("confirmed", "confirmed_cash_pending"))
NEEDED: Mapping[Do, frozenset[str]] = {
    "cancel": CONFIRMED,
    "longer": CONFIRMED,
    "shorter": CONFIRMED,
    "no_show": CONFIRMED,
    "finance_retries": frozenset(("cancelled",)),
    "count_cash": frozenset(("confirmed_cash_pending",)),
    "check_in": frozenset(("confirmed",)),
    "click_again": frozenset(("check_in_partial",)),
    "cut_key": frozenset(("check_in_partial",)),
    "call_off": frozenset(("check_in_partial",)),
    "call_off_for_now": frozenset(("check_in_partial",)),
    "come_back": frozenset(("confirmed",)),
    "extra": frozenset(("checked_in",)),
    "stay_on": frozenset(("checked_in",)),
    "suspend_key": frozenset(("checked_in",)),
    "check_out": frozenset(("checked_in",)),
    "revoke_by_hand": frozenset(("check_out_started",)),
    "settle_balance": frozenset(("checked_out_balance_pending",)),
}
"""What a booking must be for an act to do anything; other acts may always."""


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
    erased: dict[str, str] = {}
    """Guests who were erased, by tenant."""
    forged: str = ""
    """The id of a fact that somebody forged."""

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

    async def wants(self, scene: Scene) -> bool:
        """Whether anything of a scene can still be done, as its bookings stand."""
        for act in scene.acts:
            if act.booking is None or act.do not in NEEDED:
                return True
            if (await self.standing(act.booking)).status in NEEDED[act.do]:
                return True
        return False


Played = Callable[[Stage, Booking], Awaitable[bool]]
"""One act: what somebody does about a booking. What does not fit any more is not done: False."""
