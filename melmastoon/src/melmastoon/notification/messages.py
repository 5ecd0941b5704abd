"""Messages: what follows from a fact for the guest. Pure functions; ids derive from the booking, so that whoever hears a
fact twice writes once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from melmastoon.facts.house import Guest
from melmastoon.facts.inventory import AllocationReallocated
from melmastoon.facts.notification import Channel, MessageKind
from melmastoon.facts.payment import IntentFailed
from melmastoon.facts.reservation import (
    BookingCancelled,
    BookingConfirmed,
    BookingModified,
    CheckInStarted,
    CheckOutStarted,
)
from melmastoon.notification.texts import language, text_of
from posthouse import Event, is_withheld

CHANNELS: dict[MessageKind, tuple[Channel, ...]] = {
    "confirmation": ("email", "sms", "whatsapp"),
    "cancellation": ("email", "sms"),
    "welcome": ("whatsapp",),
    "receipt": ("email",),
    "survey": ("email",),
    "modification": ("email",),
    "alert": ("email", "sms"),
}

OnCall = Literal["finance", "front_desk"]
"""Whose on-call an alert is for."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message on one channel."""

    message_id: str
    booking_id: str
    kind: MessageKind
    channel: Channel
    locale: str
    to: str
    text: str


Cause = BookingConfirmed | BookingCancelled | CheckInStarted | CheckOutStarted | BookingModified


def messages_for(event: Event[Cause]) -> list[Message]:
    """What the guest of a booking is told because of a fact about it."""
    match event.data:
        case BookingConfirmed() as booked:
            return _written("confirmation", booked.booking_id, booked.guest, f"{booked.check_in} – {booked.check_out}")
        case BookingCancelled() as cancelled:
            refund = f"{cancelled.refund_cents / 100:.2f} {cancelled.currency}" if cancelled.refund_cents else ""
            return _written("cancellation", cancelled.booking_id, cancelled.guest, refund)
        case CheckInStarted() as arrived:
            if arrived.missing and "welcome" not in arrived.missing:
                return []
            nth = "" if arrived.attempt == 1 else f"-{arrived.attempt}"
            return _written("welcome", arrived.booking_id, arrived.guest, arrived.room_id, nth)
        case (
            CheckOutStarted(asks="key") as left
        ):  # what can be done about the folio is done: also for who left a balance
            return [
                *_written("receipt", left.booking_id, left.guest),
                *_written("survey", left.booking_id, left.guest),
            ]
        case CheckOutStarted():
            return []
        case BookingModified(change="check_in_partial") as resting:
            return alert("front_desk", event.tenant, resting.booking_id, f"check-in {resting.note}", event.id)
        case BookingModified() as modified:
            return _written("modification", modified.booking_id, modified.guest, modified.note, f"-{event.id}")


def about_new_dates(change: AllocationReallocated, guest: Guest) -> list[Message]:
    """What the guest is told once the new nights are theirs."""
    dates = f"{change.check_in} – {change.check_out}"
    return _written("modification", change.booking_id, guest, dates, f"-{change.change_id}")


def refund_alert(event: Event[IntentFailed]) -> list[Message]:
    """What finance is told about a refund that failed. Nothing about money that was not taken: the guest knows."""
    if not event.data.refund:
        return []
    money = f"{event.data.amount_cents / 100:.2f} {event.data.currency}"
    return alert("finance", event.tenant, event.data.booking_id, f"refund of {money} {event.data.reason}", event.id)


def alert(on_call: OnCall, tenant: str, booking_id: str, detail: str, nth: str) -> list[Message]:
    """What whoever is on call is told. The carrier knows who that is, by an address for each duty of each tenant."""
    duty = Guest(
        guest_id=on_call, name=on_call, email=f"{on_call}@{tenant}.on-call", phone=f"{on_call}@{tenant}.on-call"
    )
    return _written("alert", booking_id, duty, detail, f"-{nth}")


def _written(kind: MessageKind, booking_id: str, guest: Guest, detail: str = "", nth: str = "") -> list[Message]:
    text = text_of(kind, guest.locale, name=guest.name, booking=booking_id, detail=detail)
    return [
        Message(
            message_id=f"msg-{booking_id}-{kind}-{channel}{nth}",
            booking_id=booking_id,
            kind=kind,
            channel=channel,
            locale=language(guest.locale),
            to=guest.email if channel == "email" else guest.phone,
            text=text,
        )
        for channel in _reachable(CHANNELS[kind], guest)
    ]


def _reachable(channels: Sequence[Channel], guest: Guest) -> list[Channel]:
    """Those of them by which the guest can be reached; without a telephone everything goes by mail. Whoever was erased is not
    written to."""
    if is_withheld(guest.email):
        return []
    there = [channel for channel in channels if channel == "email" or guest.phone]
    return there or ["email"]
