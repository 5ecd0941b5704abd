"""What iam-service can be asked to do. Each answers whether anything changed: what was done before is not done again."""

from __future__ import annotations

from typing import Literal

from melmastoon.facts.iam import (
    DeviceBound,
    DeviceUnbound,
    MfaEnrolled,
    SessionIssued,
    SessionRevoked,
    UserCreated,
)
from melmastoon.tables import run, typed
from posthouse import Reject, Tx

NEW_USER = """INSERT INTO iam_user (tenant, user_id, email, locale) VALUES (?, ?, ?, ?)
    ON CONFLICT DO NOTHING"""
NEW_SESSION = """INSERT INTO iam_session (tenant, session_id, user_id, device_id, live) VALUES (?, ?, ?, ?, 1)
    ON CONFLICT DO NOTHING"""
END_SESSION = "UPDATE iam_session SET live = 0 WHERE tenant = ? AND session_id = ? AND live = 1 RETURNING user_id"
NEW_DEVICE = """INSERT INTO iam_device (tenant, device_id, user_id, property_id, bound) VALUES (?, ?, ?, ?, 1)
    ON CONFLICT DO NOTHING"""
END_DEVICE = "UPDATE iam_device SET bound = 0 WHERE tenant = ? AND device_id = ? AND bound = 1 RETURNING user_id"
LIVE_ON_DEVICE = """SELECT session_id FROM iam_session WHERE tenant = ? AND device_id = ? AND live = 1
    ORDER BY session_id"""
NEW_FACTOR = """INSERT INTO iam_factor (tenant, user_id, factor_id, factor) VALUES (?, ?, ?, ?)
    ON CONFLICT DO NOTHING"""


async def create_user(tx: Tx, user_id: str, *, email: str, locale: str = "en") -> bool:
    """Open an account. One address has one account in a tenant."""
    if not (await run(tx, NEW_USER, tx.tenant, user_id, email.lower(), locale)).rowcount:
        if await _is_user(tx, user_id):
            return False
        raise Reject(f"the address of {user_id} has an account already")
    tx.publish(UserCreated(user_id=user_id, email=email.lower(), locale=locale), idempotency_key=f"iam:user:{user_id}")
    return True


async def sign_in(tx: Tx, session_id: str, *, user_id: str, device_id: str = "") -> bool:
    """Begin a session, in a browser or on a bound desktop."""
    await _refuse_strangers(tx, user_id)
    if device_id and not await _is_bound(tx, device_id):
        raise Reject(f"{device_id} is not a bound device: bind it first")
    if not (await run(tx, NEW_SESSION, tx.tenant, session_id, user_id, device_id)).rowcount:
        return False
    issued = SessionIssued(session_id=session_id, user_id=user_id, device_id=device_id)
    tx.publish(issued, idempotency_key=f"iam:session:{session_id}")
    return True


async def sign_out(
    tx: Tx, session_id: str, *, reason: Literal["signed_out", "device_unbound", "security"] = "signed_out"
) -> bool:
    """End a session."""
    ended = typed(await run(tx, END_SESSION, tx.tenant, session_id), tuple[str])
    for (user_id,) in ended:
        revoked = SessionRevoked(session_id=session_id, user_id=user_id, reason=reason)
        tx.publish(revoked, idempotency_key=f"iam:revoke:{session_id}")
    return bool(ended)


async def bind_device(tx: Tx, device_id: str, *, user_id: str, property_id: str) -> bool:
    """Trust a desktop of the back office. One that was unbound stays so: it comes back under another id."""
    await _refuse_strangers(tx, user_id)
    if not (await run(tx, NEW_DEVICE, tx.tenant, device_id, user_id, property_id)).rowcount:
        return False
    bound = DeviceBound(device_id=device_id, user_id=user_id, property_id=property_id)
    tx.publish(bound, idempotency_key=f"iam:device:{device_id}")
    return True


async def unbind_device(tx: Tx, device_id: str, *, reason: Literal["retired", "lost", "security"]) -> bool:
    """Trust a desktop no more; every session on it ends."""
    ended = typed(await run(tx, END_DEVICE, tx.tenant, device_id), tuple[str])
    for (user_id,) in ended:
        unbound = DeviceUnbound(device_id=device_id, user_id=user_id, reason=reason)
        tx.publish(unbound, idempotency_key=f"iam:unbind:{device_id}")
    for (session_id,) in typed(await run(tx, LIVE_ON_DEVICE, tx.tenant, device_id), tuple[str]):
        await sign_out(tx, session_id, reason="device_unbound")
    return bool(ended)


async def enrol_factor(tx: Tx, factor_id: str, *, user_id: str, factor: Literal["totp", "webauthn"]) -> bool:
    """Add a second factor."""
    await _refuse_strangers(tx, user_id)
    if not (await run(tx, NEW_FACTOR, tx.tenant, user_id, factor_id, factor)).rowcount:
        return False
    enrolled = MfaEnrolled(user_id=user_id, factor_id=factor_id, factor=factor)
    tx.publish(enrolled, idempotency_key=f"iam:factor:{user_id}:{factor_id}")
    return True


async def _refuse_strangers(tx: Tx, user_id: str) -> None:
    if not await _is_user(tx, user_id):
        raise Reject(f"{user_id} has no account in this tenant")


async def _is_user(tx: Tx, user_id: str) -> bool:
    return bool(await run(tx, "SELECT 1 FROM iam_user WHERE tenant = ? AND user_id = ?", tx.tenant, user_id))


async def _is_bound(tx: Tx, device_id: str) -> bool:
    """Locked, so that no session begins on a device that is being unbound."""
    sql = "SELECT 1 FROM iam_device WHERE tenant = ? AND device_id = ? AND bound = 1 FOR UPDATE"
    return bool(await run(tx, sql, tx.tenant, device_id))
