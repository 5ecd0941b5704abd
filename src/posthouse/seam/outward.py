"""From a payload to a row that the relay can publish: named, validated, measured."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from posthouse.clock import Clock, new_id
from posthouse.contracts import event_type_of
from posthouse.contracts.versions import Cast, Casts, whole
from posthouse.errors import ConfigurationError, ContractError, EventError, EventTooLarge
from posthouse.events import DUAL_OF, Codec, Event, Producer, check_size, timestamp
from posthouse.seam.context import EventContext
from posthouse.store import OutboxRow

STAMP_ROOM = 64
"""Bytes that the number and the lineage, which the store gives, take at most in any wire format."""


DUAL_VERSION = "dualversion"
"""Beside it: the number of the newest version."""
SEQUENCE = "sequence"
ALONE: Mapping[str, str] = {}
"""What a fact shares with other versions when there are none."""


class EnvelopeBuilder:
    """Writes envelopes for one service. With `downcasts` it writes older versions beside the new ones."""

    def __init__(
        self, producer: Producer, source: str, codec: Codec, clock: Clock, limit: int, downcasts: Casts | None = None
    ) -> None:
        self._downcasts: Casts = {} if downcasts is None else downcasts
        self._producer = producer
        self._source = source
        self._codec = codec
        self._clock = clock
        self._limit = limit

    def limit_to(self, broker_limit: int) -> None:
        """Never accept what the broker would refuse."""
        self._limit = min(self._limit, broker_limit - STAMP_ROOM)

    @property
    def older(self) -> list[str]:
        """The subjects that are published beside a newer version of theirs."""
        return [cast.target.name for cast in self._downcasts.values()]

    def build(
        self,
        payload: object,
        cause: EventContext,
        *,
        at: float | None = None,
        idempotency_key: str | None = None,
        extensions: Mapping[str, str] = ALONE,
    ) -> list[OutboxRow]:
        """The row for one fact, and behind it one for each older version that is published beside it. `extensions` travel
        with each."""
        casts = whole(self._downcasts, event_type_of(type(payload)).name) if self._downcasts else ()
        if not casts:
            return [self.build_one(payload, cause, at=at, idempotency_key=idempotency_key, fact=extensions)]
        at = self._clock.now() if at is None else at
        first = new_id()
        fact = {**extensions, DUAL_OF: first, DUAL_VERSION: str(casts[0].source.subject.version)}
        rows = [self.build_one(payload, cause, at=at, idempotency_key=idempotency_key, event_id=first, fact=fact)]
        cause = msgspec.structs.replace(cause, correlation=cause.correlation or first)
        for cast in casts:
            payload = cast(payload)
            row = self.build_one(payload, cause, at=at, idempotency_key=idempotency_key, fact=fact)
            rows.append(_beside(rows[0], row, cast))
        return rows

    def build_one(
        self,
        payload: object,
        cause: EventContext,
        *,
        at: float | None = None,
        idempotency_key: str | None = None,
        event_id: str | None = None,
        fact: Mapping[str, str] = ALONE,
    ) -> OutboxRow:
        """The row for one fact in one version; `fact` is what it shares with its other versions. Raises ContractError,
        EventError or EventTooLarge; nothing has been written then."""
        if not cause.tenant:
            raise ConfigurationError("every event needs a tenant: pass tenant=… ('platform' for facts of no tenant)")
        event_type = event_type_of(type(payload))
        if event_type.subject.service != self._producer.service:
            raise ConfigurationError(
                f"{event_type.name} belongs to the service {event_type.subject.service!r}: {self._producer.service!r} may read "
                "it, not publish it"
            )
        data = event_type.payload.encode(payload)
        if len(data) > self._limit:
            raise EventTooLarge(len(data), self._limit, f"{event_type.name} (its data)")
        key = event_type.key_of(payload)
        if key is not None and SEQUENCE in fact:
            raise EventError(f"extension {SEQUENCE!r}: the store numbers this event, and readers refuse two numbers")
        event_id = event_id or new_id()
        event = Event(
            id=event_id,
            type=event_type.name,
            source=self._source,
            data=data,
            time=timestamp(self._clock.now() if at is None else at),
            tenant=cause.tenant,
            key=key,
            correlation=cause.correlation or event_id,
            causation=cause.causation,
            actor=cause.actor,
            producer=self._producer,
            schema=event_type.schema,
            content_type=event_type.payload.content_type,
            idempotency_key=idempotency_key,
            traceparent=cause.traceparent,
            tracestate=cause.tracestate,
            metadata=event_type.metadata_of(payload),
            extensions=fact,
        )
        encoded = self._codec.encode(event)
        try:
            check_size(encoded.headers, encoded.body, self._limit)
        except EventTooLarge as error:
            raise EventTooLarge(error.size, error.limit, f"{event_type.name} ({error.where})") from None
        return OutboxRow(
            topic=event_type.topic,
            tenant=cause.tenant,
            event_id=event_id,
            body=encoded.body,
            headers=encoded.headers,
            key=key,
            numbered=key is not None,
            idempotency_key=idempotency_key,
        )


def _beside(first: OutboxRow, row: OutboxRow, cast: Cast) -> OutboxRow:
    """The row of an older version. In a topic that both share, the idempotency key of the fact is taken already: it gets
    one of its own, so that both or none are known. Raises ContractError when it would leave the order of its key."""
    if row.key != first.key:
        raise ContractError(
            f"{cast.target.name} would be published under the key {row.key!r} beside {first.key!r}: a downcast keeps the key"
        )
    if row.idempotency_key is None:
        return row
    return msgspec.structs.replace(row, idempotency_key=f"{row.idempotency_key} {cast.target.name}")
