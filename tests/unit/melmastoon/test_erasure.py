"""A guest is erased while the house runs: nothing of the platform tells who it was, and everything else is as it was."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from melmastoon.bff_tenant_booking.front import Request, hold_booking
from melmastoon.facts.billing import ChargePosted, RefundPosted
from melmastoon.facts.house import Guest
from melmastoon.facts.iam import SubjectErased, UserCreated, iam
from melmastoon.facts.payment import IntentRefunded
from melmastoon.facts.reservation import BookingCancelled, BookingConfirmed
from melmastoon.iam.commands import create_user
from melmastoon.platform import SERVICES
from melmastoon.reservation import commands, reservation
from melmastoon.reservation.bookings import Booking, read
from melmastoon.sync import sync
from melmastoon.sync.commands import Delta, pull
from melmastoon.tables import run
from melmastoon.vendors.weather import Scripted
from melmastoon.vendors.world import World, pretending, world
from melmastoon.wiring import InProcess
from posthouse import app_of, is_withheld
from posthouse.erasure import erase, prove
from posthouse.remains import Found
from posthouse.testing import Harness
from posthouse.trust.secrets import ERASED
from tests.unit.melmastoon.samples import ARRIVAL
from tests.unit.melmastoon.test_platform import WISH, open_house

ZALA = Guest(guest_id="g1", name="Zala-Wardak", email="zala.wardak@example.org", phone="+93700112233")
OMAR = Guest(guest_id="g2", name="Omar-Sahak", email="omar.sahak@example.org", phone="+93700445566")
WORDS = (ZALA.name, ZALA.email, ZALA.phone, "a cot for the baby")
TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"


@pytest.fixture
async def house() -> AsyncIterator[Harness]:
    """Two guests have booked; one letter to Zala was not taken by the carrier, and waits."""
    weather = Scripted(moods={"take t1:msg-bk-zala-confirmation-whatsapp": ["error"] * 3})
    with pretending(World(weather=weather)):
        async with Harness(*SERVICES) as everything:
            await open_house(everything, rooms=("1", "2"))
            for name, guest in (("zala", ZALA), ("omar", OMAR)):
                wish = msgspec.structs.replace(WISH, guest=guest)
                await hold_booking(Request(tenant="t1", id=name), wish, bookings=InProcess())
                await everything.settled()
            async with reservation.transaction("t1") as tx:
                await commands.note_requests(tx, "bk-zala", request_id="q1", words=WORDS[-1])
            await everything.settled()
            yield everything


async def _everywhere(tenant: str, subject: str) -> list[Found]:
    return [place for service in SERVICES for place in await prove(app_of(service), tenant, subject)]


async def _tells(words: Sequence[str]) -> list[str]:
    """Tables of the house, its own and those of the library, in which one of these words stands."""
    found = []
    for service in SERVICES:
        async with service.transaction("t1") as tx:
            for (table,) in list(await run(tx, TABLES)):
                rows = repr([tuple(row) for row in await tx.execute(f'SELECT * FROM "{table}"')])
                found += [f"{service.name}.{table}" for word in words if word in rows]
    return sorted(set(found))


async def _booking(booking_id: str) -> Booking:
    async with reservation.transaction("t1") as tx:
        return await read(tx, booking_id)


async def test_after_an_erasure_nothing_of_the_house_tells_who_the_guest_was(house: Harness) -> None:
    before = await _everywhere("t1", "g1")
    assert {place.place for place in before if place.boxes} == {"outbox", "held events", "log"}
    assert sum(place.opened for place in before) == sum(place.boxes for place in before) > 30
    assert sum(place.plain for place in before) == 0
    read_models = ["notification.notification_contact", "reservation.bookings", "sync.sync_delta"]
    assert await _tells(WORDS) == read_models, "what is said, logged and held is encrypted all the time"

    done = await erase(iam, "t1", "g1", why="asked at the desk")
    await house.settled()
    assert done.proven, done
    after = await _everywhere("t1", "g1")
    assert sum(place.boxes for place in after) == sum(place.boxes for place in before)
    assert [place for place in after if place.opened or place.plain] == []
    assert await _tells(WORDS) == []
    booking = await _booking("bk-zala")
    assert (booking.guest, booking.special_requests, booking.status) == (ZALA.erased(), ERASED, "confirmed")

    # Whoever hears of it later hears of nobody, and writes to nobody.
    letters = "SELECT count(*) FROM letters WHERE recipient = ?"
    [(taken,)] = world().ledger.read(letters, ZALA.phone)
    await house.advance(600)
    assert world().ledger.read(letters, ZALA.phone) == [(taken,)]
    assert [len(await house.held(service)) for service in SERVICES] == [0] * 22
    assert [e.data.subject for e in await house.published(SubjectErased)] == ["g1"]
    await house.assert_replay_safe()


async def test_other_guests_and_the_same_id_of_another_tenant_are_untouched(house: Harness) -> None:
    await open_house(house, "t2", rooms=("1",))
    wish = msgspec.structs.replace(WISH, guest=ZALA)
    await hold_booking(Request(tenant="t2", id="zala"), wish, bookings=InProcess())
    await house.settled()
    assert (await erase(iam, "t1", "g1", why="asked at the desk")).proven
    await house.settled()
    assert (await _booking("bk-omar")).guest == OMAR
    async with reservation.transaction("t2") as tx:
        assert (await read(tx, "bk-zala")).guest == ZALA
    confirmed = {(e.tenant, e.key): e.data.guest for e in await house.published(BookingConfirmed)}
    assert confirmed == {
        ("t1", "bk-omar"): OMAR,
        ("t2", "bk-zala"): ZALA,
        ("t1", "bk-zala"): ZALA.erased(),
    }


async def test_a_stay_goes_on_without_its_guest_and_its_money_adds_up(house: Harness) -> None:
    assert world().ledger.charged("t1") == {"bk-zala": 30_000, "bk-omar": 30_000}
    assert (await erase(iam, "t1", "g1", why="asked at the desk")).proven
    await house.settled()
    async with reservation.transaction("t1") as tx:
        await commands.cancel(tx, "bk-zala", today=ARRIVAL.replace(year=ARRIVAL.year - 1))
    await house.settled()
    await house.advance(3_600)
    [gone] = await house.published(BookingCancelled)
    assert (gone.data.guest, gone.data.refund_cents) == (ZALA.erased(), 30_000)
    [back] = await house.published(IntentRefunded)
    assert (back.data.booking_id, back.data.amount_cents) == ("bk-zala", 30_000)
    assert {name: cents for name, cents in world().ledger.charged("t1").items() if cents} == {"bk-omar": 30_000}
    assert [len(await house.held(service)) for service in SERVICES] == [0] * 22
    charged = {e.data.booking_id: e.data.amount_cents for e in await house.published(ChargePosted)}
    assert charged == {"bk-zala": 30_000, "bk-omar": 30_000}
    assert [e.data.amount_cents for e in await house.published(RefundPosted)] == [30_000]
    assert await _tells(WORDS) == []


async def test_desktops_are_told_to_forget_as_well(house: Harness) -> None:
    async with iam.transaction("t1") as tx:
        await create_user(tx, "u1", email="desk@example.org")
    assert (await erase(iam, "t1", "g1", why="asked at the desk")).proven
    await house.settled()
    async with sync.transaction("t1") as tx:
        await run(tx, "INSERT INTO sync_device VALUES (?, ?, ?, 0, 1)", "t1", "d1", "p1")
        deltas = await pull(tx, "d1", since=0)
    assert _about_guest(deltas, "g1") == {ERASED}
    assert _about_guest(deltas, "g2") == {OMAR.name}
    assert (deltas[-1].thing, deltas[-1].thing_id) == ("guest", "g1"), "the last thing that is heard of them"


def _about_guest(deltas: Sequence[Delta], guest_id: str) -> set[str]:
    guests = [msgspec.json.decode(delta.body).get("guest", {}) for delta in deltas]
    return {guest["name"] for guest in guests if guest and guest["guest_id"] == guest_id}


async def test_somebody_with_an_account_is_erased_and_their_address_is_free_again() -> None:
    async with Harness(iam) as accounts:
        async with iam.transaction("t1") as tx:
            await create_user(tx, "u1", email="ada@example.org")
        await accounts.settled()
        assert (await erase(iam, "t1", "u1", why="left the company")).proven
        await accounts.settled()
        [created] = await accounts.published(UserCreated)
        assert is_withheld(created.data.email)
        async with iam.transaction("t1") as tx:
            assert "ada@" not in repr([tuple(row) for row in await run(tx, "SELECT * FROM iam_user")])
            assert await create_user(tx, "u2", email="ada@example.org")
