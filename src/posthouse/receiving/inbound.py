"""Decode: from a delivery, or a held event, to an InboundEvent: one event on its way to its handler."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping

import msgspec

from posthouse.broker import Delivery, Frame
from posthouse.errors import DecodeError, FrameRefused
from posthouse.events import PLATFORM, Event, decode_any
from posthouse.events.limits import MAX_BYTES
from posthouse.receiving.fact import Fact, fact_of
from posthouse.receiving.handler import Handler
from posthouse.receiving.place import digest_of, place_of, unlike
from posthouse.receiving.policy import DEFAULT, Policy
from posthouse.redaction import storable, words_of
from posthouse.seam import Seam
from posthouse.seam.inward import BegunFrame, open_frame
from posthouse.seam.seals import Arrival, Place, Seals
from posthouse.store import WAITED, HeldEvent, HeldState, InboxEntry


class InboundEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event on its way to its handler. `event` is None when its frame was refused, and `defect` says why; `refused`: by a step
    of the seam, when it came from those that are held. `handler` is None when the consumer has no use for its type. `redelivered`: it
    may have been run before. `fact` is what it shares with other versions; None when it was published in one. `held`: the row that it
    comes from, None when the broker brought it. `belongs`: the place that is proved of one that was refused because its row says
    another."""

    entry: InboxEntry
    headers: Mapping[str, str]
    body: bytes
    event: Event[bytes] | None = None
    handler: Handler | None = None
    defect: str = ""
    refused: bool = False
    redelivered: bool = False
    fact: Fact | None = None
    held: HeldEvent | None = None
    belongs: InboxEntry | None = None

    @property
    def policy(self) -> Policy:
        """The handler's policy, or the default where there is none."""
        return DEFAULT if self.handler is None else self.handler.answers(self.event)

    def to_held(
        self, consumer: str, state: HeldState, reason: str, *, attempts: int = 0, after: float = 0.0
    ) -> HeldEvent:
        """The same as it is held from now on, and due so many seconds after."""
        return HeldEvent(
            consumer=consumer,
            entry=self.entry,
            state=state,
            headers={storable(name): storable(value) for name, value in self.headers.items()},
            body=self.body,
            type=self.event.type if self.event is not None else "",
            reason=reason,
            attempts=attempts,
            after=after,
            correlation=None if self.event is None else storable(self.event.correlation or self.event.id),
        )


@dataclasses.dataclass(frozen=True)
class Decoder:
    """Reads envelopes for one consumer; payloads stay raw until their handler runs. It never raises: what is wrong with an
    event belongs to that event, and its neighbours go on."""

    consumer: str
    handlers: Mapping[str, Handler]
    ordered: Mapping[str, bool]
    """Per topic: whether numbers count."""
    limit: int
    """Bytes of the largest body that is looked at."""
    seam: Seam
    unreadable: Callable[[str], None] = lambda _: None
    """Told, in a short word, why a frame could not be read."""

    def begin(self, seals: Seals, delivery: Delivery) -> BegunFrame:
        """Read a delivery that is proved later."""
        return BegunFrame(self.seam, seals, delivery, self.limit)

    def from_delivery(self, delivery: Delivery, begun: BegunFrame | None = None) -> InboundEvent:
        """What a delivery is; `begun` when it was read already."""
        frame = delivery.frame
        digest = digest_of(frame.body)
        try:
            event = open_frame(self.seam, self.consumer, delivery, self.limit, begun)
            handler = self._handler(Arrival(frame.topic, delivery.stored_at), event)
            entry = self._entry(frame.topic, delivery.stored_at, event, digest)
            return InboundEvent(
                entry=entry,
                headers=frame.headers,
                body=frame.body,
                event=event,
                handler=handler,
                redelivered=delivery.redelivered,
                fact=fact_of(event, entry) if event.extensions else None,
            )
        except Exception as error:
            name = _name(frame.id, digest)
            entry = InboxEntry(
                topic=frame.topic, tenant=PLATFORM, event_id=name, digest=digest, time=delivery.stored_at
            )
            words = words_of(error)
            self.unreadable(_short(error))
            defect = words if isinstance(error, FrameRefused) else f"unreadable: {words}"
            return InboundEvent(entry=entry, headers=frame.headers, body=frame.body, defect=defect)

    def from_held(self, held: HeldEvent) -> InboundEvent:
        """What a held event is. Its frame was verified when it came; since then an operator may have edited it. Its seal is looked at
        again: he leaves one, and whoever else changes a row does not."""
        inbound = InboundEvent(entry=held.entry, headers=held.headers, body=held.body, held=held)
        try:
            if not held.type and self.seam.verify is not None:  # its frame was refused: it was never let in
                topic, id = held.entry.topic, held.entry.event_id
                self.seam.verify(Frame(topic=topic, id=id, key=None, headers=held.headers, body=held.body))
            event = self._read_again(held)
            handler = self._handler(Arrival(held.entry.topic, held.first_at), event)
        except FrameRefused as error:
            return msgspec.structs.replace(
                inbound, defect=words_of(error), refused=True, belongs=self._true_place(held)
            )
        except Exception as error:
            return msgspec.structs.replace(inbound, defect=words_of(error))
        waited = held.entry.event_id.endswith(WAITED)  # its fact was taken when it was delivered
        fact = fact_of(event, held.entry) if event.extensions and not waited else None
        return msgspec.structs.replace(inbound, event=event, handler=handler, fact=fact)

    def _handler(self, arrival: Arrival, event: Event[bytes]) -> Handler | None:
        """Who hears an event, if anybody. FrameRefused for one that comes by another topic than that of its type: whoever may speak
        there speaks for nobody else, and nobody has asked there what is asked here."""
        handler = self.handlers.get(event.type)
        if handler is None or (own := handler.by_name[event.type].topic) == arrival.topic:
            return handler
        why = f"{event.type} belongs to the topic {own}, and came by {arrival.topic}"
        if self.seam.seals is not None:
            self.seam.seals.refuse_changed(arrival._replace(topic=own), why)
        raise FrameRefused(f"wrong-topic: {why}", "wrong-topic")

    def _read_again(self, held: HeldEvent) -> Event[bytes]:
        """The event of a held row."""
        seals, arrival = self.seam.seals, Arrival(held.entry.topic, held.first_at)
        try:
            event = decode_any(held.headers, held.body)
        except DecodeError as error:
            if seals is not None:
                seals.refuse_changed(arrival, f"it cannot be read: {words_of(error)}")
            raise
        if seals is None:
            return event
        handler, ordered = self.handlers.get(event.type), self.ordered.get(held.entry.topic, True)
        loose = handler is None or not ordered or (handler.waits and held.entry.event_id.endswith(WAITED))
        event = seals.prove(arrival._replace(held=place_of(held, event, loose=loose)), event)
        if held.type and (wrong := unlike(held, event, waits=handler is None or handler.waits)):
            seals.refuse_changed(arrival, f"its row is of another {wrong} than the event in it")
        return event

    def _true_place(self, held: HeldEvent) -> InboxEntry | None:
        """Where a held event belongs that was refused, if it is what its producer said and only its row is not."""
        with contextlib.suppress(DecodeError):
            event = decode_any(held.headers, held.body)
            handler, topic = self.handlers.get(event.type), held.entry.topic
            if held.type and handler is not None:
                topic = handler.by_name[event.type].topic
            arrival = Arrival(topic, held.first_at, Place(event.id, held.entry.digest))
            if self.seam.seals is not None and self.seam.seals.is_intact(arrival, event):
                return self._entry(topic, held.entry.time, event, digest_of(held.body))
        return None

    def let_in(self, inbound: InboundEvent, event: Event[bytes]) -> InboundEvent:
        """A held event whose frame was refused when it came and is accepted now: under the id and number that it says, as if
        the broker had brought it again."""
        came = inbound.entry
        entry = self._entry(came.topic, came.time, event, came.digest)
        fact = fact_of(event, entry) if event.extensions else None
        return msgspec.structs.replace(inbound, entry=entry, fact=fact, held=None, redelivered=True)

    def _entry(self, topic: str, stored_at: float, event: Event[bytes], digest: bytes) -> InboxEntry:
        said = event.occurred_at.timestamp() if event.time else stored_at
        numbered = event.key is not None and self.ordered.get(topic, True)
        return InboxEntry(
            topic=topic,
            tenant=event.tenant,
            event_id=event.id,
            digest=digest,
            time=min(said, stored_at),
            said=said,
            key=event.key,
            sequence=event.sequence if numbered else None,
            lineage=event.lineage,
        )


def _short(error: Exception) -> str:
    """Why a frame could not be read, in a word for counting; what a frame says is not in it."""
    return error.reason if isinstance(error, DecodeError | FrameRefused) else "unreadable"


def _name(id: str, digest: bytes) -> str:
    """The broker's word for a frame that could not be read, or the digest of its bytes where that is too long to be kept."""
    id = storable(id)
    return id if 0 < len(id.encode()) <= MAX_BYTES["id"] else digest.hex()


def under_digest(inbound: InboundEvent) -> InboundEvent:
    """The same under the digest of its bytes, outside of any tenant and key: for what no store takes under its own name."""
    entry = inbound.entry
    nameless = InboxEntry(
        topic=entry.topic, tenant=PLATFORM, event_id=entry.digest.hex(), digest=entry.digest, time=entry.time
    )
    return msgspec.structs.replace(inbound, entry=nameless, event=None, handler=None, fact=None)
