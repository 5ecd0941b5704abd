"""Metadata: the store's tables as SQLAlchemy sees them, for queries and for comparing; the migrations make them.

`metadata` is that of the schema `posthouse`, `metadata_of("events")` that of another. Alembic compares a database with it
and finds nothing to do. `create_all` is refused: functions, policies and the partitions of the outbox are not in here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, TypeVar

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    event,
    text,
)
from sqlalchemy.dialects.postgresql import OID
from sqlalchemy.dialects.postgresql.base import ischema_names
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeEngine, UserDefinedType

from posthouse.errors import ConfigurationError

T = TypeVar("T")

PARTITIONS = ("outbox_0", "outbox_1", "outbox_2", "outbox_3", "outbox_kept")
"""The partitions of the outbox; PostgreSQL names their indexes."""


class Xid8(UserDefinedType[str]):
    """A transaction's number."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        return "xid8"


class Xid(UserDefinedType[str]):
    """The lower half of a transaction's number, as rows bear it."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        return "xid"


class PgSnapshot(UserDefinedType[str]):
    """Which transactions were visible at a moment."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        return "pg_snapshot"


ischema_names.update({"xid": Xid, "xid8": Xid8, "pg_snapshot": PgSnapshot})  # so that reading a database knows them too


def metadata_of(schema: str) -> MetaData:
    """The tables of a store in this schema."""
    metadata = MetaData(schema=schema)
    event.listen(metadata, "before_create", _refuse)
    _whole_store(metadata)
    _tally(metadata)
    _outbox(metadata)
    _receiving(metadata)
    _sagas(metadata)
    _streams(metadata)
    _projections(metadata)
    return metadata


def _refuse(*_: object, **__: object) -> NoReturn:
    raise ConfigurationError(
        "create_all cannot make the store's tables: run `posthouse db upgrade`, or let a revision of Alembic run what "
        "`posthouse db sql` prints"
    )


def _whole_store(metadata: MetaData) -> None:
    Table(
        "migration",
        metadata,
        _text("name", primary_key=True),
        Column("applied_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    )
    Table(
        "meta",
        metadata,
        Column("one", Boolean, primary_key=True, server_default=text("true")),
        Column("identity", Text, nullable=False, server_default=text("(gen_random_uuid())::text")),
        *_columns(Integer, "shards"),
        Column("lineage", Integer, nullable=False, server_default=text("1")),
        *_columns(Text, "system?"),
        Column("database", OID),
        *_columns(Text, "timeline?"),
        Column("slot", SmallInteger, nullable=False, server_default=text("0")),
        Column("slot_since", DateTime(timezone=True), nullable=False, server_default=text("now()")),
        Column("slot_left", ARRAY(Double()), nullable=False, server_default=text("'{0,0,0,0}'::double precision[]")),
        Column("purged", Xid8, nullable=False, server_default=text("'0'::xid8")),
        Column("streams", Integer, nullable=False, server_default=text("1")),
        Column("runs", Integer, nullable=False, server_default=text("0")),
        Column("run_since", DateTime(timezone=True)),
        *_columns(Text, "guest?"),
        *_columns(BigInteger, "guest_since?"),
        CheckConstraint("one", name="meta_one_check"),
    )
    Table(
        "incarnation",
        metadata,
        Column("one", Boolean, primary_key=True, server_default=text("true")),
        Column("token", Text, nullable=False, server_default=text("(gen_random_uuid())::text")),
        Column("started", DateTime(timezone=True), nullable=False, server_default=text("pg_postmaster_start_time()")),
        Column("maker", Xid, nullable=False, server_default=text("(pg_current_xact_id())::xid")),
        *_columns(Text, "home"),
        CheckConstraint("one", name="incarnation_one_check"),
        prefixes=["UNLOGGED"],
    )
    Table(
        "version_usage",
        metadata,
        *_columns(Text, "role", "party", "subject"),
        *_columns(Double, "first_at", "last_at"),
        PrimaryKeyConstraint("role", "party", "subject", name="version_usage_pkey"),
    )
    Table(
        "worker",
        metadata,
        _text("id", primary_key=True),
        *_columns(Text, "services", "name", "host"),
        *_columns(Integer, "pid"),
        *_columns(Text, "version", "commit", "parts", "consumers", "releases", "aside"),
        *_columns(Double, "started_at", "seen_at"),
        *_columns(Boolean, "stopped"),
        *_columns(LargeBinary, "figures"),
    )
    Table(
        "action",
        metadata,
        Column("id", Text(collation="C"), nullable=False),
        *_columns(Double, "at"),
        *_columns(Text, "by", "why", "verb", "service", "consumer", "topic", "tenant", "key", "event_id", "target"),
        *_columns(Text, "changed"),
        *_columns(BigInteger, "count"),
        *_columns(Text, "outcome"),
        PrimaryKeyConstraint("tenant", "id", name="action_pkey"),
        Index("action_at", "at", "id"),
        Index("action_event_id", "event_id", "at", postgresql_where=text("event_id <> ''")),
    )
    Table(
        "job",
        metadata,
        _text("id", primary_key=True),
        *_columns(Text, "service", "act"),
        *_columns(LargeBinary, "frozen"),
        *_columns(Text, "state"),
        *_columns(BigInteger, "position", "done", "refused", "applied", "failed"),
        *_columns(LargeBinary, "open"),
        *_columns(Boolean, "canary_passed"),
        *_columns(Text, "note", "holder"),
        *_columns(BigInteger, "token"),
        *_columns(Double, "leased_until", "created_at", "changed_at"),
        Column("ended_at", Double),
        Index("job_running", "id", postgresql_where=text("(state = 'running'::text)")),
        Index("job_ended", "ended_at", postgresql_where=text("(ended_at IS NOT NULL)")),
    )
    Table(
        "replay_grant",
        metadata,
        _text("id", primary_key=True),
        *_columns(Text, "service", "verb"),
        *_columns(LargeBinary, "scope"),
        *_columns(Text, "why", "asked_by", "asked_as"),
        *_columns(Integer, "minutes"),
        *_columns(BigInteger, "most"),
        *_columns(Double, "rate", "asked_at"),
        Column("approved_by", Text),
        Column("approved_as", Text),
        Column("approved_at", Double),
        Column("ends_at", Double),
        Column("revoked_by", Text),
        Column("revoked_at", Double),
        *_columns(BigInteger, "used"),
        *_columns(Double, "next_at"),
    )
    _archives(metadata)


def _archives(metadata: MetaData) -> None:
    Table(
        "archive",
        metadata,
        Column("number", Integer, Identity(always=True), primary_key=True),
        Column("name", Text, nullable=False, unique=True),
        *_columns(Text, "place"),
        *_columns(BigInteger, "generation"),
    )
    Table(
        "archive_plan",
        metadata,
        Column("number", BigInteger, Identity(always=True), primary_key=True),
        Column("id", Text, nullable=False, unique=True),
        *_columns(Integer, "archive"),
        *_columns(Text, "state", "owner"),
        *_columns(LargeBinary, "objects"),
        *_columns(BigInteger, "events"),
        *_columns(Double, "leased_until", "created_at"),
        Column("done_at", Double),
        Index("archive_plan_open", "archive", "number", postgresql_where=text("(state = 'planned'::text)")),
        Index("archive_plan_done", "archive", "done_at", postgresql_where=text("(done_at IS NOT NULL)")),
    )
    Table(
        "archive_event",
        metadata,
        *_columns(Integer, "archive"),
        *_columns(LargeBinary, "digest"),
        *_columns(BigInteger, "plan"),
        PrimaryKeyConstraint("archive", "digest", name="archive_event_pkey"),
        Index("archive_event_plan", "plan"),
    )


def _tally(metadata: MetaData) -> None:
    figures = ("kind", "name", "topic", "state")
    Table("tally_change", metadata, *_columns(Text, *figures), *_columns(BigInteger, "number"))
    Table(
        "tally",
        metadata,
        *_columns(Text, *figures),
        *_columns(BigInteger, "number"),
        PrimaryKeyConstraint(*figures, name="tally_pkey"),
    )


def _outbox(metadata: MetaData) -> None:
    Table(
        "outbox",
        metadata,
        Column("id", BigInteger, Identity(always=True, cache=1), nullable=False),
        *_outbox_columns(),
        Index("outbox_by_transaction", "shard", "xid"),
        Index("outbox_by_id", "id"),
        postgresql_partition_by="LIST (slot)",
    )
    for partition in PARTITIONS:
        Table(
            partition,
            metadata,
            Column("id", BigInteger, nullable=False),
            *_outbox_columns(),
            Index(f"{partition}_shard_xid_idx", "shard", "xid"),
            Index(f"{partition}_id_idx", "id"),
            info={"leaf_of": "outbox"},
        )
    Table(
        "key",
        metadata,
        *_columns(Text, "topic", "tenant", "key"),
        *_columns(BigInteger, "sequence"),
        PrimaryKeyConstraint("tenant", "topic", "key", name="key_pkey"),
    )
    Table(
        "idempotency",
        metadata,
        *_columns(Text, "tenant", "topic", "idempotency_key", "event_id"),
        *_columns(Double, "until"),
        PrimaryKeyConstraint("tenant", "topic", "idempotency_key", name="idempotency_pkey"),
        Index("idempotency_until", "until"),
    )
    Table(
        "shard",
        metadata,
        Column("number", SmallInteger, primary_key=True, autoincrement=False),
        *_columns(Text, "owner?"),
        Column("epoch", BigInteger, nullable=False, server_default=text("0")),
        Column("until", Double, nullable=False, server_default=text("0")),
        Column("s1", PgSnapshot, nullable=False, server_default=text("'1:1:'::pg_snapshot")),
        *_columns(BigInteger, "backlog?"),
        Column("floor", BigInteger, nullable=False, server_default=text("0")),
    )
    Table(
        "backlog",
        metadata,
        Column("number", BigInteger, Identity(always=True), primary_key=True),
        *_columns(PgSnapshot, "s2"),
        *_columns(BigInteger, "last_id", "hi_id", "floor"),
    )
    Table("member", metadata, _text("owner", primary_key=True), *_columns(Double, "until"), *_columns(Text, "reads?"))
    Table(
        "stuck",
        metadata,
        *_columns(BigInteger, "id"),
        *_columns(SmallInteger, "shard"),
        *_columns(Text, "topic", "tenant", "key?"),
        *_columns(Integer, "attempts"),
        *_columns(Double, "first_at", "next_at"),
        *_columns(Text, "error"),
        *_columns(Boolean, "quarantined"),
        PrimaryKeyConstraint("tenant", "id", name="stuck_pkey"),
        Index("stuck_by_id", "id"),
        Index("stuck_by_key", "topic", "tenant", "key", "id"),
        Index("stuck_waiting", "topic", "first_at", postgresql_where=text("NOT quarantined")),
    )
    Table(
        "sent",
        metadata,
        *_columns(Text, "topic"),
        *_columns(SmallInteger, "shard"),
        *_columns(BigInteger, "count"),
        PrimaryKeyConstraint("topic", "shard", name="sent_pkey"),
    )
    Table(
        "timer",
        metadata,
        Column("id", BigInteger, Identity(always=True), nullable=False),
        *_columns(Text, "name"),
        *_columns(Double, "due_at"),
        *_columns(SmallInteger, "shard"),
        *_columns(Text, "topic", "tenant", "event_id", "key?"),
        *_columns(Boolean, "numbered"),
        *_columns(Text, "idempotency_key?", "headers?"),
        *_columns(LargeBinary, "body"),
        PrimaryKeyConstraint("tenant", "name", name="timer_pkey"),
        Index("timer_by_id", "id"),
        Index("timer_due_at", "due_at", "id"),
        Index("timer_of_tenant", "tenant", "due_at", "id"),
    )
    Table(
        "schedule",
        metadata,
        *_columns(Text, "service", "name", "expression", "tz"),
        *_columns(Double, "next_at", "last_at?", "done_at?", "ended_at?", "paused_at?", "seen_at"),
        PrimaryKeyConstraint("service", "name", name="schedule_pkey"),
    )


def _receiving(metadata: MetaData) -> None:
    Table(
        "consumer",
        metadata,
        *_columns(Text, "consumer", "topic"),
        *_columns(Boolean, "adopt"),
        PrimaryKeyConstraint("consumer", "topic", name="consumer_pkey"),
    )
    Table(
        "head",
        metadata,
        *_columns(Text, "consumer", "topic", "tenant", "key"),
        *_columns(BigInteger, "sequence"),
        *_columns(Integer, "lineage"),
        *_columns(Text, "event_id"),
        *_columns(LargeBinary, "digest"),
        Column("newest", BigInteger, nullable=False, server_default=text("0")),
        Column("lineages", Text, nullable=False, server_default=text("''")),
        Column("held", Integer, nullable=False, server_default=text("0")),
        Column("replay", Text, nullable=False, server_default=text("''")),
        PrimaryKeyConstraint("tenant", "consumer", "topic", "key", name="head_pkey"),
        Index("head_replayed", "replay", postgresql_where=text("(replay <> ''::text)")),
    )
    Table("replay", metadata, _text("job", primary_key=True), *_columns(BigInteger, "staged", "left_out"))
    Table(
        "replay_event",
        metadata,
        *_columns(Text, "job", "topic", "tenant", "key"),
        *_columns(BigInteger, "sequence"),
        *_columns(Integer, "lineage"),
        *_columns(Text, "event_id"),
        *_columns(Double, "stored_at"),
        *_columns(Text, "headers?"),
        *_columns(LargeBinary, "body"),
        *_columns(Boolean, "again"),
        *_columns(Integer, "attempts"),
        *_columns(Text, "error"),
        PrimaryKeyConstraint("tenant", "job", "topic", "event_id", name="replay_event_pkey"),
        Index("replay_event_line", "job", "topic", "tenant", "key", "sequence", "lineage", "event_id"),
    )
    Table(
        "inbox",
        metadata,
        *_columns(Text, "consumer", "tenant", "event_id", "topic"),
        *_columns(LargeBinary, "digest"),
        *_columns(Double, "time", "received_at"),
        *_columns(Text, "result"),
        PrimaryKeyConstraint("tenant", "consumer", "event_id", name="inbox_pkey"),
        Index("inbox_received_at", "received_at"),
    )
    Table("forgotten", metadata, _text("consumer", primary_key=True), *_columns(Double, "until"))
    Table("applied_count", metadata, *_columns(Text, "consumer", "topic"), *_columns(Integer, "applied", "skipped"))
    Table(
        "applied",
        metadata,
        *_columns(Text, "consumer", "topic"),
        *_columns(BigInteger, "applied", "skipped"),
        PrimaryKeyConstraint("consumer", "topic", name="applied_pkey"),
    )
    Table(
        "loss",
        metadata,
        *_columns(Text, "consumer", "topic"),
        *_columns(BigInteger, "lost"),
        PrimaryKeyConstraint("consumer", "topic", name="loss_pkey"),
    )
    _held(metadata)


def _held(metadata: MetaData) -> None:
    ordered = ("tenant", "consumer", "topic", "key", "sequence")
    numbered = text("sequence IS NOT NULL")
    waiting = text("sequence IS NOT NULL AND state IN ('retrying', 'gap', 'blocked', 'dead')")
    Table(
        "held",
        metadata,
        Column("id", BigInteger, Identity(always=True), nullable=False),
        *_columns(Text, "consumer", "topic", "tenant", "key?"),
        *_columns(BigInteger, "sequence?"),
        *_columns(Integer, "lineage"),
        *_columns(Text, "event_id"),
        *_columns(LargeBinary, "digest"),
        *_columns(Double, "time"),
        *_columns(Text, "state", "type", "headers?"),
        *_columns(LargeBinary, "body"),
        *_columns(Integer, "attempts"),
        *_columns(Double, "next_at", "first_at", "last_at"),
        *_columns(Text, "reason", "error", "stack"),
        Column("turn", BigInteger, nullable=False, server_default=text("0")),
        Column("fingerprint", Text, nullable=False, server_default=text("''")),
        *_columns(Text, "correlation?"),
        PrimaryKeyConstraint("tenant", "id", name="held_pkey"),
        Index("held_by_id", "id"),
        Index("held_by_kind", "consumer", "topic", "state", "id"),
        Index("held_event_id", "event_id"),
        Index("held_key", "key", "id", postgresql_where=text("key IS NOT NULL")),
        Index("held_correlation", "correlation", "id", postgresql_where=text("correlation IS NOT NULL")),
        Index("held_failure", "fingerprint", "consumer", "state", "id"),
        Index("held_of_tenant", "tenant", "consumer", "state", "fingerprint", "id"),
        Index("held_next_at", "consumer", "state", "next_at"),
        Index("held_skipped", "last_at", "id", postgresql_where=text("(state = 'skipped'::text)")),
        Index("held_waiting", *ordered, unique=True, postgresql_where=waiting),
        Index("held_ordered", *ordered, "event_id", unique=True, postgresql_where=numbered),
        Index(
            "held_unordered", "tenant", "consumer", "event_id", unique=True, postgresql_where=text("sequence IS NULL")
        ),
    )


def _sagas(metadata: MetaData) -> None:
    Table(
        "saga",
        metadata,
        Column("number", BigInteger, Identity(always=True), nullable=False),
        *_columns(Text, "tenant", "saga", "id"),
        *_columns(Integer, "attempt"),
        *_columns(Text, "status"),
        *_columns(Integer, "turn"),
        *_columns(Text, "reason", "correlation?", "parent_saga?", "parent_id?"),
        *_columns(Integer, "parent_attempt?"),
        *_columns(Double, "started_at", "changed_at", "ended_at?", "purged_at?"),
        Column("shape", Text),
        *_columns(Text, "progress", "state"),
        PrimaryKeyConstraint("tenant", "saga", "id", "attempt", name="saga_pkey"),
        Index("saga_by_number", "number", postgresql_where=text("purged_at IS NULL")),
        Index("saga_status", "saga", "status", "number", postgresql_where=text("purged_at IS NULL")),
        Index("saga_of_tenant", "tenant", "saga", "status", "number", postgresql_where=text("purged_at IS NULL")),
        Index("saga_id", "id", "number"),
        Index("saga_correlation", "correlation", "number", postgresql_where=text("correlation IS NOT NULL")),
        Index("saga_ended_at", "ended_at", postgresql_where=text("ended_at IS NOT NULL AND purged_at IS NULL")),
        Index("saga_purged", "ended_at", postgresql_where=text("purged_at IS NOT NULL")),
        Index("saga_parent", "parent_saga", "parent_id", postgresql_where=text("parent_saga IS NOT NULL")),
    )
    Table(
        "saga_index",
        metadata,
        *_columns(Text, "tenant"),
        *_columns(BigInteger, "number"),
        *_columns(Text, "field", "value"),
        PrimaryKeyConstraint("tenant", "number", "field", name="saga_index_pkey"),
        Index("saga_index_value", "field", "value", "tenant", "number"),
    )
    Table(
        "saga_waiting",
        metadata,
        *_columns(Text, "tenant"),
        *_columns(BigInteger, "number"),
        *_columns(Text, "event_id"),
        *_columns(LargeBinary, "event"),
        PrimaryKeyConstraint("tenant", "number", "event_id", name="saga_waiting_pkey"),
    )
    Table(
        "saga_turn",
        metadata,
        *_columns(Text, "tenant"),
        *_columns(BigInteger, "number"),
        *_columns(Integer, "turn"),
        *_columns(Text, "record"),
        PrimaryKeyConstraint("tenant", "number", "turn", name="saga_turn_pkey"),
    )


def _streams(metadata: MetaData) -> None:
    of_stream = ("tenant", "aggregate", "stream")
    Table(
        "stream",
        metadata,
        *_columns(Text, *of_stream),
        *_columns(BigInteger, "version"),
        Column("base", BigInteger, nullable=False, server_default=text("0")),
        Column("state", Text, nullable=False, server_default=text("'open'")),
        PrimaryKeyConstraint(*of_stream, name="stream_pkey"),
    )
    Table(
        "stream_event",
        metadata,
        Column("position", BigInteger, Identity(always=True, cache=1), nullable=False),
        Column("xid", Xid8, nullable=False, server_default=text("pg_current_xact_id()")),
        *_columns(Text, *of_stream),
        *_columns(BigInteger, "version"),
        *_columns(Text, "event_id", "type", "headers?"),
        *_columns(LargeBinary, "body"),
        PrimaryKeyConstraint(*of_stream, "version", name="stream_event_pkey"),
        Index("stream_event_by_position", "position"),
        Index("stream_event_by_transaction", "xid"),
    )
    Table(
        "stream_archive",
        metadata,
        *_columns(BigInteger, "position"),
        Column("xid", Xid8, nullable=False),
        *_columns(Text, *of_stream),
        *_columns(BigInteger, "version"),
        *_columns(Text, "event_id", "type", "headers?"),
        *_columns(LargeBinary, "body"),
        PrimaryKeyConstraint(*of_stream, "version", name="stream_archive_pkey"),
        Index("stream_archive_by_position", "position"),
        Index("stream_archive_by_transaction", "xid"),
    )
    Table(
        "snapshot",
        metadata,
        *_columns(Text, *of_stream),
        *_columns(BigInteger, "version"),
        *_columns(Text, "shape"),
        *_columns(LargeBinary, "state"),
        PrimaryKeyConstraint(*of_stream, name="snapshot_pkey"),
    )


def _projections(metadata: MetaData) -> None:
    Table(
        "generation",
        metadata,
        *_columns(Text, "projection"),
        *_columns(Integer, "number", "version"),
        *_columns(Text, "state", "source", "phase"),
        Column("tables", ARRAY(Text), nullable=False),
        *_columns(Text, "cursor"),
        *_columns(BigInteger, "read"),
        *_columns(Text, "owner"),
        *_columns(Double, "until", "made_at", "live_at", "retired_at", "drop_at?", "event_at", "applied_at"),
        Column("history", Text, nullable=False, server_default=text("'unknown'")),
        Column("effects", ARRAY(Text), nullable=False, server_default=text("'{}'")),
        PrimaryKeyConstraint("projection", "number", name="generation_pkey"),
        Index("generation_state", "projection", "state", unique=True, postgresql_where=text("state <> 'retired'")),
    )
    Table("generation_number", metadata, _text("projection", primary_key=True), *_columns(Integer, "last"))
    Table(
        "effect",
        metadata,
        Column("position", BigInteger, Identity(always=True), nullable=False),
        *_columns(Text, "tenant", "projection", "event_id"),
        *_columns(Integer, "number"),
        *_columns(Double, "noted_at"),
        *_columns(Text, "facts?"),
        PrimaryKeyConstraint("tenant", "projection", "event_id", "number", name="effect_pkey"),
        Index("effect_noted_at", "noted_at"),
        Index("effect_left", "projection", "number", postgresql_where=text("number > 0")),
    )
    Table(
        "overlap",
        metadata,
        *_columns(Text, "tenant", "projection"),
        *_columns(Integer, "number"),
        *_columns(Text, "aggregate", "stream"),
        *_columns(BigInteger, "version"),
        PrimaryKeyConstraint("tenant", "projection", "number", "aggregate", "stream", name="overlap_pkey"),
    )


def _outbox_columns() -> Sequence[SchemaItem]:
    return [
        Column("xid", Xid8, nullable=False, server_default=text("pg_current_xact_id()")),
        *_columns(SmallInteger, "shard"),
        *_columns(Text, "topic", "tenant", "key?"),
        *_columns(BigInteger, "sequence?"),
        *_columns(Integer, "lineage"),
        *_columns(Text, "event_id", "headers?"),
        *_columns(LargeBinary, "body"),
        Column("slot", SmallInteger, nullable=False, server_default=text("0")),
        Column("written_at", DateTime(timezone=True), nullable=False, server_default=text("statement_timestamp()")),
    ]


def _text(name: str, *, primary_key: bool = False) -> Column[str]:
    return Column(name, Text, primary_key=primary_key, nullable=False)


def _columns(kind: type[TypeEngine[T]], *names: str) -> list[Column[T]]:
    """Columns of one type; a name with a `?` may be NULL."""
    return [Column(name.removesuffix("?"), kind, nullable=name.endswith("?"), autoincrement=False) for name in names]


metadata = metadata_of("posthouse")
"""The tables of a store in the schema that it has unless another is named."""
