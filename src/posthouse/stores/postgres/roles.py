"""Roles: what the application and the runtime may do in the database, and the statements that say so.

The application works for one tenant at a time and may do only what a handler or a producer needs. The runtime carries
the events of all: relay, timers, retries, purges, figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from posthouse.errors import ConfigurationError

LONGEST = 63
"""Bytes of a name; PostgreSQL cuts off the rest in silence."""

APPLICATION: Mapping[str, Sequence[str]] = {
    "migration": ("SELECT",),
    "meta": ("SELECT",),
    "consumer": ("SELECT",),
    "forgotten": ("SELECT",),
    "outbox": ("INSERT",),
    "key": ("SELECT", "INSERT", "UPDATE"),
    "idempotency": ("SELECT", "INSERT", "UPDATE"),
    "head": ("SELECT", "INSERT", "UPDATE"),
    "inbox": ("SELECT", "INSERT"),
    "held": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "replay_event": ("SELECT", "DELETE"),
    "timer": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "schedule": ("SELECT", "UPDATE"),
    "applied_count": ("INSERT",),
    "tally_change": ("INSERT",),
    "saga": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "saga_turn": ("SELECT", "INSERT", "DELETE"),
    "saga_waiting": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "saga_index": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "saga_view": ("SELECT",),
    "stream": ("SELECT", "INSERT", "UPDATE"),
    "stream_event": ("SELECT", "INSERT", "DELETE"),
    "stream_archive": ("SELECT", "INSERT", "DELETE"),
    "generation": ("SELECT", "INSERT", "UPDATE"),
    "generation_number": ("SELECT", "INSERT", "UPDATE"),
    "incarnation": ("SELECT",),
    "overlap": ("SELECT",),
    "effect": ("SELECT", "INSERT"),
    "action": ("INSERT",),
    "snapshot": ("SELECT", "INSERT", "UPDATE", "DELETE"),
}
"""What the application may do with each table or view; with one that is not named here, nothing."""

RUNTIME: Sequence[str] = ("SELECT", "INSERT", "UPDATE", "DELETE")
"""What the runtime may do with every table but the list of migrations, which it may read."""

# Take away everything, then give what is needed; the rows of all tenants are for the runtime alone from here on.
SCRIPT = """\
REVOKE ALL ON SCHEMA {schema} FROM PUBLIC, {application}, {runtime};
REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM PUBLIC, {application}, {runtime};
REVOKE ALL ON ALL SEQUENCES IN SCHEMA {schema} FROM PUBLIC, {application}, {runtime};
GRANT USAGE ON SCHEMA {schema} TO {application}, {runtime};
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {application}, {runtime};
{grants}
GRANT {all} ON ALL TABLES IN SCHEMA {schema} TO {runtime};
REVOKE INSERT, UPDATE, DELETE ON {schema}.migration FROM {runtime};
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {runtime};
SELECT {schema}.isolate({runtime_text});
"""


def roles_script(schema: str, application: str, runtime: str) -> str:
    """The statements that set isolation up, for the owner of the tables to run. They may be run again: after an upgrade,
    or with another pair of roles. Both roles must exist."""
    problems = [
        f"{which}={name!r}: a role's name has 1 to {LONGEST} bytes and no NUL"
        for which, name in (("application", application), ("runtime", runtime))
        if not 1 <= len(name.encode()) <= LONGEST or "\x00" in name
    ]
    if application == runtime:
        problems.append(f"application and runtime are both {runtime!r}: one role that sees all tenants isolates nobody")
    if problems:
        raise ConfigurationError(*problems)
    grants = [
        f"GRANT {', '.join(rights)} ON {schema}.{table} TO {identifier(application)};"
        for table, rights in APPLICATION.items()
    ]
    return SCRIPT.format(
        schema=schema,
        application=identifier(application),
        runtime=identifier(runtime),
        runtime_text=literal(runtime),
        grants="\n".join(grants),
        all=", ".join(RUNTIME),
    )


def identifier(name: str) -> str:
    """A name as SQL takes it, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as SQL takes it, whatever it holds and however the session reads backslashes."""
    quoted = text.replace("'", "''").replace("\\", "\\\\")
    return f"E'{quoted}'" if "\\" in text else f"'{quoted}'"
