"""Rows: how values lie in the columns of a store's tables, the same in every database."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from posthouse.errors import DoneAlready
from posthouse.store import HeldEvent, InboxEntry, KeyPosition, OutboxRow, StuckRow, Timer, Worker, shard_of
from posthouse.store.actions import Action, Changes
from posthouse.store.archives import ArchivePlan
from posthouse.store.browsing import Bounded, HeldGroup
from posthouse.store.grants import Drawn, Grant, Scope
from posthouse.store.jobs import Job, JobState, Open
from posthouse.store.outbox import DAMAGED
from posthouse.store.replays import Line, Staged, Standing
from posthouse.store.retention import Lying, SeenRow
from posthouse.store.sagas import SagaFilter, SagaRef, SagaRow, indexed_text, with_progress
from posthouse.store.schedules import ScheduleRow
from posthouse.store.streams import StreamEvent

HELD = (
    "id", "consumer", "topic", "tenant", "key", "sequence", "lineage", "event_id", "digest", "time", "state", "type",
    "headers", "body", "attempts", "next_at", "first_at", "last_at", "reason", "error", "stack", "turn",
    "fingerprint", "correlation",
)  # fmt: skip
OUTBOX = "id, topic, tenant, key, sequence, lineage, event_id, headers, body"
TIMER = "name, due_at, topic, tenant, event_id, key, numbered, idempotency_key, headers, body"
SAGA = (
    "number, saga, tenant, id, attempt, status, turn, reason, correlation, parent_saga, parent_id, parent_attempt, "
    "started_at, changed_at, ended_at, purged_at, progress, state"
)
WORKER = 'id, services, name, host, pid, version, "commit", parts, consumers, releases, aside'
ACTION = "id, verb, by, why, service, consumer, topic, tenant, key, event_id, target, changed, count, outcome"
SCHEDULE = "service, name, expression, tz, next_at, last_at, done_at, ended_at, paused_at, seen_at"
STREAM_EVENT = "tenant, aggregate, stream, version, event_id, type, headers, body, position"

_decoder = msgspec.json.Decoder(dict[str, str])
_changes = msgspec.json.Decoder(dict[str, tuple[object, object]])


SEPARATOR = "~"
"""Between the parts of a position."""


def place_of(*parts: object) -> str:
    """In which store, lineage and run a position is good, as a short word."""
    return hashlib.blake2b("\n".join(map(str, parts)).encode(), digest_size=6).hexdigest()


def untyped(value: Any) -> Any:
    """What the schema guarantees, the type checker cannot know."""
    return value


def packed(headers: Mapping[str, str]) -> str | None:
    """Headers as they are stored."""
    return msgspec.json.encode(headers).decode() if headers else None


@functools.lru_cache(maxsize=1024)
def unpacked(headers: str | None) -> Mapping[str, str]:
    """Headers as they were given; most rows have the same."""
    return _decoder.decode(headers) if headers else {}


def sound(headers: Any, body: Any) -> tuple[Mapping[str, str], bytes]:
    """Both as they were given. A hand may have written what is neither headers nor bytes: such a row must not hide those beside it.
    It gets a type that no codec knows, which says what is wrong, and whoever meets it sets it aside."""
    try:
        known = unpacked(headers)
    except (msgspec.DecodeError, TypeError):
        known = {"content-type": f"{DAMAGED}no headers: {headers}"}
    if isinstance(body, bytes):
        return known, body
    return {"content-type": f"{DAMAGED}its body is {type(body).__name__}, no bytes"}, str(body).encode()


def outbox_row(
    id: Any,
    topic: Any,
    tenant: Any,
    key: Any,
    sequence: Any,
    lineage: Any,
    event_id: Any,
    headers: Any,
    body: Any,
    *_: Any,
) -> OutboxRow:
    """From the columns of OUTBOX, behind which there may be others."""
    headers, body = sound(headers, body)
    return OutboxRow(
        id=id,
        topic=topic,
        tenant=tenant,
        key=key,
        numbered=sequence is not None,
        sequence=sequence,
        lineage=lineage,
        event_id=event_id,
        headers=headers,
        body=body,
    )


def shard_of_row(row: OutboxRow, shards: int) -> int:
    """The shard of its key; rows without one are spread."""
    return shard_of(row.tenant, row.event_id if row.key is None else row.key, shards)


def stuck_row(columns: Sequence[Any]) -> StuckRow:
    """From the columns of OUTBOX, and behind them those of its tries."""
    attempts, error, quarantined, after, age, first_at, next_at = columns[9:]
    return StuckRow(
        row=outbox_row(*columns),
        attempts=attempts,
        error=error,
        quarantined=bool(quarantined),
        after=after,
        age=age,
        first_at=first_at,
        next_at=next_at,
    )


def held_columns(event: HeldEvent) -> tuple[object, ...]:
    """In the order of HELD."""
    entry = event.entry
    return (
        event.id, event.consumer, entry.topic, entry.tenant, entry.key, entry.sequence, entry.lineage, entry.event_id,
        entry.digest, entry.time, event.state, event.type, packed(event.headers), event.body, event.attempts,
        event.next_at, event.first_at, event.last_at, event.reason, event.error, event.stack, event.turn,
        event.fingerprint, event.correlation,
    )  # fmt: skip


def held_event(columns: Sequence[Any]) -> HeldEvent:
    """From the columns of HELD."""
    column = dict(zip(HELD, columns, strict=True))
    entry = {name: column.pop(name) for name in ENTRY}
    column["headers"], column["body"] = sound(column["headers"], column["body"])
    return HeldEvent(entry=InboxEntry(**entry), **column)


ENTRY = ("topic", "tenant", "event_id", "digest", "time", "key", "sequence", "lineage")
"""Those of HELD that are of the event as the inbox sees it."""


def held_group(columns: Sequence[Any]) -> HeldGroup:
    """From its fields, in their order, the count as two columns: how many, and whether there are more."""
    fingerprint, consumer, state, number, more, first_at, last_at, example, kind, error = columns
    return HeldGroup(
        fingerprint=fingerprint,
        consumer=consumer,
        state=state,
        count=Bounded(int(number), bool(more)),
        first_at=first_at,
        last_at=last_at,
        example=example,
        type=kind,
        error=error,
    )


def position_columns(consumer: str, entry: InboxEntry) -> tuple[object, ...]:
    """A row of `head` that says: this event was the last."""
    return (
        consumer, entry.topic, entry.tenant, entry.key, entry.sequence, entry.lineage, entry.event_id, entry.digest,
        entry.drawn,
    )  # fmt: skip


def key_position(columns: Sequence[Any]) -> KeyPosition:
    """From sequence, lineage, event_id, digest, newest, lineages, the lowest that waits, its number and its id, and who replays it."""
    column = dict(zip(KeyPosition.__struct_fields__, columns, strict=True))
    spans = [span.split(":") for span in column.pop("lineages").split()]
    return KeyPosition(lineages=tuple((int(lineage), int(last)) for lineage, last in spans), **column)


def timer_columns(timer: Timer) -> tuple[object, ...]:
    """Those of TIMER behind the due time."""
    row = timer.row
    return (
        row.topic, row.tenant, row.event_id, row.key, row.numbered, row.idempotency_key, packed(row.headers), row.body,
    )  # fmt: skip


def timer_of(columns: Sequence[Any]) -> Timer:
    """From the columns of TIMER."""
    name, due_at, topic, tenant, event_id, key, numbered, idempotency_key, headers, body = columns
    headers, body = sound(headers, body)
    row = OutboxRow(
        topic=topic,
        tenant=tenant,
        event_id=event_id,
        body=body,
        headers=headers,
        key=key,
        numbered=bool(numbered),
        idempotency_key=idempotency_key,
    )
    return Timer(name=name, due_at=due_at, row=row)


def worker_columns(worker: Worker) -> tuple[object, ...]:
    """In the order of WORKER."""
    return (
        worker.id, ", ".join(worker.services), worker.name, worker.host, worker.pid, worker.version, worker.commit,
        ", ".join(worker.parts), ", ".join(worker.consumers),
        ", ".join(f"{consumer} {release}" for consumer, release in worker.releases.items()),
        ", ".join(f"{consumer} {why}" for consumer, why in worker.aside.items()),
    )  # fmt: skip


def worker_of(columns: Sequence[Any]) -> Worker:
    """From the columns of WORKER, since when, the last sign of life, whether it stopped, and its figures."""
    id, services, name, host, pid, version, commit, parts, consumers, releases, aside, *life = columns
    since, age, stopped, figures = life
    return Worker(
        id=id,
        services=services.split(", "),
        name=name,
        host=host,
        pid=pid,
        version=version,
        commit=commit,
        parts=parts.split(", "),
        consumers=consumers.split(", ") if consumers else (),
        releases=dict(one.split(" ") for one in releases.split(", ")) if releases else {},
        aside=untyped(dict(one.split(" ") for one in aside.split(", "))) if aside else {},
        since=since,
        age=age,
        stopped=bool(stopped),
        figures=bytes(figures),
    )


def action_columns(action: Action) -> tuple[object, ...]:
    """In the order of ACTION."""
    return (
        action.id, action.verb, action.by, action.why, action.service, action.consumer, action.topic, action.tenant,
        action.key, action.event_id, action.target, changes_of(action), action.count, action.outcome,
    )  # fmt: skip


def changes_of(action: Action) -> str:
    """As they are stored."""
    return msgspec.json.encode(action.changed).decode()


def action_of(columns: Sequence[Any]) -> Action:
    """From the time and the columns of ACTION."""
    column = dict(zip(("at", *ACTION.split(", ")), columns, strict=True))
    changed: Changes = _changes.decode(column.pop("changed"))
    return Action(**column, changed=changed)


JOB = "id, service, act, frozen, state, position, done, refused, applied, failed, open, canary_passed, note, holder, token"
"""Of a job: what is stored of it before the times."""

FROZEN = ("parameters", "by", "why", "tenants", "last", "total", "more", "rate", "canary", "stop_after", "seen_at")
"""Of a job: what never changes after the press."""


class FrozenJob(msgspec.Struct, frozen=True):
    """As it is stored, in the order of FROZEN."""

    parameters: bytes
    by: str
    why: str
    tenants: tuple[str, ...] | None
    last: int
    total: int
    more: bool
    rate: float
    canary: int
    stop_after: int
    seen_at: float


def job_columns(job: Job) -> tuple[object, ...]:
    """In the order of JOB, as one is added."""
    frozen = FrozenJob(*(getattr(job, name) for name in FROZEN))
    return (
        job.id, job.service, job.act, msgspec.json.encode(frozen), job.state, *progress_columns(job), "", 0,
    )  # fmt: skip


def progress_columns(job: Job) -> tuple[object, ...]:
    """How far it is: from `position` to `note`."""
    return (
        job.position, job.done, job.refused, job.applied, job.failed, msgspec.json.encode(job.open), job.canary_passed,
        job.note,
    )  # fmt: skip


def job_of(columns: Sequence[Any]) -> Job:
    """From the columns of JOB, for how long it is leased, and the times when it was made, changed and ended."""
    column = dict(zip((*JOB.split(", "), "leased", "created_at", "changed_at", "ended_at"), columns, strict=True))
    frozen = msgspec.json.decode(bytes(column.pop("frozen")), type=FrozenJob)
    column["open"] = msgspec.json.decode(bytes(column["open"]), type=tuple[Open, ...])
    column["canary_passed"] = bool(column["canary_passed"])
    return Job(**column, **{name: getattr(frozen, name) for name in FROZEN})


def state_of(column: object) -> JobState:
    """Of a job."""
    state: JobState = msgspec.convert(column, JobState)
    return state


GRANT = "id, service, verb, scope, why, asked_by, asked_as, minutes, most, rate"
"""Of a grant: what is stored of it as it is asked for."""


def grant_columns(grant: Grant) -> tuple[object, ...]:
    """In the order of GRANT."""
    return (
        grant.id, grant.service, grant.verb, msgspec.json.encode(grant.scope), grant.why, grant.asked_by, grant.asked_as,
        grant.minutes, grant.most, grant.rate,
    )  # fmt: skip


def grant_of(columns: Sequence[Any]) -> Grant:
    """From the columns of GRANT, and what became of it."""
    after = ("asked_at", "approved_by", "approved_as", "approved_at", "revoked_by", "revoked_at", "used", "left")
    column = dict(zip((*GRANT.split(", "), *after), columns, strict=True))
    return Grant(**{**column, "scope": msgspec.json.decode(bytes(column["scope"]), type=Scope)})


def drawn_of(columns: Sequence[Any]) -> Drawn:
    """From how many events were drawn, and after how many seconds."""
    return Drawn(int(columns[0]), max(0.0, float(columns[1])))


def done_already(action: Action) -> DoneAlready:
    """Why one is not added whose id is there."""
    return DoneAlready(
        f"{action.verb} of {action.target or 'this'} was done already by this very act: nothing was done again"
    )


def stream_event(columns: Sequence[Any]) -> StreamEvent:
    """From the columns of STREAM_EVENT."""
    tenant, aggregate, stream, version, event_id, kind, headers, body, position = columns
    return StreamEvent(tenant, aggregate, stream, version, event_id, kind, unpacked(headers), bytes(body), position)


def schedule_row(columns: Sequence[Any]) -> ScheduleRow:
    """From the columns of SCHEDULE, and the store's time."""
    service, name, expression, tz, next_at, last_at, done_at, ended_at, paused_at, seen_at, now = columns
    return ScheduleRow(
        service=service,
        name=name,
        expression=expression,
        tz=tz,
        next_at=next_at,
        last_at=last_at,
        done_at=done_at,
        ended_at=ended_at,
        paused_at=paused_at,
        seen_at=seen_at,
        now=float(now),
    )


def saga_row(columns: Sequence[Any]) -> SagaRow:
    """From the columns of SAGA; the state is text in some databases."""
    column = dict(zip(SAGA.split(", "), columns, strict=True))
    progress, state = column.pop("progress"), column.pop("state")
    saga, id, attempt = (column.pop(f"parent_{name}") for name in ("saga", "id", "attempt"))
    parent = None if saga is None else SagaRef(saga, id, attempt)
    row = SagaRow(**column, parent=parent, state=state.encode() if isinstance(state, str) else state)
    return with_progress(row, progress)


def parent_columns(parent: SagaRef | None) -> tuple[str | None, str | None, int | None]:
    """What the columns parent_saga, parent_id and parent_attempt hold."""
    return (None, None, None) if parent is None else (parent.saga, parent.id, parent.attempt)


def find_sagas(
    wanted: SagaFilter, *, after: int, limit: int, prefix: str, newest: bool = False
) -> tuple[str, Sequence[object]]:
    """The statement that finds sagas in the order of starting, or the `newest` first, with `{}` where its parameters belong.
    What is asked by the index begins there."""
    tables = [f"{prefix}saga s"]
    parent = parent_columns(wanted.parent)
    asked: list[tuple[str, object]] = [
        ("s.saga", wanted.saga), ("s.status", wanted.status), ("s.tenant", wanted.tenant), ("s.id", wanted.id),
        ("s.attempt", wanted.attempt), ("s.parent_saga", parent[0]), ("s.parent_id", parent[1]), ("s.parent_attempt", parent[2] or None), ("s.correlation", wanted.correlation),
    ]  # fmt: skip
    for at, (field, value) in enumerate(wanted.where.items()):
        tables.append(f"JOIN {prefix}saga_index i{at} ON i{at}.tenant = s.tenant AND i{at}.number = s.number")
        asked += [(f"i{at}.field", field), (f"i{at}.value", indexed_text(value)), (f"i{at}.tenant", wanted.tenant)]
    given = [(column, value) for column, value in asked if value is not None]
    down, beyond = ("DESC", "<") if newest else ("ASC", ">")
    conditions = [f"s.number {beyond} {{}}", *(f"{column} = {{}}" for column, _ in given)]
    seen = [] if wanted.tenants is None else sorted(set(wanted.tenants))
    if wanted.tenants is not None:
        conditions.append(f"s.tenant IN ({', '.join(['{}'] * len(seen))})" if seen else "false")
    if not wanted.tombstones:
        conditions.append("s.purged_at IS NULL")
    columns = ", ".join(f"s.{name}" for name in SAGA.split(", "))
    sql = (
        f"SELECT {columns} FROM {' '.join(tables)} WHERE {' AND '.join(conditions)} ORDER BY s.number {down} LIMIT {{}}"
    )
    return sql, (after, *(value for _, value in given), *seen, limit)


def archive_plan_of(columns: Sequence[Any]) -> ArchivePlan:
    """A plan of an archive."""
    id, owner, objects, events, leased, age = columns
    names = msgspec.json.decode(objects, type=tuple[str, ...])
    return ArchivePlan(id=id, owner=owner, objects=names, events=events, leased=float(leased), age=float(age))


SEEN = ("consumer", "tenant", "event_id", "topic", "digest", "time", "received_at", "result")
"""The columns of a row of the inbox."""


def lying_of(columns: Sequence[Any]) -> Lying:
    place, state, rows, oldest, due = columns
    return Lying(place=place, state=state, rows=rows, oldest=None if oldest is None else max(0.0, oldest), due=due)


def seen_of(columns: Sequence[Any]) -> SeenRow:
    consumer, tenant, event_id, topic, digest, time, received_at, result = columns
    return SeenRow(
        consumer=consumer,
        tenant=tenant,
        event_id=event_id,
        topic=topic,
        digest=bytes(digest),
        time=time,
        received_at=received_at,
        result=result,
    )


STAGED = "job, topic, tenant, event_id, key, sequence, lineage, stored_at, headers, body, again, attempts, error"
"""Of an event of a replay."""


def staged_columns(staged: Staged) -> tuple[object, ...]:
    """In the order of STAGED."""
    return (
        staged.job, staged.topic, staged.tenant, staged.event_id, staged.key, staged.sequence, staged.lineage,
        staged.stored_at, packed(staged.headers), staged.body, staged.again, staged.attempts, staged.error,
    )  # fmt: skip


def staged_event(columns: Sequence[Any]) -> Staged:
    """From the columns of STAGED."""
    column = dict(zip(STAGED.split(", "), columns, strict=True))
    column["headers"], column["body"] = sound(column["headers"], column["body"])
    return Staged(**{**column, "again": bool(column["again"])})


def standing_of(columns: Sequence[Any]) -> Standing:
    """From how many were put aside, left out, are left and stand still, and why one of these does."""
    staged, left_out, left, still, error = columns
    return Standing(staged=staged, left_out=left_out, left=left, still=still, error=error or "")


def line_of(columns: Sequence[Any]) -> Line:
    """From topic, tenant, key, and whether it is ordered."""
    topic, tenant, key, ordered = columns
    return Line(topic, tenant, key, bool(ordered))
