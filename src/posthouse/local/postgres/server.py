"""Server: how a PostgreSQL is set up, and what that means for what it has committed."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.checks import Check, Judgement, judged

OLDEST, NEWEST = 13, 18
"""Major versions that were tested."""

# Version, role of the server, and the settings that decide whether a commit stays.
SERVER = """
SELECT current_setting('server_version_num')::integer / 10000, current_setting('server_version'), pg_is_in_recovery(),
    current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names'), current_setting('transaction_read_only')
"""

# Who we are here, and what that lets us do.
ROLE = "SELECT current_user::text, r.rolsuper, r.rolbypassrls FROM pg_roles r WHERE r.rolname = current_user"


def server_checks(row: Sequence[object], unsafe: Judgement) -> list[Check]:
    """From a row of SERVER. `unsafe` is how settings are judged with which a crash may undo what was committed."""
    major, version, standby, fsync, full_pages, commit, standbys, read_only = row
    return [
        _version(int(str(major)), str(version)),
        _primary(bool(standby), str(read_only) == "on"),
        _disk("fsync", str(fsync), unsafe),
        _disk("full_page_writes", str(full_pages), unsafe),
        _commit(str(commit), str(standbys), unsafe),
    ]


def role_check(row: Sequence[object]) -> Check:
    """From a row of ROLE: for information. Where tenants are isolated by the database, the store asks for more."""
    name, superuser, bypass = row
    powers = [word for word, has in (("superuser", superuser), ("bypasses row-level security", bypass)) if has]
    return Check(name="role", found=f"{name} ({', '.join(powers)})" if powers else str(name))


def _version(major: int, version: str) -> Check:
    return judged(
        "version",
        f"PostgreSQL {version}",
        wrong=not OLDEST <= major <= NEWEST,
        as_="fail" if major < OLDEST else "warn",
        fix=f"use {OLDEST} to {NEWEST}: others were not tested",
    )


def _primary(standby: bool, read_only: bool) -> Check:
    found = "a standby" if standby else "a primary that takes no writes" if read_only else "a primary"
    fix = "name the primary, or several hosts: target_session_attrs=read-write finds it"
    return judged("server", found, wrong=standby or read_only, as_="fail", fix=fix)


def _disk(name: str, value: str, unsafe: Judgement) -> Check:
    fix = f"set {name}=on in postgresql.conf: a crash of the machine can lose or mangle what was committed"
    return judged(name, value, wrong=value == "off", as_=unsafe, fix=fix)


def _commit(value: str, standbys: str, unsafe: Judgement) -> Check:
    name = "synchronous_commit"
    if value == "off":
        fix = "ALTER ROLE … SET synchronous_commit = on for this role: a crash can undo what was committed and acknowledged"
        return Check(name=name, found=value, judgement=unsafe, fix=fix)
    fix = "set it to on: a failover to the standby can lose what was committed"
    return judged(name, value, wrong=bool(standbys) and value == "local", fix=fix)
