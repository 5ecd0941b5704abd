"""A store that was asked for isolation starts only with roles and tables that give it, and says all that is wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

import psycopg
import pytest
import pytest_asyncio
from typer.testing import CliRunner

from posthouse import Event, Payload, Service, Tx
from posthouse.brokers.memory import MemoryBroker
from posthouse.cli import app
from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError
from posthouse.events import decode_any
from posthouse.stores import open_store
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.postgres.roles import roles_script
from posthouse.testing import rehost
from posthouse.testing.store_contract.samples import entry, held, row
from posthouse.testing.store_contract.steps import add, drain, hold
from tests.faults.scene import crafted
from tests.kit.servers.postgres import PostgresServer
from tests.kit.servers.roles import Ground
from tests.kit.waiting import eventually


@pytest_asyncio.fixture
async def isolated(ground: Ground) -> Ground:
    """Tables of a plain owner, and the roles set up by it."""
    async with opened(PostgresStore(ground.owner_url)) as store:
        await store.upgrade()
        await store.set_roles(ground.application, ground.runtime)
    return ground


@asynccontextmanager
async def opened(store: PostgresStore) -> AsyncIterator[PostgresStore]:
    try:
        yield store
    finally:
        await store.aclose()


def store_of(ground: Ground, *, url: str | None = None, runtime_url: str | None = None) -> PostgresStore:
    return PostgresStore(
        url or ground.application_url, isolation=True, runtime_url=runtime_url or ground.runtime_url, patience=10
    )


async def findings(store: PostgresStore) -> str:
    """Why it does not start, whichever side is used first."""
    async with opened(store):
        with pytest.raises(ConfigurationError) as by_the_runtime:
            await store.outbox.lease("me", 1)
        with pytest.raises(ConfigurationError) as by_the_application:
            async with store.begin(tenant="a"):
                pytest.fail("a transaction was begun")
        assert str(by_the_runtime.value) == str(by_the_application.value)
        return str(by_the_runtime.value)


async def test_the_tally_is_put_right_by_nobody_who_does_not_see_what_it_counts(isolated: Ground) -> None:
    async with opened(store_of(isolated)) as store:
        await hold(store, held(entry(1), "dead"), held(entry(1, key="other"), "dead"))
        before = (await store.counts()).held
        assert sum(before.values()) == 2
        with (
            psycopg.connect(isolated.owner_url, autocommit=True) as owner,
            pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security hides events"),
        ):
            owner.execute("SELECT posthouse.recount()")
        with psycopg.connect(isolated.runtime_url, autocommit=True) as runtime:
            assert runtime.execute("SELECT posthouse.recount()").fetchone() == (0,)
        assert (await store.counts()).held == before
    async with opened(PostgresStore(isolated.owner_url)) as owned:
        assert "tally" not in {check.name for check in await owned.checks()}, "it cannot tell"


async def test_it_starts_with_the_roles_that_were_set_up(isolated: Ground) -> None:
    async with opened(store_of(isolated)) as store:
        async with store.begin(tenant="a") as tx:
            assert await tx.execute("SELECT current_user, current_setting('posthouse.tenant')") == [
                (isolated.application, "a")
            ]
        async with store.begin() as tx:
            assert (await tx.execute("SELECT current_user")).scalar() == isolated.runtime
        assert await store.outbox.lease("me", 1)
        [check] = [check for check in await store.checks() if check.name == "isolation"]
        assert check.judgement == "ok"


SPOILED = {
    "a superuser": ("ALTER ROLE {application} SUPERUSER", "'{application}' is a superuser", "NOSUPERUSER"),
    "bypassing": ("ALTER ROLE {application} BYPASSRLS", "'{application}' has BYPASSRLS", "NOBYPASSRLS"),
    "making roles": ("ALTER ROLE {application} CREATEROLE", "'{application}' has CREATEROLE", "NOCREATEROLE"),
    "replicating": ("ALTER ROLE {application} REPLICATION", "'{application}' has REPLICATION", "NOREPLICATION"),
    "an owner": ("ALTER TABLE posthouse.held OWNER TO {application}", "'{application}' owns our", "another role"),
    "owner of a function": (
        "ALTER FUNCTION posthouse.is_stuck(bigint, text, text, text) OWNER TO {application}",
        "'{application}' owns our",
        "another role",
    ),
    "a member of the owner": (
        "GRANT {owner} TO {application}",
        "'{application}' is a member of '{owner}', which owns",
        'REVOKE "{owner}" FROM "{application}"',
    ),
    "a member that does not inherit": (
        "ALTER ROLE {application} NOINHERIT; GRANT {owner} TO {application}",
        "is a member of '{owner}', which owns",
        'REVOKE "{owner}"',
    ),
    "a member of a superuser": (
        "ALTER ROLE {owner} SUPERUSER; GRANT {owner} TO {application}",
        "is a member of '{owner}', which is a superuser",
        'REVOKE "{owner}"',
    ),
    "a member of a member": (
        "GRANT {owner} TO {runtime}; GRANT {runtime} TO {application}",
        "'{application}' is a member of '{owner}'",
        'REVOKE "{owner}"',
    ),
    "a member of the runtime": (
        "GRANT {runtime} TO {application}",
        "'{application}' can act as the runtime's",
        'REVOKE "{runtime}" FROM "{application}"',
    ),
    "a reader of files": (
        "GRANT pg_read_server_files TO {application}",
        "which may read or write files",
        'REVOKE "pg_read_server_files"',
    ),
    "truncating": ("GRANT TRUNCATE ON posthouse.held TO {application}", "has TRUNCATE on held", "posthouse db roles"),
    "referring": ("GRANT REFERENCES (id) ON posthouse.held TO {application}", "has REFERENCES on held", "db roles"),
    "reading all": ("GRANT SELECT ON posthouse.outbox TO PUBLIC", "has SELECT on outbox", "posthouse db roles"),
    "without a right": ("REVOKE INSERT ON posthouse.applied_count FROM {application}", "lacks INSERT on applied_count", "db roles"),
    "no security": (
        "ALTER TABLE posthouse.head DISABLE ROW LEVEL SECURITY",
        "posthouse.head has no row-level security",
        "posthouse db roles",
    ),
    "not forced": (
        "ALTER TABLE posthouse.head NO FORCE ROW LEVEL SECURITY",
        "posthouse.head does not hold its owner",
        "posthouse db roles",
    ),
    "a partition not forced": (
        "ALTER TABLE posthouse.outbox_0 NO FORCE ROW LEVEL SECURITY",
        "posthouse.outbox_0 does not hold its owner",
        "posthouse db roles",
    ),
    "a lost policy": ("DROP POLICY tenant ON posthouse.held", "held has lost its policy 'tenant'", "db roles"),
    "another policy": (
        "CREATE POLICY peek ON posthouse.head FOR SELECT USING (true)",
        "the policy 'peek' of posthouse.head shows the application more",
        'DROP POLICY "peek" ON posthouse.head',
    ),
    "a policy that was changed": (
        "ALTER POLICY tenant ON posthouse.head USING (true)",
        "the policy 'tenant' of posthouse.head shows",
        "DROP POLICY",
    ),
    "a blind runtime": (
        "DROP POLICY runtime ON posthouse.outbox",
        "posthouse.outbox shows '{runtime}' nothing",
        "posthouse db roles",
    ),
    "a runtime without a right": (
        "REVOKE DELETE ON posthouse.outbox FROM {runtime}",
        "'{runtime}' lacks DELETE on outbox",
        "posthouse db roles",
    ),
    "a runtime that is a superuser": ("ALTER ROLE {runtime} SUPERUSER", "the runtime's role '{runtime}' is a", "NOSUPER"),
    "a runtime that bypasses": ("ALTER ROLE {runtime} BYPASSRLS", "the runtime's role '{runtime}' has BYPASS", "NOBYPASS"),
    "a view of a superuser": (
        "CREATE VIEW public.peek AS SELECT * FROM posthouse.head; GRANT SELECT ON public.peek TO {application}",
        "the view peek shows what its owner",
        'REVOKE ALL ON peek FROM "{application}"',
    ),
    "a stored view": (
        "CREATE MATERIALIZED VIEW public.peek AS SELECT * FROM posthouse.head; ALTER MATERIALIZED VIEW public.peek OWNER TO "
        "{owner}; GRANT SELECT ON public.peek TO {application}",
        "the view peek holds rows of all tenants",
        'REVOKE ALL ON peek FROM "{application}"',
    ),
    "a trap in the path": (
        "GRANT CREATE ON SCHEMA public TO {application}",
        "'{application}' may make functions in the schema 'public', where '{runtime}' looks",
        'ALTER ROLE "{runtime}" SET search_path',
    ),
}  # fmt: skip


@pytest.mark.parametrize("spoiled", SPOILED)
async def test_it_refuses(isolated: Ground, spoiled: str) -> None:
    statement, found, fix = (text.format(**vars(isolated)) for text in SPOILED[spoiled])
    isolated.execute(statement)
    words = await findings(store_of(isolated))
    assert found in words
    assert fix in words


async def test_every_finding_comes_at_once(isolated: Ground) -> None:
    isolated.execute(
        f"ALTER ROLE {isolated.application} BYPASSRLS",
        f"GRANT TRUNCATE ON posthouse.held TO {isolated.application}",
        "ALTER TABLE posthouse.head NO FORCE ROW LEVEL SECURITY",
    )
    words = await findings(store_of(isolated))
    assert [line[:2] for line in words.splitlines()] == ["- "] * 3


async def test_setting_the_roles_up_again_mends_what_it_says_it_mends(isolated: Ground) -> None:
    isolated.execute(
        f"GRANT TRUNCATE, DELETE ON ALL TABLES IN SCHEMA posthouse TO {isolated.application}",
        "GRANT SELECT ON posthouse.outbox TO PUBLIC",
        f"REVOKE INSERT ON posthouse.applied_count FROM {isolated.application}",
        f"REVOKE ALL ON posthouse.shard FROM {isolated.runtime}",
        "ALTER TABLE posthouse.head NO FORCE ROW LEVEL SECURITY",
        "ALTER TABLE posthouse.inbox DISABLE ROW LEVEL SECURITY",
        "DROP POLICY tenant ON posthouse.held",
        "DROP POLICY runtime ON posthouse.outbox",
        "ALTER POLICY tenant ON posthouse.key USING (true)",
    )
    await findings(store_of(isolated))
    isolated.execute("DROP POLICY tenant ON posthouse.key")
    async with opened(PostgresStore(isolated.owner_url)) as store:
        await store.set_roles(isolated.application, isolated.runtime)
    async with opened(store_of(isolated)) as store, store.begin(tenant="a") as tx:
        assert (await tx.execute("SELECT current_user")).scalar() == isolated.application


async def test_a_superuser_behind_another_role_is_found(isolated: Ground) -> None:
    """RESET ROLE would lead back to it."""
    url = f"{isolated.url}?options=-crole%3D{isolated.application}"
    words = await findings(store_of(isolated, url=url))
    assert "is a superuser" in words


async def test_tables_that_were_not_set_up_are_refused(ground: Ground) -> None:
    async with opened(PostgresStore(ground.owner_url)) as store:
        await store.upgrade()
    ground.execute(
        f"GRANT USAGE ON SCHEMA posthouse TO {ground.application}, {ground.runtime}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA posthouse TO {ground.application}, {ground.runtime}",
    )
    words = await findings(store_of(ground))
    assert "the policy 'everybody' of posthouse.outbox shows the application more" in words
    assert "posthouse.outbox does not hold its owner" in words


async def test_one_role_for_both_is_refused(isolated: Ground) -> None:
    words = await findings(store_of(isolated, runtime_url=isolated.application_url))
    assert "are both" in words
    assert "a role of its own" in words


async def test_two_databases_are_refused(isolated: Ground, postgres_server: PostgresServer) -> None:
    with postgres_server.database() as other:
        async with opened(PostgresStore(other)) as store:
            await store.upgrade()
        words = await findings(store_of(isolated, runtime_url=other))
    assert "different databases" in words


def test_isolation_without_a_runtime_is_refused(ground: Ground) -> None:
    with pytest.raises(ConfigurationError, match="belong together"):
        PostgresStore(ground.application_url, isolation=True)
    with pytest.raises(ConfigurationError, match="belong together"):
        PostgresStore(ground.application_url, runtime_url=ground.runtime_url)


async def test_a_url_may_ask_for_isolation(isolated: Ground) -> None:
    url = f"{isolated.application_url}?isolation=true&runtime_url={quote(isolated.runtime_url, safe='')}"
    store = open_store(url, clock=SystemClock())
    assert store.isolated
    assert await store.outbox.lease("me", 1)
    await store.aclose()


async def test_an_isolated_store_does_not_upgrade_itself(isolated: Ground) -> None:
    async with opened(store_of(isolated)) as store:
        assert await store.pending_migrations() == []
        with pytest.raises(ConfigurationError, match="URL of their owner"):
            await store.upgrade()


# A forged envelope.


class Paid(Payload):
    invoice: str


class Settled(Payload):
    invoice: str


async def test_whoever_says_that_it_is_another_tenant_reaches_the_rows_of_that_one_alone(isolated: Ground) -> None:
    """The handler forgets the tenant in its statements. What it does, and what it says, is of the tenant in the envelope."""
    isolated.execute(
        "CREATE TABLE invoice (tenant text, name text, paid boolean DEFAULT false, PRIMARY KEY (tenant, name))",
        "INSERT INTO invoice (tenant, name) VALUES ('a', 'i1'), ('a', 'i2'), ('b', 'i1')",
        "ALTER TABLE invoice ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY tenant ON invoice USING (tenant = NULLIF(current_setting('posthouse.tenant', true), ''))",
        f"GRANT SELECT, INSERT, UPDATE ON invoice TO {isolated.application}",
    )
    billing = Service("billing")
    billing.event("invoice.paid.v1", key="invoice")(Paid)
    billing.event("invoice.settled.v1", key="invoice")(Settled)
    seen: list[tuple[str, int]] = []

    @billing.on(Paid)
    async def pay(event: Event[Paid], tx: Tx) -> Settled:
        rows = await tx.execute("UPDATE invoice SET paid = true RETURNING name")
        seen.append((event.tenant, len(list(rows))))
        return Settled(invoice=event.data.invoice)

    clock = SystemClock()
    broker = MemoryBroker(clock=clock)
    rehost(billing, store=store_of(isolated), broker=broker, clock=clock)
    async with billing.running():
        frame = crafted(Paid(invoice="i1"), tenant="b", sequence=1, partition="a:i1")  # a producer of tenant a said it
        stranger = crafted(Paid(invoice="i2"), tenant="nobody", sequence=1)
        verdicts = await broker.publish([frame, stranger])
        assert all(verdict.accepted for verdict in verdicts)
        await eventually(lambda: said(broker, 2), "both answers")
    assert sorted(seen) == [("b", 1), ("nobody", 0)]
    assert isolated.execute("SELECT tenant, name FROM invoice WHERE paid") == [("b", "i1")]
    answers = [decode_any(one.frame.headers, one.frame.body) for one in broker.log.topics["billing.invoice"][2:]]
    assert sorted(answer.tenant for answer in answers) == ["b", "nobody"]


async def said(broker: MemoryBroker, count: int) -> bool:
    return len(broker.log.topics["billing.invoice"]) >= 2 + count


# Without isolation.


async def test_a_plain_owner_alone_runs_everything(ground: Ground) -> None:
    async with opened(PostgresStore(ground.owner_url)) as store:
        await store.upgrade()
        assert not store.isolated
        await through(store)


async def test_a_plain_role_with_rights_runs_everything(ground: Ground) -> None:
    async with opened(PostgresStore(ground.owner_url)) as store:
        await store.upgrade()
    ground.execute(
        f"GRANT USAGE ON SCHEMA posthouse TO {ground.application}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA posthouse TO {ground.application}",
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA posthouse TO {ground.application}",
    )
    async with opened(PostgresStore(ground.application_url)) as store:
        await through(store)


async def through(store: PostgresStore) -> None:
    """Rows of two tenants go in, are read and settled."""
    await add(store, row("k", tenant="a"), row("k", tenant="b"), row(None, tenant="b"))
    assert sorted(found.tenant for found in await drain(store)) == ["a", "b", "b"]
    assert (await store.counts()).committed == {"shop.orders": 3}


# `posthouse db roles`.


def test_the_statements_are_printed_and_give_no_right_that_looks_past_policies(ground: Ground) -> None:
    arguments = ["db", "roles", f"{ground.owner_url}?schema=events", "--application", "app", "--runtime", "run"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert 'GRANT INSERT ON events.outbox TO "app";' in done.output
    assert "SELECT events.isolate('run');" in done.output
    granted = [line for line in done.output.splitlines() if line.startswith("GRANT")]
    assert not [line for line in granted if "TRUNCATE" in line or "REFERENCES" in line or "TRIGGER" in line]


def test_the_statements_are_run_and_may_be_run_again(ground: Ground) -> None:
    assert CliRunner().invoke(app, ["db", "upgrade", ground.owner_url]).exit_code == 0
    arguments = ["db", "roles", ground.owner_url, "--application", ground.application, "--runtime", ground.runtime]
    for _ in range(2):
        done = CliRunner().invoke(app, [*arguments, "--apply"])
        assert done.exit_code == 0, done.output
        assert "sees one tenant at a time" in done.output
    forced = "SELECT bool_and(relforcerowsecurity) FROM pg_class WHERE oid IN (SELECT posthouse.tenant_tables())"
    assert ground.execute(forced) == [(True,)]


def test_sqlite_has_no_roles() -> None:
    done = CliRunner().invoke(app, ["db", "roles", "sqlite://", "--application", "a", "--runtime", "b"])
    assert done.exit_code != 0
    assert "not a PostgreSQL store" in done.output


async def test_names_are_names_whatever_they_hold(ground: Ground) -> None:
    wild = ['it\'s "quoted"; DROP SCHEMA posthouse; --', "back\\slash $$ {0} %s"]
    for name in wild:
        with psycopg.connect(ground.url) as connection:
            connection.execute(psycopg.sql.SQL("CREATE ROLE {}").format(psycopg.sql.Identifier(name)))
    try:
        async with opened(PostgresStore(ground.owner_url)) as store:
            await store.upgrade()
            await store.set_roles(*wild)
        found = ground.execute(
            "SELECT r.rolname FROM pg_policy p JOIN pg_roles r ON r.oid = ANY (p.polroles) WHERE p.polname = 'runtime' LIMIT 1"
        )
        assert found == [(wild[1],)]
    finally:
        with psycopg.connect(ground.url) as connection:
            for name in wild:
                identifier = psycopg.sql.Identifier(name)
                connection.execute(psycopg.sql.SQL("DROP OWNED BY {} CASCADE").format(identifier))
                connection.execute(psycopg.sql.SQL("DROP ROLE {}").format(identifier))


@pytest.mark.parametrize("name", ["", "x" * 64, "a\x00b"])
def test_names_that_cannot_be_roles_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="1 to 63 bytes"):
        roles_script("posthouse", name, "runtime")


def test_one_role_cannot_be_set_up_as_both() -> None:
    with pytest.raises(ConfigurationError, match="isolates nobody"):
        roles_script("posthouse", "same", "same")
