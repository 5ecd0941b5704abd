"""What goes wrong at vendors follows from the guests' fates, and from the calendar; not from how often somebody asks."""

from __future__ import annotations

from typing import get_args

from melmastoon.demo.cast import Booking, Fate, House
from melmastoon.demo.script import DAY, HOURS
from melmastoon.demo.weather import Planned

HOUSE = House("serena", "serena-1")


def weather(fate: Fate, at: float = 0.0) -> Planned:
    booking = Booking(
        id="bk-0001",
        house=HOUSE,
        room_type="standard",
        guest="A",
        rail="card",
        fate=fate,
        booked=0,
        arrives=3,
        nights=2,
    )
    return Planned.of([booking], 1, lambda: at)


def test_a_declined_payment_is_declined_however_often_it_is_asked_for() -> None:
    planned = weather("payment_declined")
    assert planned.declines("capture", "serena:int-bk-0001-stay")
    assert not planned.declines("capture", "serena:int-bk-0002-stay")


def test_the_first_balance_is_declined_and_the_second_is_not() -> None:
    planned = weather("balance_declined")
    assert planned.declines("capture", "serena:int-bk-0001-balance-inv-bk-0001-1")
    assert not planned.declines("capture", "serena:int-bk-0001-balance-inv-bk-0001-2")
    assert weather("balance_never_paid").declines("capture", "serena:int-bk-0001-balance-inv-bk-0001-2")


def test_the_lock_vendor_is_back_at_the_second_click_whatever_was_tried_before() -> None:
    click = 3 * DAY + HOURS["click_again"] * 3600.0
    for attempt in (1, 4, 50):
        assert weather("key_second_click", click - 60.0).mood("put", "serena:key-bk-0001", attempt) == "error"
        assert weather("key_second_click", click).mood("put", "serena:key-bk-0001", attempt) == "fine"


def test_vendors_just_work_for_everybody_else() -> None:
    for fate in get_args(Fate):
        if fate != "vendor_moody":
            assert weather(fate).mood("capture", "serena:int-bk-0001-stay", 1) == "fine"
            assert weather(fate).mood("look", "serena:int-bk-0002-stay", 1) == "fine"


def test_for_those_who_meet_moody_vendors_the_seed_decides() -> None:
    moods = {weather("vendor_moody").mood(operation, "serena:key-bk-0001", 1) for operation in map(str, range(60))}
    assert {"fine", "error", "lost"} <= moods
