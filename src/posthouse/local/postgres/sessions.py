"""Sessions: who keeps old rows from going, and how much room is left for more connections and more WAL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from posthouse.checks import Check, judged

LONG = 60.0
"""Seconds for which a transaction may be open before it is worth a word."""
FORGOTTEN = 300.0
"""The same for one that was prepared."""
FULL = 0.8
"""The share of the connections from which on it gets tight."""
MUCH_WAL = 1024**3
"""Bytes of WAL that a slot nobody reads may keep."""
OLD_SLOT = 10_000_000
"""Transactions that a slot's xmin may lie back."""

# The oldest transaction that holds something: a row version that it may still want to see, or rows that it wrote.
OLDEST = """
SELECT a.pid, extract(epoch FROM clock_timestamp() - a.xact_start)::double precision, coalesce(a.state, ''),
    coalesce(a.usename, ''), coalesce(a.application_name, ''), coalesce(a.datname, ''), coalesce(a.query, '')
FROM pg_stat_activity a
WHERE a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL AND a.backend_type = 'client backend'
    AND (a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL)
ORDER BY a.xact_start LIMIT 1
"""

# Sessions that we may not look into.
HIDDEN = "SELECT count(*) FROM pg_stat_activity a WHERE a.query = '<insufficient privilege>'"

# Transactions that were prepared and neither committed nor rolled back.
PREPARED = """
SELECT p.gid, extract(epoch FROM clock_timestamp() - p.prepared)::double precision, p.owner::text, p.database::text
FROM pg_prepared_xacts p ORDER BY p.prepared
"""

# Connections in use, and how many there may be.
CONNECTIONS = """
SELECT coalesce(sum(d.numbackends), 0)::bigint, current_setting('max_connections')::integer,
    current_setting('superuser_reserved_connections')::integer
FROM pg_stat_database d
"""

# Replication slots: what each keeps.
SLOTS = """
SELECT s.slot_name::text, s.active, coalesce(s.wal_status, ''),
    CASE WHEN pg_is_in_recovery() THEN 0 ELSE coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn), 0) END::bigint,
    greatest(coalesce(age(s.xmin), 0), coalesce(age(s.catalog_xmin), 0))::bigint
FROM pg_replication_slots s ORDER BY 4 DESC
"""

# Limits for sessions that forget themselves.
LIMITS = """
SELECT current_setting('idle_in_transaction_session_timeout'), current_setting('max_prepared_transactions')::integer
"""


def oldest_check(rows: Sequence[Sequence[object]], hidden: int) -> Check:
    """From OLDEST and HIDDEN."""
    name = "oldest transaction"
    unseen = f"; {hidden} sessions of other roles cannot be seen" if hidden else ""
    see = "GRANT pg_read_all_stats TO this role to see them all"
    if not rows:
        return judged(name, f"none is open{unseen}", wrong=hidden > 0, fix=see)
    pid, age, state, user, application, database, query = rows[0]
    who = "/".join(str(part) for part in (user, application, database) if part)
    found = f"pid {pid} ({who}), {state}, open for {_span(age)}: {_line(query)}{unseen}"
    fix = (
        f"it keeps old rows from being cleared away: end it there, or here with SELECT pg_terminate_backend({pid}); "
        "idle_in_transaction_session_timeout ends forgotten ones by itself"
    )
    if _seconds(age) >= LONG:
        return Check(name=name, found=found, judgement="warn", fix=fix)
    return judged(name, found, wrong=hidden > 0, fix=see)


def prepared_checks(rows: Iterable[Sequence[object]]) -> list[Check]:
    """From PREPARED: one for each that was left behind."""
    old = [row for row in rows if _seconds(row[1]) >= FORGOTTEN]
    if not old:
        return [Check(name="prepared transactions", found="none is left behind")]
    return [
        Check(
            name="prepared transaction",
            found=f"{gid!r} of {owner} in {database}, prepared {_span(age)} ago",
            judgement="warn",
            fix=f"it holds its locks and keeps old rows: COMMIT PREPARED '{gid}' or ROLLBACK PREPARED '{gid}'",
        )
        for gid, age, owner, database in old
    ]


def connections_check(row: Sequence[object], ours: int, what_for: str) -> Check:
    """From CONNECTIONS; `ours` is how many one process may open."""
    used, most, reserved = (int(str(figure)) for figure in row)
    room = most - reserved
    return judged(
        "connections",
        f"{used} of {room} in use; one process of this service opens up to {ours}{what_for}",
        wrong=used >= FULL * room or ours >= room,
        fix="raise max_connections, lower `writers`, or put a pooler before it",
    )


def slot_checks(rows: Iterable[Sequence[object]]) -> list[Check]:
    """From SLOTS."""
    found = [_slot(*row) for row in rows]
    return found or [Check(name="replication slots", found="none")]


def limit_checks(row: Sequence[object]) -> list[Check]:
    """From LIMITS."""
    idle, prepared = row
    return [
        judged(
            "idle_in_transaction_session_timeout",
            str(idle),
            wrong=idle == "0",
            fix="ALTER DATABASE … SET idle_in_transaction_session_timeout = '5min' ends sessions that were forgotten",
        ),
        Check(name="max_prepared_transactions", found=str(prepared)),
    ]


def _slot(name: object, active: object, status: object, kept: object, age: object) -> Check:
    size, behind = int(str(kept)), int(str(age))
    found = f"{name}, {'active' if active else 'nobody reads it'}, keeps {size / 1024**2:,.0f} MiB of WAL ({status})"
    lost = status in ("lost", "unreserved")
    drop = f"if nobody needs it: SELECT pg_drop_replication_slot('{name}')"
    if lost or (not active and size >= MUCH_WAL):
        fix = f"its WAL {'is gone or going' if lost else 'fills the disk'}: start who reads it; {drop}"
        return Check(name="replication slot", found=found, judgement="warn", fix=fix)
    fix = f"its xmin lies {behind:,} transactions back and keeps old rows: start who reads it; {drop}"
    return judged("replication slot", found, wrong=behind >= OLD_SLOT, fix=fix)


def _seconds(age: object) -> float:
    return float(str(age))


def _span(age: object) -> str:
    seconds = _seconds(age)
    return f"{seconds:,.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"


def _line(query: object) -> str:
    text = " ".join(str(query).split())
    return text if len(text) <= 200 else f"{text[:199]}…"
