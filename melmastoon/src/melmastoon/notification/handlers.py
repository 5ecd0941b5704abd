"""What notification-service does about facts. Messages are independent of each other: nothing here needs an order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from melmastoon.facts.house import Guest
from melmastoon.facts.iam import SubjectErased
from melmastoon.facts.inventory import AllocationReallocated
from melmastoon.facts.notification import MessageBounced, MessageDelivered, MessageDispatched, notification
from melmastoon.facts.payment import IntentFailed
from melmastoon.facts.reservation import (
    BookingCancelled,
    BookingConfirmed,
    BookingHeld,
    BookingModified,
    CheckInStarted,
    CheckOutStarted,
)
from melmastoon.notification.messages import Cause, Message, about_new_dates, messages_for, refund_alert
from melmastoon.pace import seconds
from melmastoon.tables import run, typed
from melmastoon.vendors.messaging import Fate, Letter, carrier
from melmastoon.vendors.weather import VendorTrouble
from posthouse import ErasureReceipt, Event, Policy, RetryLater, Tx
from posthouse.trust.secrets import ERASED

T = TypeVar("T")

TRIES = 3
"""How often the carrier is asked in one run."""

AS_THEY_COME = Policy(order="none", first_delay=seconds(2), last_delay=seconds(60), deadline=60.0)

KEEP_CONTACT = """INSERT INTO notification_contact (tenant, booking_id, guest_id, name, email, phone, locale,
    known_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, booking_id) DO UPDATE SET guest_id = excluded.guest_id,
    name = excluded.name, email = excluded.email, phone = excluded.phone, locale = excluded.locale, known_at = excluded.known_at
    WHERE notification_contact.known_at < excluded.known_at"""
CONTACT = "SELECT guest_id, name, email, phone, locale FROM notification_contact WHERE tenant = ? AND booking_id = ?"
FORGET = "UPDATE notification_contact SET name = ?, email = ?, phone = ? WHERE tenant = ? AND guest_id = ?"
NEW_MESSAGE = """INSERT INTO notification_message (tenant, message_id, booking_id, kind, channel, locale, state)
    VALUES (?, ?, ?, ?, ?, ?, 'dispatched') ON CONFLICT DO NOTHING"""
SETTLE = "UPDATE notification_message SET state = ? WHERE tenant = ? AND message_id = ? AND state = 'dispatched'"


@notification.on(BookingHeld, BookingModified, consumer="contacts", policy=AS_THEY_COME, reads=["booking_id", "guest"])
async def keep_contact(event: Event[BookingHeld | BookingModified], tx: Tx) -> None:
    """Facts about rooms and money name the booking alone. The latest address stands, whichever comes first."""
    guest = event.data.guest
    values = (event.data.booking_id, guest.guest_id, guest.name, guest.email, guest.phone, guest.locale, event.time)
    await run(tx, KEEP_CONTACT, tx.tenant, *values)


@notification.on(SubjectErased, consumer="erasure", policy=AS_THEY_COME)
async def forget_guest(event: Event[ErasureReceipt], tx: Tx) -> None:
    """Where to write to is not known any more; that there is a booking is."""
    await run(tx, FORGET, ERASED, ERASED, ERASED, tx.tenant, event.data.subject)


async def send(event: Event[Cause]) -> Sequence[Message]:
    return await _handed_over(event.tenant, messages_for(event))


@notification.on(
    BookingConfirmed,
    BookingCancelled,
    CheckInStarted,
    CheckOutStarted,
    BookingModified,
    policy=AS_THEY_COME,
    calling=send,
)
async def dispatch(event: Event[Cause], tx: Tx, sent: Sequence[Message]) -> list[MessageDispatched]:
    return await _noted(tx, sent)


async def alert_finance(event: Event[IntentFailed]) -> Sequence[Message]:
    return await _handed_over(event.tenant, refund_alert(event))


@notification.on(IntentFailed, consumer="alerts", policy=AS_THEY_COME, calling=alert_finance)
async def dispatch_alert(event: Event[IntentFailed], tx: Tx, sent: Sequence[Message]) -> list[MessageDispatched]:
    """A refund that failed un-cancels nothing: somebody of finance is called."""
    return await _noted(tx, sent)


async def send_new_dates(event: Event[AllocationReallocated]) -> Sequence[Message]:
    async with notification.transaction(event.tenant) as tx:
        known = typed(await run(tx, CONTACT, tx.tenant, event.data.booking_id), tuple[str, str, str, str, str])
    if not known:
        raise RetryLater(f"nobody said yet who booked {event.data.booking_id}")
    guest_id, name, email, phone, locale = known[0]
    guest = Guest(guest_id=guest_id, name=name, email=email, phone=phone, locale=locale)
    return await _handed_over(event.tenant, about_new_dates(event.data, guest))


@notification.on(AllocationReallocated, policy=AS_THEY_COME, calling=send_new_dates)
async def dispatch_new_dates(
    event: Event[AllocationReallocated], tx: Tx, sent: Sequence[Message]
) -> list[MessageDispatched]:
    return await _noted(tx, sent)


async def ask_what_became_of_it(event: Event[MessageDispatched]) -> Fate:
    fate = await _tried(lambda: carrier().fate(_key(event.tenant, event.data.message_id)))
    if fate is None:
        raise RetryLater(f"the carrier does not know {event.data.message_id} yet")
    return fate


@notification.on(MessageDispatched, consumer="reports", policy=AS_THEY_COME, calling=ask_what_became_of_it)
async def settle(event: Event[MessageDispatched], tx: Tx, fate: Fate) -> MessageDelivered | MessageBounced | None:
    """The first report about a message stands."""
    message = event.data
    if not (await run(tx, SETTLE, fate, tx.tenant, message.message_id)).rowcount:
        return None
    if fate == "delivered":
        return MessageDelivered(
            message_id=message.message_id, booking_id=message.booking_id, kind=message.kind, channel=message.channel
        )
    return MessageBounced(
        message_id=message.message_id,
        booking_id=message.booking_id,
        kind=message.kind,
        channel=message.channel,
        reason=fate,
    )


async def _handed_over(tenant: str, messages: Sequence[Message]) -> Sequence[Message]:
    """All of them, or VendorTrouble; those that were taken before are not carried again."""
    await asyncio.gather(*(_hand_over(tenant, message) for message in messages))
    return messages


async def _hand_over(tenant: str, message: Message) -> None:
    letter = Letter(key=_key(tenant, message.message_id), channel=message.channel, to=message.to, text=message.text)
    await _tried(lambda: carrier().take(letter))


async def _tried(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again at once while the vendor has trouble; what outlasts that is for the policy."""
    for _ in range(TRIES - 1):
        with suppress(VendorTrouble):
            return await ask()
    return await ask()


def _key(tenant: str, message_id: str) -> str:
    return f"{tenant}:{message_id}"


async def _noted(tx: Tx, sent: Iterable[Message]) -> list[MessageDispatched]:
    """Each message once, however many facts led to it."""
    return [
        MessageDispatched(
            message_id=message.message_id,
            booking_id=message.booking_id,
            kind=message.kind,
            channel=message.channel,
            locale=message.locale,
            welcomes=message.booking_id if message.kind == "welcome" else "",
        )
        for message in sent
        if await _is_new(tx, message)
    ]


async def _is_new(tx: Tx, message: Message) -> bool:
    values = (message.message_id, message.booking_id, message.kind, message.channel, message.locale)
    return (await run(tx, NEW_MESSAGE, tx.tenant, *values)).rowcount == 1
