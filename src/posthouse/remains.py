"""Remains: what is still kept about a person, in each place that there is, and whether any of it can be read.

Encrypted values are looked for, and tried with what keys there are; in events also the plain ones of fields that are secret. In words,
such as the note of a job, only encrypted values are found: of a plain word nobody knows whose it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import TypeVar

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from posthouse.app import App
from posthouse.contracts.boxes import MARK, Box, replaced
from posthouse.errors import ArchiveError, AuditError, BrokerError, ConfigurationError, EventError
from posthouse.events import Event, decode_any
from posthouse.events.limits import UNREADABLE
from posthouse.history.archive.reading import Range
from posthouse.history.audit.batches import EVENTS, BatchError, Travelled, first_in, read_batch, read_travelled
from posthouse.history.audit.place import Place, open_place
from posthouse.history.log import refusal, stored
from posthouse.history.sweep import held_in
from posthouse.receiving import dead_letter_topic
from posthouse.store import ActionFilter, HeldFilter, has_process_tables
from posthouse.store.jobs import ENDED, Job
from posthouse.store.replays import Line, Staged
from posthouse.store.sagas import SagaFilter, SagaInput, SagaRow, SagaTurn, Said
from posthouse.trust.secrets.fields import secret_fields
from posthouse.trust.secrets.sealing import Key, Token, boxes_in, holds_boxes, opens, plain_in, token_of, tokens_in

PAGE = 500
MOST = 100_000

T = TypeVar("T")

Rows = AsyncIterator[tuple[Mapping[str, str], bytes]]
"""Events as they are kept: headers and body."""


class Found(msgspec.Struct):
    """What is kept about somebody in one place: `boxes` encrypted values, of which `opened` could be decrypted, and `plain` ones
    that never were encrypted. `unseen`: not looked at, or not at all that is there; `note` says why, or what was done there."""

    place: str
    boxes: int = 0
    opened: int = 0
    plain: int = 0
    note: str = ""
    unseen: bool = False


class Remains:
    """One look at everything."""

    def __init__(self, app: App, tenant: str, subject: str, keys: Mapping[str, Key]) -> None:
        self._app = app
        self._tenant = tenant
        self._subject = subject
        self._key = keys.get(subject)

    async def places(self) -> AsyncIterator[Found]:
        """Each place that there is, when it was looked through."""
        app = self._app
        yield await self._rows("outbox", self._outbox())
        yield await self._rows("held events", self._held())
        yield await self._rows("timers", self._timers())
        yield await self._rows("replays", self._replays())
        if has_process_tables(app.store):
            yield await self._rows("streams", self._streams())
            yield await self._sagas()
        yield await self._words("jobs", self._jobs())
        yield await self._words("operators' log", self._actions())
        if app.broker.sheet.history:
            yield await self._rows("log", self._log())
        else:
            yield Found("log", note=refusal(app.broker) or "")
        if app.opened.ports.archive_url is not None:
            yield await self._rows("archive", self._archived())
        if app.settings.archive_rows:
            yield await self._rows("archived rows", self._archived_rows(app.settings.archive_rows))
        if (audit := app.opened.building.audit) is not None:
            yield await self._rows("audit log", self._audited(audit.place))

    async def _rows(self, place: str, rows: Rows) -> Found:
        found = Found(place)
        try:
            async for headers, body in rows:
                self._look(found, headers, body)
        except (ArchiveError, AuditError, BatchError, BrokerError, ConfigurationError) as error:
            found.note, found.unseen = f"not looked at to its end: {error}", True
        return found

    async def _words(self, place: str, texts: AsyncIterator[str]) -> Found:
        found = Found(place, note="only encrypted values were looked for")
        async for text in texts:
            self._look_at_text(found, text)
        return found

    def _look(self, found: Found, headers: Mapping[str, str], body: bytes) -> None:
        try:
            event = decode_any(headers, body)
        except EventError:
            return  # nobody knows whom it is about, and it was never let in
        if event.tenant == self._tenant:
            self._look_into(found, event)

    def _look_into(self, found: Found, event: Event[bytes]) -> None:
        if holds_boxes(event):
            for path, box in boxes_in(event):
                if box.version and box.of == self._subject:
                    self._try(found, token_of(event, path, box))
        self._look_for_plain(found, event)

    def _look_for_plain(self, found: Found, event: Event[bytes]) -> None:
        known = self._app.opened.event_type(event.type)
        fields = None if known is None else secret_fields(known)
        if fields is not None:
            try:
                found.plain += sum(of == self._subject for _, of in plain_in(event, fields))
            except EventError:
                found.note, found.unseen = "something there does not say whom it is about", True

    def _try(self, found: Found, token: Token) -> None:
        found.boxes += 1
        found.opened += isinstance(self._key, AESGCM) and opens(self._key, self._tenant, token)

    def _look_at_text(self, found: Found, text: str) -> None:
        for token in tokens_in(text):
            if token.box.of == self._subject:
                self._try(found, token)
        for box in _boxes_of(text.encode()):
            if box.version and box.of == self._subject:
                found.boxes += 1
                found.opened += isinstance(self._key, AESGCM)  # beside its event it could be

    def _look_at_turn(self, found: Found, turn: SagaTurn) -> None:
        """What came and went before secrets were switched on lies open here, and most likely in the state as well."""
        told: tuple[SagaInput | Said, ...] = (turn.input, *turn.published)
        for one in told:
            event = Event(id=one.event_id, type=one.type, source="", time="", tenant=self._tenant, data=bytes(one.data))
            self._look_for_plain(found, event)

    async def _outbox(self) -> Rows:
        after, table = 0, self._app.store.outbox
        while rows := await table.kept(after, PAGE):
            for row in rows:
                yield row.headers, row.body
            after = max(row.id for row in rows)
        for stuck in await table.stuck():
            yield stuck.row.headers, stuck.row.body

    async def _held(self) -> Rows:
        async for held in self._app.held.find(HeldFilter(tenant=self._tenant)):
            yield held.headers, held.body

    async def _timers(self) -> Rows:
        for timer in await self._app.store.timers.pending(self._tenant, MOST):
            yield timer.row.headers, timer.row.body

    async def _streams(self) -> Rows:
        cursor, more = "", True
        while more:
            page = await self._app.store.streams.read_all(cursor, PAGE)
            for one in page.events:
                yield one.headers, one.body
            cursor, more = page.cursor, page.more

    async def _sagas(self) -> Found:
        """Their states and histories, and the events that wait in them."""
        found, table, after = Found("sagas"), self._app.store.sagas, 0
        while rows := await table.find(SagaFilter(tenant=self._tenant), after=after, limit=PAGE):
            for row in rows:
                self._look_at_text(found, row.state.decode())
                for turn in await table.history(row.saga, row.tenant, row.id, attempt=row.attempt):
                    self._look_at_text(found, msgspec.json.encode(turn).decode())
                    self._look_at_turn(found, turn)
                await self._waiting(found, row)
            after = max(row.number for row in rows)
        return found

    async def _waiting(self, found: Found, row: SagaRow) -> None:
        for one in row.waiting:
            try:
                async with self._app.store.begin(tenant=self._tenant) as tx:
                    held = await self._app.store.sagas.unpark(tx, row, one.held_as)
                    if held is not None:
                        self._look(found, held.headers, held.body)
                    raise _OnlyLooked
            except _OnlyLooked:
                pass

    async def _replays(self) -> Rows:
        """What was put aside by those that have not ended; the others have nothing left."""
        table = self._app.store.replays
        async for job in self._all_jobs():
            after: Line | None = None
            while job.state not in ENDED and (lines := await table.lines(job.id, after, PAGE)):
                for line in lines:
                    last: Staged | None = None
                    while page := await table.of_line(job.id, line, last, PAGE):
                        for row in page:
                            yield row.headers, row.body
                        last = page[-1]
                after = lines[-1]

    async def _all_jobs(self) -> AsyncIterator[Job]:
        before, names = "", [service.name for service in self._app.services]
        while jobs := await self._app.store.jobs.find(names, before=before, limit=PAGE):
            for job in jobs:
                yield job
            before = jobs[-1].id

    async def _jobs(self) -> AsyncIterator[str]:
        async for job in self._all_jobs():
            yield job.parameters.decode(errors="replace")
            yield job.note

    async def _actions(self) -> AsyncIterator[str]:
        before: tuple[float, str] | None = None
        while actions := await self._app.store.actions.find(ActionFilter(before=before), PAGE):
            for action in actions:
                if action.tenant in ("", self._tenant):
                    yield msgspec.json.encode(action).decode()
            before = actions[-1].at, actions[-1].id

    async def _log(self) -> Rows:
        if (why := refusal(self._app.broker)) is not None:
            raise BrokerError(why)
        topics = {topic for service in self._app.services for topic in service.declared.topics}
        topics |= {dead_letter_topic(topic) for topic in topics}
        async with aclosing(stored(self._app.broker, sorted(topics), None)) as deliveries:
            async for delivery in deliveries:
                yield delivery.frame.headers, delivery.frame.body

    async def _archived(self) -> Rows:
        archive = self._app.archive
        assert archive is not None
        async for events in archive.read(Range(tenants=[self._tenant])):
            for event in events:
                yield event.frame.headers, event.frame.body

    async def _archived_rows(self, folder: str) -> Rows:
        async for events in _aside(held_in(open_place(folder))):
            for event in events:
                yield event.headers, event.body

    async def _audited(self, place: str) -> Rows:
        async for batch in _aside(_batches(open_place(place))):
            for event in batch:
                yield dict(event.headers), event.body


def _batches(place: Place) -> Iterator[Sequence[Travelled]]:
    for path in place.list(EVENTS):
        if first_in(path) is not None:
            yield [read_travelled(event) for event in read_batch(place.get(path) or b"").events]


async def _aside(blocking: Iterator[T]) -> AsyncIterator[T]:
    """The same, and nobody else waits for it."""
    while (found := await asyncio.to_thread(next, blocking, None)) is not None:
        yield found


def _boxes_of(data: bytes) -> Sequence[Box]:
    """The encrypted values in JSON, wherever they are."""
    found: list[Box] = []

    def take(path: str, box: Box) -> bytes:
        found.append(box)
        return b"null"

    if MARK in data:
        with suppress(*UNREADABLE):
            replaced(data, "", take)
    return found


class _OnlyLooked(Exception):
    """Nothing is to be changed."""
