"""The cast: houses, guests, and what each guest will live through. Pure: a seed and a number of bookings give the same guests
on any machine, and everything that goes wrong with them is decided here."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from typing import Literal, get_args

import msgspec

from melmastoon.facts.house import Rail

TENANTS = ("serena", "caravan", "lapis")
STANDARD, SUITE = "standard", "suite"
ROOMS = {STANDARD: 5, SUITE: 1}
"""How many rooms of each type a property has. Few: the guard against overselling has work."""
NIGHT_CENTS = {STANDARD: 9_000, SUITE: 26_000}

Fate = Literal[
    "plain",
    "extras",
    "cash",
    "balance_declined",
    "balance_never_paid",
    "payment_declined",
    "cancels_in_time",
    "cancels_late",
    "cash_cancels",
    "refund_fails",
    "stays_longer",
    "stays_shorter",
    "dates_taken",
    "delta_declined",
    "key_by_hand",
    "key_second_click",
    "key_change_fails",
    "revoke_by_hand",
    "key_suspended",
    "no_show",
    "cash_no_show",
    "last_room",
    "inventory_down",
    "stop_sell",
    "payment_down",
    "gives_up",
    "changes_guest",
    "books_twice",
    "check_in_called_off",
    "check_in_again",
    "stays_on",
    "vendor_moody",
]
"""What happens to a guest; `plain` is a stay without any trouble."""

FATES: Sequence[Fate] = get_args(Fate)
PAIRS: frozenset[Fate] = frozenset(("dates_taken", "last_room", "books_twice"))
"""Fates that take two bookings."""
RAILS: Sequence[Rail] = ("card", "paypal", "mfs")
NAMES = ("Amina", "Bahram", "Chaman", "Dilara", "Ehsan", "Farida", "Gul", "Habib", "Jamila", "Karim", "Laila", "Nadir")


class House(msgspec.Struct, frozen=True):
    """One property."""

    tenant: str
    property_id: str


class Booking(msgspec.Struct, frozen=True, kw_only=True):
    """One booking as its guest has it in mind. Days are counted from the first one."""

    id: str
    house: House
    room_type: str
    guest: str
    rail: Rail
    fate: Fate
    booked: int
    arrives: int
    nights: int
    second: bool = False
    """Whether it is the second of a pair."""

    @property
    def leaves(self) -> int:
        return self.arrives + self.nights

    @property
    def lane(self) -> tuple[str, str]:
        """Bookings of one lane compete for the same rooms."""
        return self.house.property_id, self.room_type

    @property
    def cents(self) -> int:
        return self.nights * NIGHT_CENTS[self.room_type]


HOUSES = tuple(House(tenant, f"{tenant}-{number}") for tenant in TENANTS for number in (1, 2))
A_DAY = 12
"""About how many bookings arrive on one day."""


def cast(seed: int, count: int) -> list[Booking]:
    """So many bookings. Every fate is in any run that is long enough; the rest are drawn by lot."""
    dice = random.Random(f"cast {seed}")
    days = -(-count // A_DAY)
    suites = {house.property_id: _windows(days, dice) for house in HOUSES}
    made: list[Booking] = []
    for fate, house in zip(_fates(dice), cycle(dice.sample(HOUSES, len(HOUSES))), strict=False):
        if len(made) >= count:
            return made[:count]
        made += _bookings(f"bk-{len(made):04d}", fate, house, days, suites[house.property_id], dice)
    return made


def _fates(dice: random.Random) -> Iterator[Fate]:
    """All of them in any order, then again and again; every second guest has no trouble."""
    while True:
        for fate in dice.sample(FATES, len(FATES)):
            yield fate
            yield dice.choice(("plain", "extras", "vendor_moody"))


def _windows(days: int, dice: random.Random) -> Iterator[int]:
    """Days on which the suite of a property is surely free for five nights; when there are no more of them, any day."""
    yield from islice(range(1, 10_000, 5), max(1, days // 5))
    while True:
        yield dice.randrange(1, days + 1)


def _bookings(id: str, fate: Fate, house: House, days: int, suite: Iterator[int], dice: random.Random) -> list[Booking]:
    """One booking, or two that belong together."""
    rail: Rail = "cash_pending" if fate.startswith("cash") else dice.choice(RAILS)
    pair = fate in PAIRS
    in_suite = fate in ("dates_taken", "last_room")
    arrives = next(suite) if in_suite else dice.randrange(1, days + 1)
    nights = 2 if in_suite else dice.choice((1, 2, 2, 3)) + (fate == "stays_shorter")
    first = Booking(
        id=id,
        house=house,
        room_type=SUITE if in_suite else STANDARD,
        guest=f"{dice.choice(NAMES)} {id[-4:]}",
        rail=rail,
        fate=fate,
        booked=max(0, arrives - dice.randrange(0, 4)) if fate not in EARLY else max(0, arrives - 3),
        arrives=arrives,
        nights=nights,
    )
    if not pair:
        return [first]
    return [first, _second(first, f"bk-{int(id[-4:]) + 1:04d}")]


EARLY: frozenset[Fate] = frozenset(
    (
        "cancels_in_time",
        "refund_fails",
        "stays_longer",
        "stays_shorter",
        "dates_taken",
        "delta_declined",
        "key_change_fails",
        "cash_cancels",
    )
)
"""Fates that need a day or more between booking and arrival."""


def _second(first: Booking, id: str) -> Booking:
    """The other of a pair: the neighbour whose nights are wanted, the rival for the last room, or the same guest again."""
    other = msgspec.structs.replace(first, id=id, second=True)
    if first.fate == "dates_taken":
        return msgspec.structs.replace(other, arrives=first.leaves, guest=f"Neighbour {id[-4:]}")
    if first.fate == "last_room":
        return msgspec.structs.replace(other, guest=f"Rival {id[-4:]}")
    return other
