"""Inward: a frame on its way in. All its steps are on this page, in their order.

| when | steps |
|---|---|
| a frame is received | limit, verify, decode the envelope, prove its seal |
| its handler is about to be run, no transaction is open | fetch, decrypt |
| its handler runs | guard, decode the payload, lift |

The guard stands before the payload is decoded: it may learn the schema that the bytes were written with. A step refuses with
FrameRefused, and the event is quarantined with that reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.broker import Delivery
from posthouse.contracts import EventType
from posthouse.contracts.versions import Cast, lift
from posthouse.errors import ContractError, DecodeError
from posthouse.events import Event, decode_any
from posthouse.redaction import words_of
from posthouse.seam.schema_guard import SchemaGuard
from posthouse.seam.seals import Arrival, Seals
from posthouse.seam.seam import Seam
from posthouse.seam.timing import OK, outcome_of


def open_frame(seam: Seam, consumer: str, delivery: Delivery, limit: int) -> Event[bytes]:
    """The envelope of a delivery of at most `limit` bytes. Raises DecodeError, and what `verify` raises."""
    began, outcome, frame = seam.timing.now(), OK, delivery.frame
    try:
        if delivery.defect:
            raise DecodeError("defect", delivery.defect)
        if len(frame.body) > limit:
            raise DecodeError("too_large", f"{len(frame.body):,} bytes, the service reads {limit:,}: raise its limit")
        if seam.verify is not None:
            seam.verify(frame)
        if seam.seals is None:
            return decode_any(frame.headers, frame.body)
        return _proved(seam.seals, delivery)
    except Exception as error:
        outcome = outcome_of(error)
        raise
    finally:
        seam.timing.note("inward", consumer, began, outcome)


def _proved(seals: Seals, delivery: Delivery) -> Event[bytes]:
    frame, arrival = delivery.frame, Arrival(delivery.frame.topic, delivery.stored_at)
    try:
        event = decode_any(frame.headers, frame.body)
    except DecodeError as error:
        seals.refuse_changed(arrival, f"it cannot be read: {words_of(error)}")
        raise
    return seals.prove(arrival, event)


async def open_data(seam: Seam, event: Event[bytes]) -> Event[bytes]:
    """The event with the data that its producer meant: fetched from where it lies, decrypted."""
    for step in seam.before_handler:
        event = await step(event)
    return event


def open_payload(
    guard: SchemaGuard, event_type: EventType[object], casts: Sequence[Cast], event: Event[bytes]
) -> Event[object]:
    """The one place where a payload is decoded. Raises ContractError."""
    guard.check(event_type, event)
    if event_type.provenance is not None and not event.metadata.ai_provenance:
        raise ContractError("a model made it, and its envelope does not say which: it lacks the provenance")
    data: object = event_type.payload.decode(event.data)
    return event.with_data(lift(casts, data) if casts else data)
