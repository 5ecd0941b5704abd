"""notification-service: what guests are told, in their language, over a carrier that misbehaves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import get_args

import pytest

from melmastoon.facts.house import Guest
from melmastoon.facts.notification import MessageBounced, MessageDelivered, MessageDispatched, MessageKind
from melmastoon.facts.reservation import BookingModified
from melmastoon.notification import notification
from melmastoon.notification.texts import TEXTS, language, text_of
from melmastoon.vendors.messaging import Letter, SimulatedCarrier
from melmastoon.vendors.weather import Mood, Scripted, Seeded, VendorTrouble
from melmastoon.vendors.world import World, pretending
from posthouse.testing import Harness
from tests.unit.melmastoon.samples import (
    cancelled,
    check_in_started,
    confirmed,
    guest,
    held,
    reallocated,
)
from tests.unit.melmastoon.stay import check_out_started, failed

LETTERS = "SELECT key, asked FROM letters ORDER BY key"


@pytest.fixture
def outside() -> Iterator[World]:
    with pretending(World()) as world:
        yield world


async def _kinds(house: Harness) -> list[tuple[str, str]]:
    return sorted((e.data.kind, e.data.channel) for e in await house.published(MessageDispatched))


async def test_a_confirmation_goes_out_on_three_channels_and_arrives(outside: World) -> None:
    async with Harness(notification) as house:
        await house.publish(confirmed())
        await house.settled()
        assert await _kinds(house) == [("confirmation", "email"), ("confirmation", "sms"), ("confirmation", "whatsapp")]
        assert len(await house.published(MessageDelivered)) == 3
        assert await house.published(MessageBounced) == []
        await house.assert_replay_safe()
    assert [asked for _, asked in outside.ledger.read(LETTERS)] == [1, 1, 1]


async def test_a_cancellation_says_what_is_given_back(outside: World) -> None:
    async with Harness(notification) as house:
        await house.publish(cancelled(refund_cents=20_050))
        await house.settled()
        assert await _kinds(house) == [("cancellation", "email"), ("cancellation", "sms")]
    texts = outside.ledger.read("SELECT DISTINCT text FROM letters")
    assert texts == [("Dear Zala, your booking b1 is cancelled. 200.50 USD",)]


async def test_a_welcome_names_its_booking_and_a_retry_sends_another_one() -> None:
    with pretending(World()):
        async with Harness(notification) as house:
            await house.publish(check_in_started())
            await house.publish(check_in_started(attempt=2, missing=("key",)))
            await house.publish(check_in_started(attempt=3, missing=("key", "welcome")))
            await house.settled()
            welcomes = {
                (e.data.booking_id, e.data.kind, e.data.message_id) for e in await house.published(MessageDispatched)
            }
            assert welcomes == {
                ("b1", "welcome", "msg-b1-welcome-whatsapp"),
                ("b1", "welcome", "msg-b1-welcome-whatsapp-3"),
            }


async def test_a_receipt_and_a_survey_follow_once_the_folio_is_closed_or_the_balance_pending(outside: World) -> None:
    async with Harness(notification) as house:
        await house.publish(check_out_started())
        await house.settled()
        assert await _kinds(house) == []
        await house.publish(check_out_started(asks="key"))
        await house.publish(check_out_started(attempt=2))
        await house.settled()
        assert await _kinds(house) == [("receipt", "email"), ("survey", "email")]


async def test_finance_is_alerted_to_every_refund_that_fails_and_to_nothing_else(outside: World) -> None:
    async with Harness(notification) as house:
        await house.publish(failed("stay", "b1", 20_050))
        await house.settled()
        assert await _kinds(house) == []
        for _ in range(2):  # finance asks again, and it fails again
            await house.publish(failed("stay", "b1", 20_050, refund=True))
        await house.settled()
        assert await _kinds(house) == [("alert", "email"), ("alert", "email"), ("alert", "sms"), ("alert", "sms")]
    words = "finance, booking b1 needs somebody: refund of 200.50 USD declined"
    assert outside.ledger.read("SELECT DISTINCT recipient, text FROM letters") == [("finance@t1.on-call", words)]


async def test_the_front_desk_is_alerted_to_a_check_in_that_is_partial_and_the_guest_is_not_told(
    outside: World,
) -> None:
    resting = BookingModified(booking_id="b1", guest=guest("fa"), change="check_in_partial", note="missing: key")
    async with Harness(notification) as house:
        await house.publish(resting)
        await house.settled()
        assert await _kinds(house) == [("alert", "email"), ("alert", "sms")]
    words = "front_desk, booking b1 needs somebody: check-in missing: key"
    assert outside.ledger.read("SELECT DISTINCT recipient, text FROM letters") == [("front_desk@t1.on-call", words)]


@pytest.mark.parametrize("known_first", [True, False])
async def test_new_dates_are_told_to_the_address_that_was_known_last(outside: World, known_first: bool) -> None:
    moved = BookingModified(booking_id="b1", guest=guest("de", email="new@example.org"), change="guest")
    change = reallocated(check_in=date(2027, 3, 1), check_out=date(2027, 3, 2))
    async with Harness(notification) as house:
        if not known_first:
            await house.publish(change)
            await house.settled()
        await house.publish(held())
        house.clock.advance(1)
        await house.publish(moved)
        await house.settled()
        if known_first:
            await house.publish(change)
        await house.advance(60)
        assert [e.data.message_id for e in await house.published(MessageDispatched) if "chg" in e.data.message_id] == [
            "msg-b1-modification-email-chg-b1"
        ]
    sql = "SELECT recipient, text FROM letters WHERE key LIKE '%chg-b1'"
    text = "Guten Tag Zala, Ihre Buchung b1 wurde geändert. 2027-03-01 – 2027-03-02"
    assert outside.ledger.read(sql) == [("new@example.org", text)]


async def test_an_older_address_that_comes_late_does_not_replace_the_newer_one(outside: World) -> None:
    moved = BookingModified(booking_id="b1", guest=guest(email="new@example.org"), change="guest")
    async with Harness(notification) as house:
        house.clock.advance(10)
        await house.publish(moved)
        await house.settled()
        house.clock.advance(-10)
        await house.publish(held())
        await house.settled()
        await house.publish(reallocated(check_in=date(2027, 3, 1), check_out=date(2027, 3, 2)))
        await house.settled()
    assert outside.ledger.read("SELECT recipient FROM letters WHERE key LIKE '%chg-b1'") == [("new@example.org",)]


async def test_two_facts_that_lead_to_one_message_dispatch_it_once_and_its_first_report_stands(outside: World) -> None:
    async with Harness(notification) as house:
        for _ in range(2):
            await house.publish(check_in_started())
            await house.settled()
        [dispatched] = await house.published(MessageDispatched)
        await house.publish(dispatched.data)
        await house.settled()
        assert len(await house.published(MessageDispatched)) == 2, "said once more by the test"
        assert len(await house.published(MessageDelivered)) == 1


async def test_every_other_change_is_told_as_well(outside: World) -> None:
    kept = BookingModified(booking_id="b1", guest=guest(), change="dates_kept", note="dates unavailable, original kept")
    async with Harness(notification) as house:
        await house.publish(kept)
        await house.settled()
        assert await _kinds(house) == [("modification", "email")]
    assert outside.ledger.read("SELECT text FROM letters") == [
        ("Dear Zala, your booking b1 was changed. dates unavailable, original kept",)
    ]


async def test_without_a_telephone_everything_goes_by_mail(outside: World) -> None:
    async with Harness(notification) as house:
        unreachable = Guest(guest_id="g1", name="Zala", email="z@example.org", phone="")
        await house.publish(confirmed(who=unreachable))
        await house.publish(check_in_started(who=unreachable))
        await house.settled()
        assert await _kinds(house) == [("confirmation", "email"), ("welcome", "email")]


async def test_what_cannot_be_delivered_bounces_with_the_reason() -> None:
    bouncing = frozenset({"t1:msg-b1-confirmation-email", "t1:msg-b1-confirmation-whatsapp"})
    with pretending(World(weather=Scripted(declined=bouncing))):
        async with Harness(notification) as house:
            await house.publish(confirmed())
            await house.settled()
            bounced = sorted((e.data.channel, e.data.reason) for e in await house.published(MessageBounced))
            assert bounced == [("email", "unknown_address"), ("whatsapp", "mailbox_full")]
            assert [e.data.channel for e in await house.published(MessageDelivered)] == ["sms"]


@pytest.mark.parametrize("operation", ["take", "fate"])
@pytest.mark.parametrize("mood", [mood for mood in get_args(Mood) if mood != "fine"])
async def test_however_the_carrier_behaves_a_message_is_carried_once(operation: str, mood: Mood) -> None:
    with pretending(World(weather=Scripted(moods={operation: [mood]}))) as world:
        async with Harness(notification) as house:
            await house.publish(check_in_started())
            await house.settled()
            assert len(await house.published(MessageDispatched)) == 1
            assert len(await house.published(MessageDelivered)) == 1
    assert len(world.ledger.read(LETTERS)) == 1


@pytest.mark.parametrize("operation", ["take", "fate"])
async def test_an_outage_is_outlasted_by_later_tries(operation: str) -> None:
    with pretending(World(weather=Scripted(moods={operation: ["error"] * 12}))) as world:
        async with Harness(notification) as house:
            await house.publish(check_in_started())
            await house.settled()
            assert await house.published(MessageDelivered) == []
            for _ in range(5):
                await house.advance(60)
            assert len(await house.published(MessageDispatched)) == 1
            assert len(await house.published(MessageDelivered)) == 1
            assert await house.held(notification) == []
    assert len(world.ledger.read(LETTERS)) == 1


async def test_one_message_that_waits_holds_up_no_other() -> None:
    with pretending(World(weather=Scripted(moods={"take t1:msg-b1-welcome-whatsapp": ["error"] * 12}))):
        async with Harness(notification) as house:
            await house.publish(check_in_started("b1"))
            await house.publish(check_in_started("b2"))
            await house.publish(check_out_started("b1", asks="key"))
            await house.settled()
            sent = sorted(e.data.message_id for e in await house.published(MessageDispatched))
            assert sent == ["msg-b1-receipt-email", "msg-b1-survey-email", "msg-b2-welcome-whatsapp"]


@pytest.mark.parametrize("kind", get_args(MessageKind))
@pytest.mark.parametrize("locale", ["en", "de", "fa", "ps"])
def test_every_kind_of_message_has_a_text_in_every_language(kind: MessageKind, locale: str) -> None:
    text = text_of(kind, locale, name="Zala", booking="b1", detail="!")
    assert "Zala" in text
    assert "{" not in text
    assert (text == text_of(kind, "en", name="Zala", booking="b1", detail="!")) is (locale == "en")
    assert set(TEXTS[kind]) == set(TEXTS["confirmation"])


@pytest.mark.parametrize(
    ("locale", "spoken"), [("fa-AF", "fa"), ("ps_AF", "ps"), ("de", "de"), ("EN-gb", "en"), ("xx", "en"), ("", "en")]
)
def test_a_guest_is_written_to_in_the_language_of_their_locale(locale: str, spoken: str) -> None:
    assert language(locale) == spoken


async def test_the_same_seed_gives_the_same_carrier() -> None:
    async def fates(seed: int) -> list[str]:
        world = World(weather=Seeded(seed=seed, faults=0.999))
        seen: list[str] = []
        for number in range(40):
            carrier, letter = SimulatedCarrier(world), Letter(key=f"t1:m{number}", channel="email", to="a", text="b")
            for work in (carrier.take(letter), carrier.fate(letter.key)):
                try:
                    seen.append(str(await work))
                except VendorTrouble as trouble:
                    seen.append(trouble.reason)
        return seen

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MELMASTOON_PACE", "1000000")
        first = await fates(7)
        assert first == await fates(7)
        assert first != await fates(8)
    assert {"delivered", "unknown_address", "vendor_error", "timeout"} <= set(first)
