"""What ai-orchestrator-service does about facts: it looks for what seems wrong, and says so. People decide."""

from __future__ import annotations

import hashlib

import msgspec

from melmastoon.facts.ai_orchestrator import AnomalyDetected, AnomalyKind, Provenance, ai_orchestrator
from melmastoon.facts.iam import SubjectErased
from melmastoon.facts.lock_integration import VendorErred
from melmastoon.facts.payment import IntentFailed
from melmastoon.facts.reservation import BookingCancelled, BookingConfirmed
from melmastoon.tables import run, typed
from posthouse import ErasureReceipt, Event, Tx, is_withheld

OFTEN = 3
"""So many declines of one booking, or errors of the locks of one house, are worth a look."""

SEEN = "INSERT INTO ai_guest (tenant, guest) VALUES (?, ?) ON CONFLICT DO NOTHING"
LOCK = "SELECT 1 FROM ai_guest WHERE tenant = ? AND guest = ? FOR UPDATE"
STAY = """INSERT INTO ai_stay (tenant, booking_id, guest_id, guest, check_in, check_out, live)
    VALUES (?, ?, ?, ?, ?, ?, 1) ON CONFLICT DO NOTHING"""
SAME = """SELECT booking_id FROM ai_stay WHERE tenant = ? AND guest = ? AND booking_id <> ? AND check_in = ?
    AND check_out = ? AND live = 1 ORDER BY booking_id LIMIT 1"""
GONE = "UPDATE ai_stay SET live = 0 WHERE tenant = ? AND booking_id = ?"
DIGESTS = "SELECT DISTINCT guest FROM ai_stay WHERE tenant = ? AND guest_id = ?"
FORGET_STAYS = "DELETE FROM ai_stay WHERE tenant = ? AND guest_id = ?"
FORGET_GUEST = """DELETE FROM ai_guest WHERE tenant = ? AND guest = ?
    AND NOT EXISTS (SELECT 1 FROM ai_stay WHERE ai_stay.tenant = ai_guest.tenant AND ai_stay.guest = ai_guest.guest)"""
TROUBLE = """INSERT INTO ai_trouble (tenant, kind, place, times) VALUES (?, ?, ?, 1)
    ON CONFLICT (tenant, kind, place) DO UPDATE SET times = ai_trouble.times + 1 RETURNING times"""
NEW_ANOMALY = """INSERT INTO ai_anomaly (tenant, anomaly_id, provenance, decision) VALUES (?, ?, ?, '')
    ON CONFLICT DO NOTHING"""


@ai_orchestrator.on(BookingConfirmed)
async def look_for_a_double(event: Event[BookingConfirmed], tx: Tx) -> AnomalyDetected | None:
    """The same guest, the same nights. Bookings of one guest are looked at one after the other, so that of two that come at
    once the second sees the first."""
    stay = event.data
    if is_withheld(stay.guest.email):
        return None  # erased meanwhile: all of these look the same
    guest = hashlib.sha256(stay.guest.email.strip().lower().encode()).hexdigest()
    nights = (stay.check_in.isoformat(), stay.check_out.isoformat())
    await run(tx, SEEN, tx.tenant, guest)
    await run(tx, LOCK, tx.tenant, guest)
    await run(tx, STAY, tx.tenant, stay.booking_id, stay.guest.guest_id, guest, *nights)
    other = typed(await run(tx, SAME, tx.tenant, guest, stay.booking_id, *nights), tuple[str])
    if not other:
        return None
    return await _anomaly(tx, event, "duplicate_booking", stay.booking_id, other_booking_id=other[0][0], confidence=0.9)


@ai_orchestrator.on(BookingCancelled, reads=["booking_id"])
async def forget(event: Event[BookingCancelled], tx: Tx) -> None:
    await run(tx, GONE, tx.tenant, event.data.booking_id)


@ai_orchestrator.on(SubjectErased, consumer="erasure")
async def forget_guest(event: Event[ErasureReceipt], tx: Tx) -> None:
    """Whoever knows an address finds its digest: so it goes too, unless somebody else has the same address."""
    digests = typed(await run(tx, DIGESTS, tx.tenant, event.data.subject), tuple[str])
    await run(tx, FORGET_STAYS, tx.tenant, event.data.subject)
    for (digest,) in digests:
        await run(tx, FORGET_GUEST, tx.tenant, digest)


@ai_orchestrator.on(IntentFailed, reads=["booking_id"])
async def count_declines(event: Event[IntentFailed], tx: Tx) -> AnomalyDetected | None:
    if await _times(tx, "repeated_decline", event.data.booking_id) != OFTEN:
        return None
    return await _anomaly(tx, event, "repeated_decline", event.data.booking_id, confidence=0.7)


@ai_orchestrator.on(VendorErred, reads=["booking_id", "property_id"])
async def count_lock_errors(event: Event[VendorErred], tx: Tx) -> AnomalyDetected | None:
    if await _times(tx, "lock_vendor_failing", event.data.property_id) != OFTEN:
        return None
    return await _anomaly(tx, event, "lock_vendor_failing", event.data.booking_id, confidence=0.8)


async def _times(tx: Tx, kind: AnomalyKind, place: str) -> int:
    [(times,)] = typed(await run(tx, TROUBLE, tx.tenant, kind, place), tuple[int])
    return times


async def _anomaly(
    tx: Tx,
    event: Event[object],
    kind: AnomalyKind,
    booking_id: str,
    *,
    confidence: float,
    other_booking_id: str = "",
) -> AnomalyDetected:
    """What was seen, by which rule, how sure, and in which fact."""
    provenance = Provenance(model=f"rule:{kind}", model_version="1", confidence=confidence, source=event.id)
    anomaly_id = f"anomaly-{kind}-{booking_id}"
    await run(tx, NEW_ANOMALY, tx.tenant, anomaly_id, msgspec.json.encode(provenance).decode())
    return AnomalyDetected(
        anomaly_id=anomaly_id,
        kind=kind,
        booking_id=booking_id,
        other_booking_id=other_booking_id,
        provenance=provenance,
    )
