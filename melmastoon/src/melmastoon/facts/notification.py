"""notification-service: what guests are told, and whether it arrived."""

from __future__ import annotations

from typing import Literal

from melmastoon.facts.house import service
from posthouse import Payload

notification = service("notification", owner="guest relations")

MessageKind = Literal["confirmation", "cancellation", "welcome", "receipt", "survey", "modification", "alert"]
Channel = Literal["email", "sms", "whatsapp"]


@notification.event("message.dispatched.v1", key="message_id", retention="hot", idempotency="required")
class MessageDispatched(Payload):
    """The provider took a message to a guest; or an alert, to whoever is on call. `welcomes` is the booking whose check-in
    waits for it; empty for anything but a welcome."""

    message_id: str
    booking_id: str
    kind: MessageKind
    channel: Channel
    locale: str
    welcomes: str = ""


@notification.event("message.delivered.v1", key="message_id", retention="hot", idempotency="required")
class MessageDelivered(Payload):
    """The message reached the guest."""

    message_id: str
    booking_id: str
    kind: MessageKind
    channel: Channel


@notification.event("message.bounced.v1", key="message_id", retention="hot", idempotency="required")
class MessageBounced(Payload):
    """The message cannot reach the guest this way."""

    message_id: str
    booking_id: str
    kind: MessageKind
    channel: Channel
    reason: Literal["unknown_address", "mailbox_full", "blocked"]
