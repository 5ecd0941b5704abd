"""iam-service: who somebody is, and from which device."""

from __future__ import annotations

from typing import Annotated, Literal

from melmastoon.facts.house import service
from posthouse import Payload, Personal, subject_erased

iam = service("iam", owner="identity")

SubjectErased = subject_erased(iam)
"""A guest, or somebody with an account, is erased: whoever keeps something plain deletes it."""


@iam.event("user.created.v1", key="user_id", retention="cold", about="user_id", idempotency="required")
class UserCreated(Payload):
    """Somebody has an account."""

    user_id: str
    email: Annotated[str, Personal("contact")]
    locale: str = "en"


@iam.event("session.issued.v1", key="session_id", retention="cold", idempotency="required")
class SessionIssued(Payload):
    """Somebody signed in. `device_id` is empty in a browser."""

    session_id: str
    user_id: str
    device_id: str = ""


@iam.event("session.revoked.v1", key="session_id", retention="cold", idempotency="required")
class SessionRevoked(Payload):
    """A session is over: nothing is done in its name any more."""

    session_id: str
    user_id: str
    reason: Literal["signed_out", "device_unbound", "security"]


@iam.event("device.bound.v1", key="device_id", retention="cold", idempotency="required")
class DeviceBound(Payload):
    """A desktop of the back office belongs to a property, and works while the line is down."""

    device_id: str
    user_id: str
    property_id: str


@iam.event("device.unbound.v1", key="device_id", retention="cold", idempotency="required")
class DeviceUnbound(Payload):
    """A desktop is no longer trusted."""

    device_id: str
    user_id: str
    reason: Literal["retired", "lost", "security"]


@iam.event("mfa.enrolled.v1", key="user_id", retention="cold", idempotency="required")
class MfaEnrolled(Payload):
    """Somebody has one more way of proving who they are."""

    user_id: str
    factor_id: str
    factor: Literal["totp", "webauthn"]
