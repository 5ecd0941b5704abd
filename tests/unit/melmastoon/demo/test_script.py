"""The cast and the script: pure, and the same on any machine."""

from __future__ import annotations

from itertools import pairwise

import pytest

from melmastoon.demo.cast import FATES, ROOMS, SUITE, Booking, cast
from melmastoon.demo.script import ALONE, SCARCE, Scene, script

SEEDS = range(1, 9)


def test_the_same_seed_brings_the_same_guests() -> None:
    assert cast(7, 120) == cast(7, 120)
    assert cast(7, 120) != cast(8, 120)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_fate_is_met_in_a_run_of_the_usual_length(seed: int) -> None:
    assert {booking.fate for booking in cast(seed, 300)} == set(FATES)


@pytest.mark.parametrize("count", [1, 2, 15, 300])
def test_there_are_as_many_bookings_as_were_asked_for_each_under_its_own_id(count: int) -> None:
    made = cast(3, count)
    assert len(made) == len({booking.id for booking in made}) == count


def test_a_suite_is_one_room_so_that_two_can_want_the_last_one() -> None:
    rivals = [booking for booking in cast(1, 300) if booking.fate == "last_room"]
    assert ROOMS[SUITE] == 1
    assert len(rivals) >= 2
    first, second = rivals[:2]
    assert (first.lane, first.arrives, first.nights) == (second.lane, second.arrives, second.nights)
    assert first.guest != second.guest


def test_nobody_wants_to_be_checked_in_before_the_booking_is_made() -> None:
    assert all(booking.booked <= booking.arrives and booking.nights >= 1 for booking in cast(5, 300))


@pytest.mark.parametrize("seed", SEEDS)
def test_who_competes_for_rooms_never_acts_in_one_scene_but_for_rivals_who_are_alike(seed: int) -> None:
    for scene in script(cast(seed, 200)):
        lanes: dict[tuple[str, str], list[Booking]] = {}
        for act in scene.acts:
            if act.booking is not None and act.do in SCARCE:
                lanes.setdefault(act.booking.lane, []).append(act.booking)
        for competing in lanes.values():
            assert len(competing) == 1 or {booking.fate for booking in competing} == {"last_room"}
            assert len({(booking.arrives, booking.nights) for booking in competing}) == 1


def test_what_takes_a_process_away_is_a_scene_of_its_own() -> None:
    scenes = [scene for scene in script(cast(1, 300)) if any(act.do in ALONE for act in scene.acts)]
    assert scenes
    assert all(len(scene.acts) == 1 for scene in scenes)


def test_scenes_come_in_the_order_of_time_and_every_guest_is_in_some() -> None:
    guests = cast(2, 60)
    scenes: list[Scene] = script(guests)
    assert all(before.at < after.at for before, after in pairwise(scenes))
    assert {act.booking.id for scene in scenes for act in scene.acts if act.booking} == {b.id for b in guests}
