"""The script: who does what on which day and at what hour. Pure, from the cast.

A scene is what happens at one moment. Bookings that compete for the same rooms never act in the same scene, but for two
rivals who are alike in everything: so it does not matter to the outcome which of them is served first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from melmastoon.demo.cast import Booking

Do = Literal[
    "hold",
    "hold_while_inventory_is_down",
    "hold_while_payment_is_down",
    "hold_and_give_up",
    "hold_during_stop_sell",
    "change_guest",
    "cancel",
    "finance_retries",
    "longer",
    "shorter",
    "retry_change",
    "no_show",
    "count_cash",
    "check_in",
    "click_again",
    "cut_key",
    "call_off",
    "call_off_for_now",
    "come_back",
    "extra",
    "stay_on",
    "suspend_key",
    "check_out",
    "revoke_by_hand",
    "settle_balance",
    "morning",
    "night",
    "late",
]
"""What is done; `morning`, `night` and `late` are for the houses."""

SCARCE: frozenset[Do] = frozenset(
    ("hold", "hold_during_stop_sell", "cancel", "longer", "shorter", "no_show", "check_out", "call_off", "stay_on")
)
"""Acts that take rooms or give them back."""
ALONE: frozenset[Do] = frozenset(
    ("hold_while_inventory_is_down", "hold_while_payment_is_down", "hold_and_give_up", "hold_during_stop_sell")
)
"""Acts that wait for something, or during which a process is away: nothing else happens then."""

HOURS: dict[Do, float] = {
    "no_show": 6.0,
    "morning": 8.5,
    "check_out": 9.0,
    "revoke_by_hand": 9.5,
    "settle_balance": 10.0,
    "hold": 11.0,
    "hold_during_stop_sell": 11.0,
    "hold_while_inventory_is_down": 11.8,
    "hold_while_payment_is_down": 11.8,
    "hold_and_give_up": 11.8,
    "change_guest": 12.5,
    "cancel": 13.0,
    "longer": 13.5,
    "shorter": 13.5,
    "retry_change": 14.0,
    "finance_retries": 14.2,
    "count_cash": 14.5,
    "check_in": 15.0,
    "click_again": 15.5,
    "cut_key": 15.5,
    "call_off": 15.5,
    "call_off_for_now": 15.5,
    "come_back": 16.5,
    "extra": 19.0,
    "stay_on": 19.5,
    "suspend_key": 20.0,
    "night": 23.0,
    "late": 23.5,
}
"""The hour of the day at which each is done."""

DAY = 86_400.0
APART = 60.0
"""Seconds between two scenes of the same hour."""


class Act(msgspec.Struct, frozen=True):
    """One thing that is done, for a booking or for the houses."""

    do: Do
    booking: Booking | None = None


class Scene(msgspec.Struct, frozen=True):
    """What is done at one moment: seconds since midnight of the first day."""

    at: float
    acts: Sequence[Act]


def script(cast: Sequence[Booking]) -> list[Scene]:
    """All scenes in their order."""
    by_hour: dict[tuple[int, float], list[Act]] = {}
    last = max((booking.leaves for booking in cast), default=0) + 2
    for day in range(last):
        by_hour[day, HOURS["morning"]] = [Act("morning")]
        by_hour[day, HOURS["night"]] = [Act("night")]
        by_hour[day, HOURS["late"]] = [Act("late")]
    for booking in cast:
        for day, do in _life(booking):
            by_hour.setdefault((day, HOURS[do]), []).append(Act(do, booking))
    return [
        Scene(day * DAY + hour * 3600.0 + APART * number, wave)
        for (day, hour), acts in sorted(by_hour.items(), key=lambda item: item[0])
        for number, wave in enumerate(_waves(acts))
    ]


def _life(booking: Booking) -> Iterator[tuple[int, Do]]:
    """What a guest does, by days. What no longer fits when its time comes is left out then."""
    yield booking.booked, _booking_of(booking)
    yield from _before_arrival(booking)
    yield from _arrival(booking)
    if booking.fate in ("extras", "balance_declined", "balance_never_paid"):
        yield booking.arrives, "extra"
    if booking.fate == "key_suspended":
        yield booking.arrives, "suspend_key"
    if booking.fate == "stays_on":
        yield booking.arrives, "stay_on"
    for day in range(booking.leaves - 1, booking.leaves + 2):  # the dates may have changed
        yield day, "check_out"
        yield day, "revoke_by_hand"
        yield day, "settle_balance"


def _booking_of(booking: Booking) -> Do:
    match booking.fate:
        case "inventory_down":
            return "hold_while_inventory_is_down"
        case "payment_down":
            return "hold_while_payment_is_down"
        case "gives_up":
            return "hold_and_give_up"
        case "stop_sell":
            return "hold_during_stop_sell"
        case _:
            return "hold"


def _before_arrival(booking: Booking) -> Iterator[tuple[int, Do]]:
    eve = max(booking.booked, booking.arrives - 1)
    match booking.fate:
        case "changes_guest":
            yield booking.booked, "change_guest"
        case "cancels_in_time" | "cash_cancels":
            yield eve, "cancel"
        case "cancels_late":
            yield booking.arrives, "cancel"
        case "refund_fails":
            yield eve, "cancel"
            yield eve, "finance_retries"
        case "stays_longer" | "delta_declined":
            yield eve, "longer"
        case "key_change_fails":
            yield eve, "longer"
            yield eve, "retry_change"
        case "stays_shorter":
            yield eve, "shorter"
        case "dates_taken" if not booking.second:
            yield eve, "longer"
        case "books_twice" if booking.second:
            yield eve, "cancel"


def _arrival(booking: Booking) -> Iterator[tuple[int, Do]]:
    if booking.fate in ("no_show", "cash_no_show"):
        yield booking.arrives + 1, "no_show"
        return
    if booking.rail == "cash_pending":
        yield booking.arrives, "count_cash"
    yield booking.arrives, "check_in"
    match booking.fate:
        case "key_by_hand":
            yield booking.arrives, "cut_key"
        case "check_in_called_off":
            yield booking.arrives, "call_off"
        case "check_in_again":
            yield booking.arrives, "call_off_for_now"
            yield booking.arrives, "come_back"
        case _:
            yield booking.arrives, "click_again"
            yield booking.arrives + 1, "cut_key"


def _waves(acts: Iterable[Act]) -> list[list[Act]]:
    """Acts of one hour, as few scenes as the rooms allow."""
    waves: list[list[Act]] = []
    for act in acts:
        fitting = next((wave for wave in waves if _fits(act, wave)), None)
        if fitting is None:
            waves.append([act])
        else:
            fitting.append(act)
    return waves


def _fits(act: Act, wave: Sequence[Act]) -> bool:
    if act.do in ALONE or any(other.do in ALONE for other in wave):
        return False
    return not any(_compete(act, other) for other in wave)


def _compete(one: Act, other: Act) -> bool:
    if one.booking is None or other.booking is None or not {one.do, other.do} <= SCARCE:
        return False
    return one.booking.lane == other.booking.lane and not _rivals(one, other)


def _rivals(one: Act, other: Act) -> bool:
    """Two who want the last room: alike in everything that matters."""
    return (
        one.do == other.do == "hold"
        and one.booking is not None
        and other.booking is not None
        and one.booking.fate == other.booking.fate == "last_room"
        and one.booking.arrives == other.booking.arrives
        and abs(int(one.booking.id[-4:]) - int(other.booking.id[-4:])) == 1
    )
