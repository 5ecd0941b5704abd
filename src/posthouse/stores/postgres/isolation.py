"""Isolation: whether the roles that a store connects as keep one tenant from another's rows.

PostgreSQL looks past row-level security for superusers, for roles with BYPASSRLS, for the owner of a table unless it is
forced, and for whoever can become one of these. So each way is looked for, and a sentence comes back for each one that is
open: what was found, and what closes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from posthouse.checks import Check
from posthouse.stores.postgres.roles import APPLICATION, RUNTIME, identifier
from posthouse.stores.postgres.steps import Steps
from posthouse.stores.rows import untyped

POLICY = "(tenant = NULLIF(current_setting('posthouse.tenant'::text, true), ''::text))"
"""What the policy of every table must say, in the server's own spelling."""

Whose = Literal["application", "runtime"]

FIXES = {
    "is a superuser": "ALTER ROLE {role} NOSUPERUSER, or connect as another role",
    "has BYPASSRLS": "ALTER ROLE {role} NOBYPASSRLS",
    "has CREATEROLE and may make itself a member of others": "ALTER ROLE {role} NOCREATEROLE",
    "has REPLICATION and may read every change": "ALTER ROLE {role} NOREPLICATION",
    "owns our tables or functions": "connect as another role, and give that one its rights with `posthouse db roles`",
    "may read or write files of the server": "connect as another role",
}

TOO_MUCH_FOR_ALL = ("is a superuser", "has BYPASSRLS", "owns our tables or functions")
"""What the runtime may not be either: it sees all tenants by a policy that says so."""

# Who is connected, and as whom else it could act; with what each of these may do that row-level security does not stop.
WHO = """
WITH us AS (SELECT r.* FROM pg_roles r WHERE r.rolname IN (session_user, current_user)),
ours AS (
    SELECT c.relowner AS owner FROM pg_class c WHERE c.relnamespace = to_regnamespace('{schema}')
    UNION SELECT p.proowner FROM pg_proc p WHERE p.pronamespace = to_regnamespace('{schema}')
    UNION SELECT n.nspowner FROM pg_namespace n WHERE n.oid = to_regnamespace('{schema}'))
SELECT current_user::text, r.rolname::text, r.oid IN (SELECT u.oid FROM us u), array_remove(ARRAY[
    CASE WHEN r.rolsuper THEN 'is a superuser' END,
    CASE WHEN r.rolbypassrls THEN 'has BYPASSRLS' END,
    CASE WHEN r.rolcreaterole THEN 'has CREATEROLE and may make itself a member of others' END,
    CASE WHEN r.rolreplication THEN 'has REPLICATION and may read every change' END,
    CASE WHEN r.oid IN (SELECT o.owner FROM ours o) THEN 'owns our tables or functions' END,
    CASE WHEN r.rolname IN ('pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files')
        THEN 'may read or write files of the server' END], NULL)
FROM pg_roles r
WHERE r.oid IN (SELECT u.oid FROM us u)
    OR (NOT EXISTS (SELECT 1 FROM us u WHERE u.rolsuper)
        AND EXISTS (SELECT 1 FROM us u WHERE pg_has_role(u.oid, r.oid, 'MEMBER')))
ORDER BY r.rolname
"""

# The tables with tenants: whether their rows are guarded, from the owner too; the policies by which the application may
# see more than it should; and whether those are there that it and the runtime need.
GUARDED = """
SELECT t.name, c.relrowsecurity, c.relforcerowsecurity,
    ARRAY(SELECT p.polname::text FROM pg_policy p WHERE p.polrelid = c.oid AND p.polpermissive
        AND NOT (p.polname = 'tenant' AND pg_get_expr(p.polqual, p.polrelid) = CAST($1 AS text)
            AND p.polwithcheck IS NULL)
        AND EXISTS (SELECT 1 FROM unnest(p.polroles) r
            WHERE r = 0 OR pg_has_role(CAST($2 AS name), r, 'MEMBER')) ORDER BY p.polname),
    EXISTS (SELECT 1 FROM pg_policy p WHERE p.polrelid = c.oid AND p.polpermissive AND p.polname = 'tenant'
        AND p.polroles = '{0}' AND p.polcmd = '*'),
    EXISTS (SELECT 1 FROM pg_policy p WHERE p.polrelid = c.oid AND p.polpermissive AND p.polcmd = '*'
        AND pg_get_expr(p.polqual, p.polrelid) = 'true' AND p.polwithcheck IS NULL
        AND (SELECT r.oid FROM pg_roles r WHERE r.rolname = CAST($3 AS name)) = ANY (p.polroles))
FROM (SELECT t::text AS name, t::oid AS id FROM posthouse.tenant_tables() t) t JOIN pg_class c ON c.oid = t.id
ORDER BY t.name
"""

# What a role may do with each of our tables and views.
RIGHTS = """
SELECT c.relname::text, ARRAY(
    SELECT p.name FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) p (name)
    WHERE has_table_privilege(CAST($1 AS name), c.oid, p.name)
        OR (p.name = 'REFERENCES' AND has_any_column_privilege(CAST($1 AS name), c.oid, p.name)))
FROM pg_class c WHERE c.relnamespace = to_regnamespace('{schema}') AND c.relkind IN ('r', 'p', 'v') ORDER BY c.relname
"""

# Views that the application may read and whose owner is shown everything; a materialised one holds everything anyway.
VIEWS = """
SELECT DISTINCT v.oid::regclass::text, o.rolname::text, v.relkind = 'm'
FROM pg_rewrite w JOIN pg_class v ON v.oid = w.ev_class AND v.relkind IN ('v', 'm')
JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid AND d.refclassid = 'pg_class'::regclass
JOIN pg_roles o ON o.oid = v.relowner
WHERE d.refobjid IN (SELECT t::oid FROM posthouse.tenant_tables() t)
    AND has_any_column_privilege(CAST($1 AS name), v.oid, 'SELECT')
    AND (v.relkind = 'm' OR (NOT coalesce(v.reloptions && ARRAY['security_invoker=true', 'security_invoker=on'], false)
        AND (o.rolsuper OR o.rolbypassrls OR pg_has_role(o.oid, CAST($2 AS name), 'USAGE'))))
ORDER BY 1
"""

# Whether one role can act as the other.
BECOMES = "SELECT pg_has_role(CAST($1 AS name), CAST($2 AS name), 'MEMBER')"

# Schemas of this session's search path in which a role may put functions of its own.
TRAPS = """
SELECT s.name::text, current_user::text FROM unnest(current_schemas(false)) s (name)
WHERE has_schema_privilege(CAST($1 AS name), s.name::text, 'CREATE')
"""


def role_findings(whose: Whose) -> Steps[tuple[str, list[Check]]]:
    """The role that a connection acts as, and why it may not be the role of `whose`."""
    role, findings = "", []
    for current, name, itself, reasons in untyped((yield WHO, ())):
        role = current
        for reason in reasons:
            if whose == "runtime" and reason not in TOO_MUCH_FOR_ALL:
                continue
            if itself:
                findings.append(
                    open_way(f"the {whose}'s role {name!r} {reason}", FIXES[reason].format(role=identifier(name)))
                )
            else:
                findings.append(
                    open_way(
                        f"the {whose}'s role {role!r} is a member of {name!r}, which {reason}", _revoke(name, role)
                    )
                )
    return role, findings


def table_findings(application: str, runtime: str) -> Steps[list[Check]]:
    """Why our tables do not keep the tenants of `application` apart, or keep the runtime from its work."""
    if application == runtime:
        return [open_way(f"the application and the runtime are both {application!r}", "give each a role of its own")]
    findings = []
    if (yield BECOMES, (application, runtime)).scalar():
        findings.append(
            open_way(
                f"the application's role {application!r} can act as the runtime's, {runtime!r}",
                _revoke(runtime, application),
            )
        )
    again = _again(application, runtime)
    for table, *found in untyped((yield GUARDED, (POLICY, application, runtime))):
        findings += _policy_findings(table, found, runtime, again)
    findings += yield from _rights_findings(application, runtime, again)
    for view, owner, stored in untyped((yield VIEWS, (application, runtime))):
        why = "holds rows of all tenants" if stored else f"shows what its owner {owner!r} sees, which is every tenant"
        findings.append(open_way(f"the view {view} {why}", f"REVOKE ALL ON {view} FROM {identifier(application)}"))
    return findings


def path_findings(application: str) -> Steps[list[Check]]:
    """On the runtime's connection: whether it would run functions that the application made."""
    return [
        open_way(
            f"{application!r} may make functions in the schema {schema!r}, where {runtime!r} looks for some",
            f"ALTER ROLE {identifier(runtime)} SET search_path = pg_catalog, pg_temp",
        )
        for schema, runtime in untyped((yield TRAPS, (application,)))
    ]


def open_way(found: str, fix: str) -> Check:
    """One reason why tenants are not kept apart."""
    return Check(name="isolation", found=found, judgement="fail", fix=fix)


def _policy_findings(table: str, found: Sequence[Any], runtime: str, again: str) -> list[Check]:
    enabled, forced, strays, own, everything = found
    findings = []
    if not enabled:
        findings.append(open_way(f"{table} has no row-level security", again))
    elif not forced:
        findings.append(open_way(f"{table} does not hold its owner to row-level security", again))
    findings += [
        open_way(
            f"the policy {stray!r} of {table} shows the application more than one tenant",
            f"DROP POLICY {identifier(stray)} ON {table}, then {again}",
        )
        for stray in strays
    ]
    if not own:
        findings.append(open_way(f"{table} has lost its policy 'tenant'", again))
    if not everything:
        findings.append(open_way(f"{table} shows {runtime!r} nothing, so that events would wait for ever", again))
    return findings


def _rights_findings(application: str, runtime: str, again: str) -> Steps[list[Check]]:
    findings = []
    for table, rights in untyped((yield RIGHTS, (application,))):
        wanted = APPLICATION.get(table, ())
        excess = [right for right in rights if right not in wanted]
        lacking = [right for right in wanted if right not in rights]
        if excess:
            findings.append(open_way(f"{application!r} has {', '.join(excess)} on {table} without need", again))
        if lacking:
            findings.append(open_way(f"{application!r} lacks {', '.join(lacking)} on {table}", again))
    for table, rights in untyped((yield RIGHTS, (runtime,))):
        wanted = ("SELECT",) if table == "migration" else RUNTIME
        lacking = [right for right in wanted if right not in rights]
        if lacking:
            findings.append(open_way(f"{runtime!r} lacks {', '.join(lacking)} on {table}", again))
    return findings


def _again(application: str, runtime: str) -> str:
    return f"run `posthouse db roles --application {application} --runtime {runtime} --apply` with the owner's URL"


def _revoke(role: str, member: str) -> str:
    return f"REVOKE {identifier(role)} FROM {identifier(member)}"
