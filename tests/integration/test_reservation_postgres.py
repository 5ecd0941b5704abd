"""Reservation on PostgreSQL: a whole stay, and people and facts that really come at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Concatenate, ParamSpec

import pytest_asyncio
from msgspec.structs import replace

from melmastoon.facts.reservation import BookingCancelled, BookingConfirmed, BookingHeld, CheckInStarted, NoShow
from melmastoon.reservation import desk, reservation
from melmastoon.reservation.board import card
from melmastoon.reservation.bookings import Booking, read
from melmastoon.reservation.commands import cancel, change_dates, check_in, check_out, hold, no_show
from melmastoon.secrets import secrets_of
from posthouse import App, Reject, Service, Tx
from posthouse.app import app_of
from posthouse.clock import SystemClock
from posthouse.errors import DeskError
from posthouse.store.sagas import SagaFilter
from posthouse.testing import Harness, rehost
from tests.kit.waiting import eventually
from tests.unit.melmastoon.reservation.house import (
    ARRIVAL,
    LATER,
    LATER_STILL,
    PARTS,
    captured,
    committed,
    delta,
    folio_closed,
    key_revoked,
    key_updated,
    reallocated,
    wanted,
)

P = ParamSpec("P")

RIVALS = [f"b{number}" for number in range(12)]


@pytest_asyncio.fixture
async def others(postgres_url: str, tmp_path: Path) -> AsyncIterator[Harness]:
    """Who speaks for the other services, while reservation is at work on PostgreSQL."""
    secrets = secrets_of("reservation", keys=f"sqlite:///{tmp_path}/keys.db", master=f"file:{tmp_path}/master.key")
    everybody_else = Service("speaker")
    App(everybody_else, secrets=secrets)
    speaker = Harness(everybody_else)
    before = rehost(reservation, store=postgres_url, broker=speaker.broker, clock=SystemClock(), secrets=secrets)
    try:
        await app_of(reservation).store.upgrade()
        async with reservation.running():
            yield speaker
    finally:
        await reservation.aclose()
        reservation.hosted_by(before)


async def booking(booking_id: str = "b1") -> Booking:
    async with reservation.transaction("t1") as tx:
        return await read(tx, booking_id)


async def until(status: str, booking_id: str = "b1") -> Booking:
    return await eventually(lambda: booking(booking_id), right=lambda found: found.status == status)


async def ask(command: Callable[Concatenate[Tx, P], Awaitable[bool]], *given: P.args, **more: P.kwargs) -> bool:
    """One request in a transaction of its own; False when it was refused, or had been granted before."""
    try:
        async with reservation.transaction("t1") as tx:
            return await command(tx, *given, **more)
    except Reject:
        return False


async def said(speaker: Harness, *facts: type[object]) -> list[str]:
    """The ids of the bookings about which any of these was said."""
    said = [event for fact in facts for event in await speaker.published(fact)]
    return sorted(event.key or "" for event in said)


async def test_a_whole_stay_with_a_change_of_dates_on_postgresql(others: Harness) -> None:
    assert await ask(hold, wanted())
    for fact in (committed(), captured(), PARTS["key"]):
        await others.publish(fact)
    await until("confirmed")
    await eventually(_key, right=lambda key: key == "issued")
    assert await ask(change_dates, "b1", change_id="c1", check_in=LATER, check_out=LATER_STILL)
    for fact in (reallocated(), delta(10_000), key_updated("c1")):
        await others.publish(fact)
    await eventually(lambda: _sagas("date_change"), right=lambda statuses: statuses == ["completed"])
    changed = await booking()
    assert (changed.status, changed.room_id, changed.amount_cents) == ("confirmed", "r2", 40_000)
    assert await ask(check_in, "b1", today=LATER)
    for fact in PARTS.values():
        await others.publish(fact)
    await until("checked_in")
    assert await ask(check_out, "b1")
    for fact in (key_revoked(), folio_closed()):
        await others.publish(fact)
    await until("checked_out")
    assert {await _one(name) for name in ("booking", "check_in", "check_out")} == {"completed"}


async def test_a_guest_who_gives_up_at_the_moment_of_the_payment_is_either_confirmed_or_cancelled(
    others: Harness,
) -> None:
    for id in RIVALS:
        assert await ask(hold, wanted(id))
        await others.publish(replace(committed(), booking_id=id))
    await asyncio.gather(*(_pay_and_give_up(others, id, after) for after, id in enumerate(RIVALS)))
    await eventually(lambda: _standing(RIVALS), right=lambda found: set(found.values()) <= {"confirmed", "cancelled"})
    standing = await _standing(RIVALS)
    confirmed = sorted(id for id, status in standing.items() if status == "confirmed")
    cancelled = sorted(id for id, status in standing.items() if status == "cancelled")
    await eventually(_said(others, BookingConfirmed, BookingCancelled), right=lambda found: found == sorted(RIVALS))
    assert await said(others, BookingConfirmed) == confirmed
    assert await said(others, BookingCancelled) == cancelled


async def test_of_arrival_cancellation_and_no_show_at_the_same_moment_one_wins(others: Harness) -> None:
    for id in RIVALS:
        assert await ask(hold, wanted(id))
        await others.publish(replace(committed(), booking_id=id))
        await _pay(others, id)
    for id in RIVALS:
        await until("confirmed", id)
    day = ARRIVAL.replace(day=11)
    for id in RIVALS:
        granted = await asyncio.gather(
            ask(check_in, id, today=day),
            ask(cancel, id, today=day),
            ask(no_show, id, today=day),
        )
        assert granted.count(True) == 1
    facts = (CheckInStarted, BookingCancelled, NoShow)
    await eventually(_said(others, *facts), right=lambda found: len(found) >= len(RIVALS))
    assert await said(others, *facts) == sorted(RIVALS)


async def test_a_booking_that_is_held_ten_times_at_the_same_moment_is_held_once(others: Harness) -> None:
    granted = await asyncio.gather(*(ask(hold, wanted()) for _ in range(10)))
    assert granted.count(True) == 1
    await eventually(_said(others, BookingHeld), right=lambda found: bool(found))
    assert await said(others, BookingHeld) == ["b1"]


async def _pay_and_give_up(speaker: Harness, id: str, after: int) -> None:
    """The moment is another one for each, so that some are early and some are late."""
    await _pay(speaker, id)
    await asyncio.sleep(after * 0.01)
    with suppress(DeskError):  # it was completed a moment before
        await desk.abandon("t1", id)


async def _pay(speaker: Harness, id: str) -> None:
    await speaker.publish(replace(captured(), booking_id=id, intent_id=f"int-{id}-stay", reference=id))


async def _standing(ids: list[str]) -> dict[str, str]:
    return {id: (await booking(id)).status for id in ids}


async def _key() -> str:
    async with reservation.transaction("t1") as tx:
        return (await card(tx, "b1")).key


async def _sagas(name: str) -> list[str]:
    return [row.status async for row in app_of(reservation).sagas.find(SagaFilter(saga=name))]


async def _one(name: str) -> str:
    (status,) = await _sagas(name)
    return status


def _said(speaker: Harness, *facts: type[object]) -> Callable[[], Awaitable[list[str]]]:
    async def look() -> list[str]:
        return await said(speaker, *facts)

    return look
