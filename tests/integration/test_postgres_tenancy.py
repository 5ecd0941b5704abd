"""From one tenant to another's rows in PostgreSQL, by every road there is. The application's role takes none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import errors

from posthouse.stores.postgres import PostgresStore
from posthouse.stores.postgres.roles import APPLICATION
from tests.kit.servers.postgres import PostgresServer
from tests.kit.servers.roles import Ground, new_ground

TABLES = (
    "outbox",
    "key",
    "idempotency",
    "stuck",
    "head",
    "inbox",
    "held",
    "timer",
    "saga",
    "saga_turn",
    "saga_waiting",
    "stream",
    "stream_event",
    "snapshot",
)
READABLE = tuple(table for table in TABLES if "SELECT" in APPLICATION.get(table, ()))

VALUES = {
    "text": "'same'", "bigint": "7", "integer": "7", "smallint": "0", "bytea": "'x'", "boolean": "true",
    "double precision": "0", "xid8": "'1'",
}  # fmt: skip

# The columns of a table that a row must give; and those of its unique keys, so that two tenants give the same.
COLUMNS = """
SELECT a.attname, format_type(a.atttypid, NULL) FROM pg_attribute a
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attidentity = '' AND NOT a.atthasdef
ORDER BY a.attnum
"""


@pytest.fixture(scope="module")
def isolated(postgres_server: PostgresServer) -> Iterator[Ground]:
    """Tables with one row of each tenant in each of them, and the roles set up. The tests here leave the rows as they are."""

    async def set_up(ground: Ground) -> None:
        store = PostgresStore(ground.owner_url)
        await store.upgrade()
        await store.set_roles(ground.application, ground.runtime)
        await store.aclose()

    with new_ground(postgres_server) as ground:
        asyncio.run(set_up(ground))
        with psycopg.connect(ground.runtime_url) as connection:
            for table in TABLES:
                for tenant in ("a", "b"):
                    connection.execute(insertion(connection, table, tenant).encode())
        yield ground


def insertion(connection: psycopg.Connection, table: str, tenant: str) -> str:
    """A row of the tenant that is otherwise as the other tenant's."""
    columns = connection.execute(COLUMNS, (f"posthouse.{table}",)).fetchall()
    values = [f"'{tenant}'" if name == "tenant" else VALUES[kind] for name, kind in columns]
    return f"INSERT INTO posthouse.{table} ({', '.join(name for name, _ in columns)}) VALUES ({', '.join(values)})"


@contextmanager
def application(ground: Ground, tenant: str | None = "a") -> Iterator[psycopg.Connection]:
    """A transaction of the application for a tenant, or for none; rolled back."""
    with psycopg.connect(ground.application_url) as connection:
        if tenant is not None:
            connection.execute("SELECT set_config('posthouse.tenant', %s, true)", (tenant,))
        yield connection
        connection.rollback()


def tenants(connection: psycopg.Connection, table: str) -> list[str]:
    rows = connection.execute(f"SELECT tenant FROM posthouse.{table} ORDER BY tenant".encode())
    return [tenant for (tenant,) in rows]


# What guards the tables.


def test_every_table_with_a_tenant_is_guarded_and_leaves_are_too(isolated: Ground) -> None:
    found = isolated.execute("""
        SELECT c.relname, c.relrowsecurity, c.relforcerowsecurity,
            ARRAY(SELECT p.polname::text FROM pg_policy p WHERE p.polrelid = c.oid ORDER BY 1)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant'
        WHERE c.relnamespace = 'posthouse'::regnamespace AND c.relkind IN ('r', 'p')""")
    assert set(TABLES) <= {str(name) for name, *_ in found}
    assert [row for row in found if row[1:] != (True, True, ["runtime", "tenant"])] == []


def test_the_tenant_is_first_in_every_unique_key(isolated: Ground) -> None:
    found = isolated.execute("""
        SELECT i.indexrelid::regclass::text, a.attname::text FROM pg_index i
        JOIN pg_class c ON c.oid = i.indrelid AND c.relnamespace = 'posthouse'::regnamespace
        JOIN pg_attribute t ON t.attrelid = c.oid AND t.attname = 'tenant'
        LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0] WHERE i.indisunique""")
    assert len(found) >= 9
    assert [name for name, first in found if first != "tenant"] == []


def test_functions_that_run_as_their_owner_are_few_and_known(isolated: Ground) -> None:
    found = isolated.execute("""
        SELECT p.proname::text, p.proconfig FROM pg_proc p
        WHERE p.pronamespace = 'posthouse'::regnamespace AND p.prosecdef ORDER BY 1""")
    assert [name for name, _ in found] == [
        "analyze_grown",
        "lock_partition",
        "new_timeline",
        "settle_in",
        "truncate_partition",
    ]
    assert {str(settings) for _, settings in found} == {"['search_path=pg_catalog, pg_temp']"}


# Reading and writing.


@pytest.mark.parametrize("table", READABLE)
def test_a_tenant_reads_its_own_rows_only(isolated: Ground, table: str) -> None:
    with application(isolated, "a") as connection:
        assert tenants(connection, table) == ["a"]
    with application(isolated, "b") as connection:
        assert tenants(connection, table) == ["b"]


@pytest.mark.parametrize("setting", [None, "", "nobody"])
@pytest.mark.parametrize("table", READABLE)
def test_without_a_tenant_there_are_no_rows(isolated: Ground, table: str, setting: str | None) -> None:
    with application(isolated, setting) as connection:
        assert tenants(connection, table) == []


@pytest.mark.parametrize("table", [table for table in TABLES if "INSERT" in APPLICATION.get(table, ())])
def test_a_row_of_another_tenant_is_refused(isolated: Ground, table: str) -> None:
    for setting in ("a", "", None):
        with (
            application(isolated, setting) as connection,
            pytest.raises(errors.InsufficientPrivilege, match="row-level security"),
        ):
            connection.execute(insertion(connection, table, "c").encode())


@pytest.mark.parametrize("table", [table for table in TABLES if "UPDATE" in APPLICATION.get(table, ())])
def test_rows_of_another_tenant_cannot_be_changed_nor_given_away(isolated: Ground, table: str) -> None:
    with application(isolated) as connection:
        assert connection.execute(f"UPDATE posthouse.{table} SET tenant = tenant".encode()).rowcount == 1
        changed = connection.execute(f"UPDATE posthouse.{table} SET tenant = tenant WHERE tenant = 'b'".encode())
        assert changed.rowcount == 0
        with pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
            connection.execute(f"UPDATE posthouse.{table} SET tenant = 'c'".encode())


@pytest.mark.parametrize("table", [table for table in TABLES if "DELETE" in APPLICATION.get(table, ())])
def test_rows_of_another_tenant_cannot_be_deleted(isolated: Ground, table: str) -> None:
    with application(isolated) as connection:
        assert connection.execute(f"DELETE FROM posthouse.{table}".encode()).rowcount == 1
    assert isolated.execute(f"SELECT count(*) FROM posthouse.{table}") == [(2,)]


@pytest.mark.parametrize("right", ["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"])
def test_the_application_has_only_the_rights_it_needs(isolated: Ground, right: str) -> None:
    allowed = {table for table, rights in APPLICATION.items() if right in rights}
    found = isolated.execute(f"""
        SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'posthouse'::regnamespace AND c.relkind IN ('r', 'p', 'v')
        AND has_table_privilege('{isolated.application}', c.oid, '{right}')""")
    assert {name for (name,) in found} == allowed


def test_the_runtime_reads_all_tenants_and_is_nobody_special(isolated: Ground) -> None:
    with psycopg.connect(isolated.runtime_url) as connection:
        assert {table: tenants(connection, table) for table in TABLES} == {table: ["a", "b"] for table in TABLES}
    special = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = "
    assert isolated.execute(f"{special} '{isolated.runtime}'") == [(False,)]


# Keys that two tenants share.


def test_the_same_keys_of_two_tenants_do_not_meet(isolated: Ground) -> None:
    """The rows of both tenants differ in nothing but the tenant: were a key without it, the second would not be there."""
    for table in TABLES:
        assert isolated.execute(f"SELECT count(*) FROM posthouse.{table}") == [(2,)]


def test_an_upsert_neither_meets_nor_changes_another_tenants_row(isolated: Ground) -> None:
    upsert = """
        INSERT INTO posthouse.key AS k (topic, tenant, key, sequence) VALUES ('same', %s, 'same', 100)
        ON CONFLICT (tenant, topic, key) DO UPDATE SET sequence = excluded.sequence RETURNING k.tenant"""
    with application(isolated) as connection:
        assert connection.execute(upsert, ("a",)).fetchall() == [("a",)]
    with application(isolated) as connection, pytest.raises(errors.InsufficientPrivilege):
        connection.execute(upsert, ("b",))
    assert isolated.execute("SELECT sequence FROM posthouse.key WHERE tenant = 'b'") == [(7,)]


def test_a_number_that_another_tenant_has_can_be_taken_and_tells_nothing(isolated: Ground) -> None:
    [(number,)] = isolated.execute("SELECT id FROM posthouse.held WHERE tenant = 'b'")
    with application(isolated) as connection:
        columns = (
            "consumer, topic, tenant, lineage, event_id, digest, time, state, type, body, attempts, next_at, first_at, "
            "last_at, reason, error, stack, turn"
        )
        values = "'c', 't', 'a', 1, 'e', '', 0, 'dead', '', '', 0, 0, 0, 0, '', '', '', 0"
        added = f"INSERT INTO posthouse.held (id, {columns}) OVERRIDING SYSTEM VALUE VALUES ({number}, {values})"
        assert connection.execute(added.encode()).rowcount == 1


# Other statements.


def test_copy_takes_out_own_rows_and_brings_in_none_of_others(isolated: Ground) -> None:
    for query in ("COPY (SELECT tenant FROM posthouse.head) TO STDOUT", "COPY posthouse.key (tenant) TO STDOUT"):
        with application(isolated) as connection, connection.cursor().copy(query.encode()) as copy:
            assert b"".join(bytes(data) for data in copy) == b"a\n"
    brought = "COPY posthouse.key (topic, tenant, key, sequence) FROM STDIN"
    with (
        application(isolated) as connection,
        pytest.raises(psycopg.Error) as refused,
        connection.cursor().copy(brought) as copy,
    ):
        copy.write_row(("t", "b", "k", 1))
    assert refused.value.sqlstate in ("0A000", "42501")  # COPY FROM is not there for tables with policies


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE posthouse.held",
        "TRUNCATE posthouse.outbox",
        "ALTER TABLE posthouse.head DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE posthouse.head NO FORCE ROW LEVEL SECURITY",
        "DROP POLICY tenant ON posthouse.head",
        "CREATE POLICY mine ON posthouse.head USING (true)",
        "CREATE INDEX mine ON posthouse.head (event_id)",
        "CREATE TABLE posthouse.mine (id int)",
        "CREATE TRIGGER mine BEFORE INSERT ON posthouse.held FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "CREATE RULE mine AS ON INSERT TO posthouse.held DO ALSO NOTHING",
        "SELECT posthouse.truncate_partition(0)",
        "SELECT posthouse.lock_partition(0)",
        "SELECT posthouse.isolate('postgres')",
        "SELECT * FROM posthouse.lease('me', 10, 0)",
        "SELECT * FROM posthouse.outbox",
        "SELECT * FROM posthouse.stuck",
        "SELECT count(*) FROM posthouse.shard",
        "DELETE FROM posthouse.incarnation",
        "UPDATE posthouse.meta SET lineage = 99",
        "SELECT last_value FROM posthouse.outbox_id_seq",
        "SELECT nextval('posthouse.outbox_id_seq')",
        "SELECT nextval('posthouse.held_id_seq')",
        "SELECT pg_read_file('postgresql.conf')",
        "SELECT pg_create_logical_replication_slot('mine', 'test_decoding')",
        "LOCK TABLE posthouse.shard",
    ],
)
def test_the_application_may_not(isolated: Ground, statement: str) -> None:
    with application(isolated) as connection, pytest.raises(errors.InsufficientPrivilege):
        connection.execute(statement.encode())


def test_row_security_cannot_be_switched_off(isolated: Ground) -> None:
    with application(isolated) as connection:
        connection.execute("SET LOCAL row_security = off")
        with pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
            connection.execute("SELECT * FROM posthouse.head")


def test_a_producer_cannot_make_believe_that_the_server_was_promoted(isolated: Ground) -> None:
    before = isolated.execute("SELECT lineage, timeline FROM posthouse.meta")
    with application(isolated) as connection:
        connection.execute("SELECT posthouse.new_timeline('FFFFFFFF')")
        connection.commit()
    assert isolated.execute("SELECT lineage, timeline FROM posthouse.meta") == before


def test_foreign_keys_cannot_probe(isolated: Ground) -> None:
    isolated.execute(f"GRANT CREATE ON SCHEMA public TO {isolated.application}")
    with application(isolated) as connection, pytest.raises(errors.InsufficientPrivilege):
        connection.execute("CREATE TABLE probe (tenant text, id bigint REFERENCES posthouse.held)")


# Other roles.


@pytest.mark.parametrize("command", ["SET ROLE {}", "SET SESSION AUTHORIZATION {}"])
@pytest.mark.parametrize("role", ["owner", "runtime", "postgres"])
def test_the_application_cannot_become_another_role(isolated: Ground, command: str, role: str) -> None:
    name = getattr(isolated, role, None) or isolated.execute("SELECT current_user")[0][0]
    with application(isolated) as connection, pytest.raises(errors.InsufficientPrivilege):
        connection.execute(command.format(name).encode())


def test_resetting_the_role_leads_nowhere(isolated: Ground) -> None:
    with application(isolated) as connection:
        connection.execute("RESET ROLE")
        connection.execute("RESET SESSION AUTHORIZATION")
        assert tenants(connection, "head") == ["a"]


def test_the_owner_is_held_to_the_policies_and_without_force_would_not_be(isolated: Ground) -> None:
    with psycopg.connect(isolated.owner_url) as connection:
        assert tenants(connection, "head") == []
        connection.execute("ALTER TABLE posthouse.head NO FORCE ROW LEVEL SECURITY")
        assert tenants(connection, "head") == ["a", "b"]
        connection.rollback()


def test_a_view_of_the_owner_shows_one_tenant(isolated: Ground) -> None:
    with psycopg.connect(isolated.owner_url) as connection:
        connection.execute("CREATE VIEW public.heads AS SELECT * FROM posthouse.head")
        connection.execute(f"GRANT SELECT ON public.heads TO {isolated.application}".encode())
    with application(isolated) as connection:
        assert connection.execute("SELECT tenant FROM public.heads").fetchall() == [("a",)]


def test_a_function_of_the_owner_shows_one_tenant(isolated: Ground) -> None:
    with psycopg.connect(isolated.owner_url) as connection:
        connection.execute("""
            CREATE FUNCTION public.heads() RETURNS SETOF text LANGUAGE sql SECURITY DEFINER
            AS 'SELECT tenant FROM posthouse.head'""")
    with application(isolated) as connection:
        assert connection.execute("SELECT * FROM public.heads()").fetchall() == [("a",)]


def test_our_own_functions_see_what_their_caller_sees(isolated: Ground) -> None:
    standing = "SELECT event_id FROM posthouse.standing('same', 'same', %s, 'same')"
    with application(isolated) as connection:
        assert connection.execute(standing, ("a",)).fetchall() == [("same",)]
        assert connection.execute(standing, ("b",)).fetchall() == []


# What is left over, planned, guessed or told.


def test_a_prepared_statement_follows_the_tenant_of_its_transaction(isolated: Ground) -> None:
    with psycopg.connect(isolated.application_url) as connection:
        for number in range(12):
            tenant = "ab"[number % 2]
            connection.execute("SELECT set_config('posthouse.tenant', %s, true)", (tenant,))
            found = connection.execute("SELECT tenant FROM posthouse.head", prepare=True).fetchall()
            assert found == [(tenant,)]
            connection.commit()


def test_a_local_setting_leaves_nothing_behind(isolated: Ground) -> None:
    with psycopg.connect(isolated.application_url) as connection:
        connection.execute("SELECT set_config('posthouse.tenant', 'a', true)")
        assert tenants(connection, "head") == ["a"]
        connection.commit()
        assert connection.execute("SELECT current_setting('posthouse.tenant', true)").fetchall() == [("",)]
        assert tenants(connection, "head") == []


def test_a_function_that_leaks_what_it_is_given_is_given_own_rows_only(isolated: Ground) -> None:
    heard: list[str] = []
    with application(isolated) as connection:
        connection.add_notice_handler(lambda notice: heard.append(str(notice.message_primary)))
        connection.execute("""
            CREATE FUNCTION pg_temp.leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001
            AS 'BEGIN RAISE NOTICE ''%'', $1; RETURN true; END'""")
        connection.execute("SELECT * FROM posthouse.head WHERE pg_temp.leak(tenant)")
        connection.execute("EXPLAIN ANALYZE SELECT * FROM posthouse.head WHERE pg_temp.leak(tenant)")
    assert set(heard) == {"a"}


def test_statistics_of_values_are_hidden(isolated: Ground) -> None:
    isolated.execute("ANALYZE posthouse.head")
    with application(isolated) as connection:
        found = connection.execute("SELECT * FROM pg_stats WHERE schemaname = 'posthouse' AND tablename = 'head'")
        assert found.fetchall() == []


def test_functions_of_the_catalogue_run_as_who_calls_them(isolated: Ground) -> None:
    with application(isolated) as connection:
        told = connection.execute(
            "SELECT word FROM ts_stat($$SELECT to_tsvector('simple', 'tenant' || tenant) FROM posthouse.head$$)"
        )
        assert told.fetchall() == [("tenanta",)]


def test_what_the_runtime_is_doing_is_hidden(isolated: Ground) -> None:
    with psycopg.connect(isolated.runtime_url) as busy, application(isolated) as connection:
        busy.execute("SELECT 'secret of b'")
        seen = connection.execute(
            "SELECT query FROM pg_stat_activity WHERE usename = %s", (isolated.runtime,)
        ).fetchall()
        assert seen == [("<insufficient privilege>",)]
