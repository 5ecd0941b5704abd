"""A fact on its way out: from a payload to a row that the relay can publish."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from posthouse.broker import Capabilities
from posthouse.clock import Clock, new_id
from posthouse.contracts import EventType, event_type_for
from posthouse.contracts.versions import Cast, Casts, whole
from posthouse.errors import ConfigurationError, ContractError, EventError, EventTooLarge, PosthouseError, RuleBroken
from posthouse.events import (
    BINARY,
    DUAL_OF,
    METADATA_LIMIT,
    PLATFORM,
    STRUCTURED,
    Actor,
    Codec,
    Encoded,
    Event,
    Metadata,
    Producer,
    check_size,
    decode_any,
    timestamp,
)
from posthouse.events.codec import announced, check_sayable
from posthouse.events.limits import HARD_LIMIT, MAX_LINEAGE, MAX_SEQUENCE, plain
from posthouse.seam.context import EventContext
from posthouse.seam.drafts import DraftedRow, drafted
from posthouse.seam.seals import Seals
from posthouse.seam.seam import Seam
from posthouse.seam.timing import OTHERS, outcome_of
from posthouse.store import OutboxRow, Transaction
from posthouse.store.outbox import OutboxTable

MAX_ROW = str(2**63 - 1)
"""The longest id that a store gives to a row."""

HEADER_ROOM = 2 * METADATA_LIMIT
"""Bytes that headers of our codecs never have: what stands beside the data is bounded. A body that leaves so much need not be measured."""

DUAL_VERSION = "dualversion"
"""Beside it: the number of the newest version."""
SEQUENCE = "sequence"
FIRST_ID = "firstid"
"""The extension of a timer's fact that is encrypted or signed: the id that it had then, since it gets a new one when it fires."""
FLUSH = "(flush)"
"""The name under which the steps are timed that a whole transaction takes at once."""
ALONE: Mapping[str, str] = {}
"""What a fact shares with other versions when there are none."""


class Unfinished(OutboxRow, frozen=True, kw_only=True, gc=False):
    """A row whose fact still has steps before it: those that wait for the flush, unless it has `stepped`, and then its seal. It
    may have no bytes yet."""

    event: Event[bytes]
    stepped: bool = False


def event_in(row: OutboxRow) -> Event[bytes]:
    """The fact of a row, as far as it has come."""
    return row.event if isinstance(row, Unfinished) else decode_any(row.headers, row.body)


class EnvelopeBuilder:
    """The way of a fact from a payload to an outbox row, for one service: rights → validate → rules → quota → encrypt → claim check →
    sign → seal → row. The first three are taken when it is published, and the row is made there and then unless a step between them is
    set: those wait for the flush. With `downcasts` older versions are written beside the new ones. `sheet` tells what the broker
    takes, where that is less than `limit`; `residency` is that of facts whose owner names none."""

    def __init__(
        self,
        producer: Producer,
        source: str,
        codec: Codec,
        clock: Clock,
        limit: int,
        downcasts: Casts | None = None,
        seam: Seam | None = None,
        sheet: Callable[[], Capabilities] | None = None,
        residency: str | None = None,
    ) -> None:
        self._downcasts: Casts = {} if downcasts is None else downcasts
        self._producer = producer
        self._actor = Actor(kind="service", id=producer.service)
        """Who causes what nobody else is known to cause."""
        self._residency = residency
        self._metadata: dict[str, Metadata] = {}
        """Of event types that name no residency: theirs, with the one that is meant then."""
        self.source = source
        self._namespace = source.strip("/").rpartition("/")[0]
        """Whose namesake in another namespace says other facts."""
        self._codec = codec
        self.clock = clock
        self._most = limit
        self._carried = HARD_LIMIT
        """Bytes of a frame, with what the relay stamps, that brokers take and readers look at."""
        self._sheet = sheet
        self._suits: Capabilities | None = None
        """The sheet that the limit was taken from."""
        self._bounded = codec in (STRUCTURED, BINARY)
        """Whether it is a codec of ours, which bounds what it writes beside the data."""
        self._region = ""
        self.seam = seam or Seam()
        self._allowed: tuple[set[str], set[str]] = (set(), set())
        """Subjects that break no rule, for tenants and for the platform."""

    @property
    def service(self) -> str:
        """The service whose facts these are."""
        return self._producer.service

    def _suit(self) -> None:
        """Never accept what the broker would refuse, or may not keep. Its sheet is asked each time: what its server takes may
        become known at any time."""
        if self._sheet is None or (sheet := self._sheet()) is self._suits:
            return
        self._carried = min(HARD_LIMIT, sheet.max_bytes)
        self._region = sheet.region
        self._allowed = (set(), set())
        self._suits = sheet

    @property
    def older(self) -> list[str]:
        """The subjects that are published beside a newer version of theirs."""
        return [cast.target.name for cast in self._downcasts.values()]

    def build(
        self,
        payload: object,
        context: EventContext,
        *,
        at: float | None = None,
        idempotency_key: str | None = None,
        intent: str | None = None,
        extensions: Mapping[str, str] = ALONE,
    ) -> list[OutboxRow]:
        """The row for one fact, and behind it one for each older version that is published beside it. `extensions` travel
        with each. `intent`: what tells it from all that its type ever says, for whoever says each once already; then, and
        where the context has a cause, it has an idempotency key that the store need not remember. `finish` them before they
        are stored."""
        casts = whole(self._downcasts, event_type_for(payload).name) if self._downcasts else ()
        if not casts:
            return [
                self.build_one(payload, context, at=at, idempotency_key=idempotency_key, intent=intent, fact=extensions)
            ]
        at = self.clock.now() if at is None else at
        first = new_id()
        fact = {**extensions, DUAL_OF: first, DUAL_VERSION: str(casts[0].source.subject.version)}
        if intent is None and idempotency_key is None and context.cause is not None:
            newest = event_type_for(payload)
            intent = context.cause.intent(newest, newest.key_of(payload))
        rows = [
            self.build_one(
                payload, context, at=at, idempotency_key=idempotency_key, intent=intent, event_id=first, fact=fact
            )
        ]
        context = msgspec.structs.replace(context, correlation=context.correlation or first)
        for cast in casts:
            payload = cast(payload)
            row = self.build_one(payload, context, at=at, idempotency_key=idempotency_key, intent=intent, fact=fact)
            rows.append(_beside(rows[0], row, cast))
        return rows

    def build_one(
        self,
        payload: object,
        context: EventContext,
        *,
        at: float | None = None,
        idempotency_key: str | None = None,
        intent: str | None = None,
        event_id: str | None = None,
        fact: Mapping[str, str] = ALONE,
    ) -> OutboxRow:
        """The row for one fact in one version; `fact` is what it shares with its other versions. Raises ContractError,
        EventError or EventTooLarge; nothing has been written then."""
        timing = self.seam.timing
        began = timing.now()
        event_type = event_type_for(payload)
        self._suit()
        event: Event[bytes] | None = None
        try:
            if (allows := self.seam.rights) is not None:
                allows(self.service, event_type, context.tenant)
            data = self._validate(event_type, payload, context)
            if event_type.name not in self._allowed[context.tenant == PLATFORM]:
                self._keep_rules(event_type, context.tenant)
            if isinstance(idempotency_key, str):
                idempotency_key = plain(idempotency_key)
            key = event_type.key_of(payload)
            intended = _intended(event_type, key, context, intent) if idempotency_key is None else idempotency_key
            if context.cause is not None and context.cause.again:
                idempotency_key = intended
            event = self._envelope(event_type, payload, data, context, at, key, intended, event_id or new_id(), fact)
            if (spans := self.seam.tracing.spans) is not None:
                event = spans.create(self.service, event_type.topic, event, event_type.payload.cls)
            row = _unfinished if self.waits else self._row
            made = row(event_type.topic, event, idempotency_key)
        except Exception as error:
            if event is not None and (spans := self.seam.tracing.spans) is not None:
                spans.told([event.id], "refused", error)
            timing.note("outward", event_type.name, began, outcome_of(error))
            self._count_refused(error)
            raise
        timing.note("outward", event_type.name, began)
        return made

    async def add(
        self, outbox: OutboxTable, transaction: Transaction, rows: Sequence[OutboxRow], *, with_commit: bool = False
    ) -> Sequence[str]:
        """Finish rows and put them into the outbox; the event id that stands for each. Where facts are sealed, their numbers are
        taken first, in the same transaction: a seal covers them."""
        seals = self.seam.sealing
        if seals is None:
            return await outbox.append(transaction, await self.finish(transaction, rows), with_commit=with_commit)
        stepped = await self._step(transaction, rows)
        try:
            ready = [self._drafted(seals, row) for row in stepped]
        except Exception as error:
            self._count_refused(error)
            raise
        numbers = await outbox.number(transaction, stepped)
        sealed = [row.sealed(number) for row, number in zip(ready, numbers, strict=True) if number.fresh]
        await outbox.append(transaction, sealed, with_commit=with_commit, numbered=True)
        return [number.stands for number in numbers]

    async def finish(
        self, transaction: Transaction, rows: Sequence[OutboxRow], *, timed: bool = False
    ) -> Sequence[OutboxRow]:
        """The rows with their bytes, as they are stored but for a seal: the steps that wait for the flush are taken by those that
        still have them before them, together. Whatever a step raises ends the transaction. `timed`: as timers, which may get other
        ids when they fire."""
        if not self.waits:
            return rows
        return [self._with_bytes(row) for row in await self._step(transaction, rows, timed=timed)]

    async def finish_timer(self, transaction: Transaction, row: OutboxRow) -> OutboxRow:
        """The same for one that waits: sealed as a timer, which no reader takes for a fact."""
        (row,) = await self.finish(transaction, [row], timed=True)
        seals = self.seam.sealing
        if seals is None or not isinstance(row, Unfinished):
            return row
        sealed = seals.seal(row.topic, row.event, waiting=True)
        return self._row(row.topic, sealed, row.idempotency_key)

    async def _step(
        self, transaction: Transaction, rows: Sequence[OutboxRow], *, timed: bool = False
    ) -> Sequence[OutboxRow]:
        waiting = [row for row in rows if isinstance(row, Unfinished) and not row.stepped]
        if not waiting:
            return rows
        self._suit()
        named = timed and (self.seam.encrypt is not None or self.seam.sealing is not None)
        events: Sequence[Event[bytes]] = [_timed(row.event) if named else row.event for row in waiting]
        try:
            with self.seam.timing.measure("outward", FLUSH):
                for step in self.seam.at_flush:
                    events = await step(transaction, events)
                pairs = zip(waiting, events, strict=True)
                done = iter([msgspec.structs.replace(row, event=event, stepped=True) for row, event in pairs])
        except Exception as error:
            self._count_refused(error)
            raise
        return [next(done) if isinstance(row, Unfinished) and not row.stepped else row for row in rows]

    def _with_bytes(self, row: OutboxRow) -> OutboxRow:
        """A row that has its bytes; the fact stays with it where a seal is still to come."""
        if not isinstance(row, Unfinished) or row.body:
            return row
        try:
            made = self._row(row.topic, row.event, row.idempotency_key)
        except Exception as error:
            self._count_refused(error)
            raise
        return msgspec.structs.replace(row, body=made.body, headers=made.headers) if self.seam.signs else made

    def _drafted(self, seals: Seals, row: OutboxRow) -> DraftedRow:
        draft = seals.draft(row.topic, event_in(row))
        return drafted(draft, lambda event: self._row(row.topic, event, row.idempotency_key))

    def _count_refused(self, error: Exception) -> None:
        """By the rule that was broken, or by the class of an error of ours: words that nobody outside chooses."""
        reason = error.rule if isinstance(error, RuleBroken) else type(error).__name__
        known = reason if isinstance(error, PosthouseError) else OTHERS
        self.seam.counting.counter("publish_refused_total", self.service, known).value += 1

    @property
    def waits(self) -> bool:
        """Whether rows have to be finished, which takes a transaction."""
        return self.seam.signs or bool(self.seam.at_flush)

    def _validate(self, event_type: EventType[object], payload: object, context: EventContext) -> bytes:
        """The data of a fact that this service may say and that fits its type."""
        subject = event_type.subject
        if subject.service != self._producer.service or (subject.namespace or "") != self._namespace:
            raise ConfigurationError(
                f"{event_type.name} belongs to the service {_home(subject.namespace, subject.service)!r}: "
                f"{_home(self._namespace, self._producer.service)!r} may read it, not publish it"
            )
        data = event_type.payload.encode(payload)
        if len(data) > (limit := min(self._most, self._carried)) and self.seam.claim_check is None:
            raise EventTooLarge(len(data), limit, f"{event_type.name} (its data)")
        return data

    def _keep_rules(self, event_type: EventType[object], tenant: str) -> None:
        """A subject that broke no rule once breaks none later: they ask its declaration."""
        self.seam.rules.check(event_type, tenant, self._region, self._residency)
        self._allowed[tenant == PLATFORM].add(event_type.name)

    def _envelope(
        self,
        event_type: EventType[object],
        payload: object,
        data: bytes,
        context: EventContext,
        at: float | None,
        key: str | None,
        idempotency_key: str | None,
        event_id: str,
        fact: Mapping[str, str],
    ) -> Event[bytes]:
        if key is not None and SEQUENCE in fact:
            raise EventError(f"extension {SEQUENCE!r}: the store numbers this event, and readers refuse two numbers")
        return Event(
            id=event_id,
            type=event_type.name,
            source=self.source,
            data=data,
            time=timestamp(self.clock.now() if at is None else at),
            tenant=context.tenant,
            key=key,
            correlation=context.correlation or event_id,
            causation=context.causation,
            actor=context.actor or self._actor,
            producer=self._producer,
            schema=event_type.schema,
            content_type=event_type.payload.content_type,
            idempotency_key=idempotency_key,
            traceparent=context.traceparent,
            tracestate=context.tracestate,
            metadata=self._metadata_of(event_type, payload, context),
            extensions=fact,
        )

    def _metadata_of(self, event_type: EventType[object], payload: object, context: EventContext) -> Metadata:
        """Residency is the declared one, else that of the settings."""
        metadata = event_type.metadata_of(payload)
        if metadata.residency is None and self._residency is not None:
            known = self._metadata.get(event_type.name) if event_type.provenance is None else None
            metadata = known or msgspec.structs.replace(metadata, residency=self._residency)
            if event_type.provenance is None:
                self._metadata[event_type.name] = metadata
        return msgspec.structs.replace(metadata, offline_replay=True) if context.offline_replay else metadata

    def _row(self, topic: str, event: Event[bytes], idempotency_key: str | None) -> OutboxRow:
        """The last step: bytes that no broker and no store refuses."""
        encoded = self._codec.encode(event)
        if self._suits is not None and self._suits.announces:
            encoded = encoded._replace(headers={**encoded.headers, **announced(event)})
        if not self._bounded or len(encoded.body) + HEADER_ROOM > min(self._most, self._carried):
            self._check_size(event, encoded)
        return OutboxRow(
            topic=topic,
            tenant=event.tenant,
            event_id=event.id,
            body=encoded.body,
            headers=encoded.headers,
            key=event.key,
            numbered=event.key is not None,
            idempotency_key=idempotency_key,
        )

    def _check_size(self, event: Event[bytes], encoded: Encoded) -> None:
        """As it is, by the limit of the service, and by that of whoever carries it with all that the relay stamps, at its longest."""
        number = None if event.key is None else MAX_SEQUENCE
        try:
            size = check_size(encoded.headers, encoded.body, self._most)
            if size + HEADER_ROOM > self._carried:
                check_size(
                    *self._codec.stamp(encoded.headers, encoded.body, number, MAX_LINEAGE, MAX_ROW), self._carried
                )
        except EventTooLarge as error:
            raise EventTooLarge(error.size, error.limit, f"{event.type} ({error.where})") from None


def _home(namespace: str | None, service: str) -> str:
    return f"{namespace}.{service}" if namespace else service


def _intended(event_type: EventType[object], key: str | None, context: EventContext, intent: str | None) -> str | None:
    """The idempotency key of a fact to which its author gave none; None where nothing tells it from another. RuleBroken where
    its contract asks for one."""
    if event_type.internal:
        return None
    if intent is not None:
        return intent
    if context.cause is not None:
        return context.cause.intent(event_type, key)
    if event_type.terms.idempotency == "required":
        raise RuleBroken(
            "idempotency",
            f"{event_type.name} is declared with idempotency='required', and this one has no key: say what was meant, as in "
            f'idempotency_key=f"{event_type.scope}:…", so that asking twice says it once',
        )
    return None


def _timed(event: Event[bytes]) -> Event[bytes]:
    """A timer's fact says the id that it has now: with a key it gets another one when it fires. Boxes are bound to it, and its readers
    remember it: a timer that was put back says nothing new."""
    if event.key is None:
        return event
    return msgspec.structs.replace(event, extensions={**event.extensions, FIRST_ID: event.id})


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


def _unfinished(topic: str, event: Event[bytes], idempotency_key: str | None) -> OutboxRow:
    check_sayable(event)
    return Unfinished(
        topic=topic,
        tenant=event.tenant,
        event_id=event.id,
        body=b"",
        key=event.key,
        numbered=event.key is not None,
        idempotency_key=idempotency_key,
        event=event,
    )
