"""Inward: a frame on its way in. All its steps are on this page, in their order.

| when | steps |
|---|---|
| a frame is received | limit, verify, decode the envelope, prove its seal |
| its handler is about to be run, no transaction is open | gather, where there are several; fetch, decrypt |
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
from posthouse.seam.seals import Arrival, Claim, Seals
from posthouse.seam.seam import Seam
from posthouse.seam.timing import OK, outcome_of


class BegunFrame:
    """A frame that is being opened: read, and not proved yet. What is costly about that may be done ahead, in any thread."""

    __slots__ = ("_claim", "_error", "_read", "_seals", "took")

    def __init__(self, seam: Seam, seals: Seals, delivery: Delivery, limit: int) -> None:
        began = seam.timing.now()
        self._seals = seals
        self._read: tuple[Arrival, Event[bytes]] | None = None
        self._claim: Claim | None = None
        self._error: Exception | None = None
        try:
            arrival, event = self._read = _arrival(delivery), _decoded(seam, delivery, limit)
            self._claim = seals.claim(arrival, event)
        except Exception as error:
            self._error = error
        self.took = seam.timing.now() - began
        """Seconds on the way of everybody else, until now."""

    @property
    def is_claim(self) -> bool:
        """Whether there is something to verify."""
        return self._claim is not None

    def verify(self) -> None:
        """Do the costly part now. It never raises: what is wrong with a frame belongs to that frame."""
        try:
            if self._claim is not None:
                self._claim.verify()
        except Exception as error:
            self._error = error

    def event(self) -> Event[bytes]:
        """What is in it, proved. Raises what `open_frame` raises."""
        if self._read is None or self._error is not None:
            raise self._error or AssertionError("a frame is read or refused")
        return self._read[1] if self._claim is None else self._seals.prove(*self._read, self._claim)


def open_frame(
    seam: Seam, consumer: str, delivery: Delivery, limit: int, begun: BegunFrame | None = None
) -> Event[bytes]:
    """The envelope of a delivery of at most `limit` bytes, perhaps `begun` before. Raises DecodeError, and what `verify` raises."""
    began, outcome = seam.timing.now(), OK
    try:
        if begun is not None:
            began -= begun.took
            return begun.event()
        event = _decoded(seam, delivery, limit)
        return event if seam.seals is None else seam.seals.prove(_arrival(delivery), event)
    except Exception as error:
        outcome = outcome_of(error)
        raise
    finally:
        seam.timing.note("inward", consumer, began, outcome)


def _decoded(seam: Seam, delivery: Delivery, limit: int) -> Event[bytes]:
    frame = delivery.frame
    if delivery.defect:
        raise DecodeError("defect", delivery.defect)
    if len(frame.body) > limit:
        raise DecodeError("too_large", f"{len(frame.body):,} bytes, the service reads {limit:,}: raise its limit")
    if seam.verify is not None:
        seam.verify(frame)
    try:
        return decode_any(frame.headers, frame.body)
    except DecodeError as error:
        if seam.seals is not None:
            seam.seals.refuse_changed(_arrival(delivery), f"it cannot be read: {words_of(error)}")
        raise


def _arrival(delivery: Delivery) -> Arrival:
    return Arrival(delivery.frame.topic, delivery.stored_at)


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
