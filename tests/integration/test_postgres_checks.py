"""What a PostgreSQL says about itself: at start-up, where it may refuse, and to `posthouse doctor`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest
from typer.testing import CliRunner

from posthouse import App, Service
from posthouse.brokers.postgres import PostgresBroker
from posthouse.checks import Check, refusals
from posthouse.cli import app
from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError, StoreUnavailable
from posthouse.local.postgres import sessions
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract.samples import row, stuck
from posthouse.testing.store_contract.steps import add, drain
from tests.kit.servers.postgres import PostgresServer
from tests.kit.servers.proxy import Proxy


async def checks_of(store: PostgresStore, *, today: bool = True) -> dict[str, Check]:
    return {check.name: check for check in await store.checks(today=today)}


def database_of(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


async def run(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


async def test_a_sound_store_may_start(store: PostgresStore) -> None:
    found = await store.checks()
    assert refusals(found) == []
    assert "none is open" in [check.found for check in found]
    names = [check.name for check in found]
    assert {"version", "server", "fsync", "full_page_writes", "synchronous_commit", "role", "pooler"} <= set(names)
    assert {"migrations", "outbox", "oldest transaction", "connections", "disk", "dead rows", "shards"} <= set(names)


async def test_a_session_that_ends_anywhere_in_the_checks_is_no_finding(store_url: str) -> None:
    """A process that starts waits for a database that is away, and ends on one that is wrong: these are two things."""
    said, cuts = 1, 0
    while True:
        async with Proxy("127.0.0.1", urlsplit(store_url).port or 0) as link:
            parts = urlsplit(store_url)
            store = PostgresStore(parts._replace(netloc=f"postgres@127.0.0.1:{link.port}").geturl())
            link.after(said, "cut")
            try:
                found = await store.checks(today=False)
            except StoreUnavailable:
                cuts += 1
            else:
                assert refusals(found) == []
                if link.said < said:
                    break
            finally:
                await store.aclose()
        said += 1
    assert cuts >= 8, "the wire was cut after each word, from the first to the last"


async def test_checks_need_no_tables(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    found = await checks_of(store)
    assert found["migrations"].judgement == "fail"
    assert "posthouse db upgrade" in found["migrations"].fix
    assert "shards" not in found
    await store.aclose()


async def test_the_transaction_that_holds_things_back_is_named(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "LONG", 0.05)
    with contextlib.closing(psycopg.connect(postgres_url, application_name="nightly report")) as connection:
        connection.execute("CREATE TABLE mine (n int)")
        connection.execute("SELECT 42 AS answer")
        await asyncio.sleep(0.06)  # the transaction's age is what is looked at
        found = (await checks_of(store))["oldest transaction"]
        pid = connection.info.backend_pid
        assert found.judgement == "warn"
        assert f"pid {pid} (postgres/nightly report/{database_of(postgres_url)})" in found.found
        assert "SELECT 42 AS answer" in found.found
        assert f"SELECT pg_terminate_backend({pid})" in found.fix
        await run(postgres_url, f"SELECT pg_terminate_backend({pid})")  # the fix mends it
        assert f"pid {pid} " not in (await checks_of(store))["oldest transaction"].found


async def test_a_prepared_transaction_that_was_forgotten_is_named(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "FORGOTTEN", 0.0)
    gid = f"two-phase {database_of(postgres_url)}"
    await run(postgres_url, "BEGIN", "CREATE TABLE mine (n int)", f"PREPARE TRANSACTION '{gid}'")
    try:
        found = [check for check in await store.checks() if check.name == "prepared transaction"]
        assert [check for check in found if f"ROLLBACK PREPARED '{gid}'" in check.fix]
    finally:
        await run(postgres_url, f"ROLLBACK PREPARED '{gid}'")


async def test_a_slot_that_nobody_reads_is_named(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MUCH_WAL", 0)
    slot = f"left_{database_of(postgres_url)}"[:63]
    await run(postgres_url, f"SELECT pg_create_physical_replication_slot('{slot}', true)")
    try:
        found = [check for check in await store.checks() if slot in check.found]
        assert [check.judgement for check in found] == ["warn"]
        assert f"pg_drop_replication_slot('{slot}')" in found[0].fix
    finally:
        await run(postgres_url, f"SELECT pg_drop_replication_slot('{slot}')")


async def test_shards_and_stuck_keys_are_counted(store: PostgresStore) -> None:
    assert (await checks_of(store))["shards"].found == "relays hold 0 of 16"
    shards = await store.outbox.lease("a", 30)
    await add(store, row("k"), row("k"), row("other"))
    poll = await store.outbox.poll(shards, 10)
    assert await store.outbox.settle("a", poll, [stuck(one) for one in poll.rows])
    found = await checks_of(store)
    assert (found["shards"].judgement, found["shards"].found) == ("ok", "relays hold 16 of 16")
    assert found["stuck keys"].found == "2 keys, 3 rows"


async def test_ids_that_are_not_drawn_one_by_one_are_found(store: PostgresStore, postgres_url: str) -> None:
    await run(postgres_url, "ALTER SEQUENCE posthouse.outbox_id_seq CACHE 50")
    found = (await checks_of(store, today=False))["outbox"]
    assert found.judgement == "fail"
    assert "CACHE is 50" in found.found


async def test_an_index_that_is_gone_is_found(store: PostgresStore, postgres_url: str) -> None:
    await run(postgres_url, "DROP INDEX posthouse.outbox_by_id")
    assert (await checks_of(store, today=False))["outbox"].judgement == "fail"


async def test_a_role_without_rights_says_what_it_cannot_see(store: PostgresStore, postgres_url: str) -> None:
    name = f"plain_{database_of(postgres_url)}"
    await run(
        postgres_url,
        f"CREATE ROLE {name} LOGIN",
        f"GRANT USAGE ON SCHEMA posthouse TO {name}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA posthouse TO {name}",
    )
    parts = urlsplit(postgres_url)
    plain = PostgresStore(parts._replace(netloc=f"{name}@{parts.hostname}:{parts.port}").geturl())
    try:
        async with store.begin():
            found = await checks_of(plain)
        assert found["role"].found == name
        assert "cannot be seen" in found["oldest transaction"].found
        assert "pg_read_all_stats" in found["oldest transaction"].fix
        await run(postgres_url, f"GRANT pg_read_all_stats TO {name}")  # the fix mends it
        assert "cannot be seen" not in (await checks_of(plain))["oldest transaction"].found
    finally:
        await plain.aclose()
        await run(postgres_url, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


async def test_a_server_that_takes_no_writes_is_refused(store: PostgresStore, postgres_url: str) -> None:
    await run(postgres_url, f"ALTER DATABASE {database_of(postgres_url)} SET default_transaction_read_only = on")
    wrong = PostgresStore(f"{postgres_url}?target_session_attrs=any")
    found = await checks_of(wrong, today=False)
    assert found["server"].judgement == "fail"
    await wrong.aclose()


# Poolers


async def test_a_pooler_that_the_url_does_not_name_is_refused(postgres_url: str, pgbouncer: PostgresServer) -> None:
    store = PostgresStore(postgres_url)
    await store.upgrade()
    await store.aclose()
    url = pgbouncer.url_of(database_of(postgres_url))
    declared = PostgresStore(url, pooler="transaction")
    found = await checks_of(declared)
    assert found["pooler"].judgement == "ok"
    assert "changes the server connection" in found["pooler"].found
    await declared.aclose()
    with pytest.raises(ConfigurationError, match="pooler=transaction"):
        async with App(Service("orders"), store=PostgresStore(url), broker="memory://?single_host=true").running():
            pass


async def test_the_broker_tells_of_its_pooler_too(postgres_url: str, pgbouncer: PostgresServer) -> None:
    url = pgbouncer.url_of(database_of(postgres_url))
    broker = PostgresBroker(url, clock=SystemClock(), pooled=True)
    found = {check.name: check for check in await broker.checks()}
    assert "changes the server connection" in found["pooler"].found
    assert found["connections"].judgement == "ok"
    await broker.aclose()


# Starting


async def careless(url: str, *settings: str) -> None:
    await run(url, *(f"ALTER DATABASE {database_of(url)} SET {setting}" for setting in settings))


async def test_a_service_does_not_start_where_commits_may_be_forgotten(postgres_url: str) -> None:
    await upgraded(postgres_url)
    await careless(postgres_url, "synchronous_commit = off")
    service = Service("orders")
    App(service, store=postgres_url, broker="memory://?single_host=true")
    with pytest.raises(ConfigurationError) as refusal:
        async with service.running():
            pass
    (problem,) = refusal.value.problems
    assert re.search("synchronous_commit: off; ALTER ROLE", problem)


async def test_a_forgetful_server_may_be_accepted_and_is_told_of(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await upgraded(postgres_url)
    await careless(postgres_url, "synchronous_commit = off")
    service = Service("orders")
    App(service, store=f"{postgres_url}?durable=false", broker="memory://?single_host=true")
    with caplog.at_level(logging.WARNING, "posthouse.service"):
        async with service.running():
            pass
    assert [r.getMessage() for r in caplog.records if "orders: synchronous_commit: off" in r.getMessage()]


# For people


def doctor(folder: Path, url: str, *options: str) -> tuple[int, str]:
    (folder / "shop_pg.py").write_text(
        f'from posthouse import App, Service\n\norders = Service("orders")\nApp(orders, store="{url}", broker="{url}")\n'
    )
    result = CliRunner().invoke(app, ["doctor", "shop_pg:orders", *options], catch_exceptions=False)
    return result.exit_code, result.stdout


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop_pg", raising=False)
    return tmp_path


def names(part: Sequence[dict[str, str]]) -> set[str]:
    return {check["name"] for check in part}


def test_doctor_prints_store_and_broker_with_the_promise(postgres_url: str, folder: Path) -> None:
    asyncio.run(upgraded(postgres_url))
    code, text = doctor(folder, postgres_url)
    assert code == 0, text
    assert "wake-up" in text
    assert "socket + listen" in text
    assert "survives a crash of the broker's machine: yes" in text


def test_doctor_fails_where_tables_are_missing_and_speaks_json(postgres_url: str, folder: Path) -> None:
    code, text = doctor(folder, postgres_url, "--json")
    assert code == 1
    report = json.loads(text)
    store, broker = report["examinations"]
    assert [check["name"] for check in store["checks"] if check["judgement"] == "fail"] == ["migrations"]
    assert "fsync" in names(broker["checks"])
    assert broker["sheet"]["durable_ack"] is True


def test_doctor_says_when_the_server_is_away(folder: Path) -> None:
    code, text = doctor(folder, "postgresql://postgres@127.0.0.1:1/nowhere")
    assert code == 1
    assert "opening" in text
    assert "is the server up" in text


async def upgraded(url: str) -> None:
    store = PostgresStore(url)
    await store.upgrade()
    assert await drain(store) == []
    await store.aclose()


async def test_the_runs_of_the_server_are_told(store: PostgresStore, postgres_url: str) -> None:
    assert "no relay" in (await checks_of(store))["runs of the server"].found
    await store.outbox.lease("a", 30)
    assert "the 1. that relays" in (await checks_of(store))["runs of the server"].found
    assert not (await store.counts()).notes
    await run(postgres_url, "DELETE FROM posthouse.incarnation")  # as the server does it when it recovers
    await store.outbox.lease("a", 30)
    assert "the 2. that relays" in (await checks_of(store))["runs of the server"].found
    (note,) = (await store.counts()).notes
    assert "began another run at" in note
    assert "the 1. time" in note


async def test_cursors_ahead_of_the_server_are_told_and_the_next_lease_puts_them_right(
    store: PostgresStore, postgres_url: str
) -> None:
    shards = await store.outbox.lease("a", 30)
    await add(store, *(row(f"k{number}", event_id=f"e{number}") for number in range(20)))
    await run(postgres_url, "UPDATE posthouse.shard SET s1 = '900000000:900000000:'")
    check = (await checks_of(store))["runs of the server"]
    assert (check.judgement, "ahead of the server" in check.found) == ("fail", True)
    assert any("ahead of the server" in note for note in (await store.counts()).notes)
    with pytest.raises(StoreUnavailable, match="next lease"):
        await store.outbox.poll(shards, 10)
    assert {one.event_id for one in await drain(store)} == {f"e{number}" for number in range(20)}
    assert (await checks_of(store))["runs of the server"].judgement == "ok"
