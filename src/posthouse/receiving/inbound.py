"""InboundEvent: one event on its way to its handler, as it came from the broker or as it was held."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from posthouse.broker import Delivery
from posthouse.errors import DecodeError
from posthouse.events import PLATFORM, Event, decode_any
from posthouse.events.limits import MAX_BYTES
from posthouse.receiving.fact import Fact, fact_of
from posthouse.receiving.handler import Handler
from posthouse.receiving.holding import storable, words_of
from posthouse.receiving.policy import Policy
from posthouse.store import HeldEvent, InboxEntry

DEFAULT = Policy()


class InboundEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event on its way to its handler. `event` is None when its bytes could not be read, and `defect` says why;
    `handler` is None when the consumer has no use for its type. `cautious`: it may have been run before. `fact` is what it
    shares with other versions; None when it was published in one."""

    arrival: InboxEntry
    headers: Mapping[str, str]
    body: bytes
    event: Event[bytes] | None = None
    handler: Handler | None = None
    defect: str = ""
    cautious: bool = False
    fact: Fact | None = None

    @property
    def policy(self) -> Policy:
        """The handler's policy, or the default where there is none."""
        return DEFAULT if self.handler is None else self.handler.policy


def arrived(
    delivery: Delivery, handlers: Mapping[str, Handler], ordered: Mapping[str, bool], limit: int
) -> InboundEvent:
    """What a delivery is, once its envelope is decoded. `ordered` says per topic whether numbers count; a body of more than
    `limit` bytes is not looked at."""
    frame = delivery.frame
    digest = hashlib.blake2b(frame.body, digest_size=16).digest()
    try:
        if delivery.defect:
            raise DecodeError("defect", delivery.defect)
        if len(frame.body) > limit:
            raise DecodeError("too_large", f"{len(frame.body):,} bytes, the service reads {limit:,}: raise its limit")
        return _read(delivery, decode_any(frame.headers, frame.body), digest, handlers, ordered)
    except Exception as error:  # whatever it is, it belongs to this one event: its neighbours go on
        unread = InboxEntry(
            topic=frame.topic, tenant=PLATFORM, event_id=_name(frame.id, digest), digest=digest, time=delivery.stored_at
        )
        return InboundEvent(arrival=unread, headers=frame.headers, body=frame.body, defect=words_of(error))


def _name(id: str, digest: bytes) -> str:
    """The broker's word for a frame that could not be read, or the digest of its bytes where that is too long to be kept."""
    id = storable(id)
    return id if 0 < len(id.encode()) <= MAX_BYTES["id"] else digest.hex()


def _read(
    delivery: Delivery,
    event: Event[bytes],
    digest: bytes,
    handlers: Mapping[str, Handler],
    ordered: Mapping[str, bool],
) -> InboundEvent:
    frame = delivery.frame
    said = event.occurred_at.timestamp() if event.time else delivery.stored_at
    numbered = event.key is not None and ordered.get(frame.topic, True)
    arrival = InboxEntry(
        topic=frame.topic,
        tenant=event.tenant,
        event_id=event.id,
        digest=digest,
        time=min(said, delivery.stored_at),
        said=said,
        key=event.key,
        sequence=event.sequence if numbered else None,
        lineage=event.lineage,
    )
    return InboundEvent(
        arrival=arrival,
        headers=frame.headers,
        body=frame.body,
        event=event,
        handler=handlers.get(event.type),
        cautious=delivery.redelivered,
        fact=fact_of(event, arrival) if event.extensions else None,
    )


def from_held(held: HeldEvent, handlers: Mapping[str, Handler]) -> InboundEvent:
    """What a held event is."""
    try:
        event = decode_any(held.headers, held.body)
    except Exception as error:
        return InboundEvent(arrival=held.arrival, headers=held.headers, body=held.body, defect=words_of(error))
    return InboundEvent(
        arrival=held.arrival,
        headers=held.headers,
        body=held.body,
        event=event,
        handler=handlers.get(event.type),
        fact=fact_of(event, held.arrival) if event.extensions else None,
    )


def under_digest(work: InboundEvent) -> InboundEvent:
    """The same under the digest of its bytes, outside of any tenant and line: for what no store takes under its own name."""
    arrival = work.arrival
    nameless = InboxEntry(
        topic=arrival.topic,
        tenant=PLATFORM,
        event_id=arrival.digest.hex(),
        digest=arrival.digest,
        time=arrival.time,
    )
    return msgspec.structs.replace(work, arrival=nameless, event=None, handler=None, fact=None)


def ordering_key(arrival: InboxEntry) -> tuple[str, ...]:
    """Events of one line are applied in order; one without a number stands alone."""
    if arrival.sequence is None or arrival.key is None:
        return (arrival.topic, arrival.tenant, "", arrival.event_id)
    return (arrival.topic, arrival.tenant, arrival.key)
