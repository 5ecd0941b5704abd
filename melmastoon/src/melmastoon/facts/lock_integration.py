"""lock-integration-service: who may open which door, and until when."""

from __future__ import annotations

from datetime import date
from typing import Literal

from melmastoon.facts.house import service
from posthouse import Payload

lock_integration = service("lock_integration", owner="doors")

Vendor = Literal["ttlock", "salto", "assa_abloy", "wiegand"]


@lock_integration.event("key_credential.issued.v1", key="booking_id", retention="cold", idempotency="required")
class KeyIssued(Payload):
    """A key opens this room during this window."""

    booking_id: str
    credential_id: str
    property_id: str
    room_id: str
    check_in: date
    check_out: date
    vendor: Vendor
    manual: bool = False
    """Cut at the front desk, because the vendor did not answer."""


@lock_integration.event("key_credential.updated.v1", key="booking_id", retention="cold", idempotency="required")
class KeyUpdated(Payload):
    """The key opens another room or another window. `credential_id` is empty when none opens anything: a change of dates is
    answered all the same."""

    booking_id: str
    credential_id: str
    property_id: str
    room_id: str
    check_in: date
    check_out: date
    change_id: str = ""


@lock_integration.event("key_credential.revoked.v1", key="booking_id", retention="cold", idempotency="required")
class KeyRevoked(Payload):
    """The key opens nothing any more. `credential_id` is empty when there was none. A check-out is answered, whether or not it
    was said before."""

    booking_id: str
    credential_id: str
    reason: Literal["checked_out", "cancelled", "no_show", "security"]


@lock_integration.event("key_credential.suspended.v1", key="booking_id", retention="cold", idempotency="required")
class KeySuspended(Payload):
    """The key opens nothing for the time being."""

    booking_id: str
    credential_id: str
    reason: str


@lock_integration.event("vendor.error.v1", key="booking_id", retention="cold", not_past=True, idempotency="required")
class VendorErred(Payload):
    """The vendor did not do what was asked; the desk does it by hand, or asks again."""

    booking_id: str
    property_id: str
    vendor: Vendor
    operation: Literal["issue", "update", "revoke"]
    reason: str


@lock_integration.event("device.paired.v1", key="device_id", retention="cold", idempotency="required")
class DevicePaired(Payload):
    """A lock belongs to a room from now on."""

    device_id: str
    property_id: str
    room_id: str
    vendor: Vendor
