"""Where sagas stand, read by SQL of the application: the view of each store, as docs/sagas.md promises it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from msgspec.structs import replace

from posthouse.clock import SystemClock
from posthouse.processes.saga.transition import OWN_DEADLINES
from posthouse.store import Store
from posthouse.store.sagas import Armed, Done, SagaRef, SagaRow, Waiting
from posthouse.stores import open_store
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract.sagas import added, saved
from tests.kit.servers.roles import Ground

SAGAS = Path(__file__).parents[2] / "docs" / "sagas.md"
COLUMNS = [
    "saga", "tenant", "id", "attempt", "newest", "status", "reason", "state", "done", "waiting", "tasks", "deadlines",
    "parent_saga", "parent_id", "parent_attempt", "started_at", "changed_at", "ended_at", "number",
]  # fmt: skip
"""A promise: pages of users are written on it. After a release one may be added at the end; none goes, or changes its meaning."""
TYPES = ["text"] * 3 + ["integer", "boolean"] + ["text"] * 2 + ["jsonb"] * 5 + ["text"] * 2 + ["integer"]
TYPES += ["double precision"] * 3 + ["bigint"]
JSON = ("state", "done", "waiting", "tasks", "deadlines")

CLAIM = SagaRow(saga="claim", tenant="t1", id="c1", state=b'{"cents":900,"name":"Zo\xc3\xab"}')


class Page(NamedTuple):
    """A store, and how its names begin."""

    store: Store
    prefix: str

    async def run(self, sql: str) -> list[tuple[Any, ...]]:
        async with self.store.begin() as tx:
            return [tuple(row) for row in await tx.execute(sql.replace("{}", self.prefix))]

    async def rows(self, where: str = "1 = 1") -> list[dict[str, Any]]:
        found = await self.run(f"SELECT {', '.join(COLUMNS)} FROM {{}}saga_view WHERE {where} ORDER BY number")
        rows = [dict(zip(COLUMNS, row, strict=True)) for row in found]
        return [
            {
                name: json.loads(value) if name in JSON and isinstance(value, str) else value
                for name, value in row.items()
            }
            for row in rows
        ]


@pytest.fixture(params=["sqlite", "postgres"])
async def page(request: pytest.FixtureRequest) -> AsyncIterator[Page]:
    is_postgres = request.param == "postgres"
    store = open_store(request.getfixturevalue("postgres_url") if is_postgres else "sqlite://", clock=SystemClock())
    await store.upgrade()
    yield Page(store, "posthouse." if is_postgres else "posthouse_")
    await store.aclose()


async def stand(store: Store, row: SagaRow) -> None:
    """A saga that took a turn, and stands so."""
    assert await added(store, replace(row, status="running"))
    assert await saved(store, replace(row, turn=1))


async def test_the_columns_are_those_that_were_promised(page: Page) -> None:
    if page.prefix == "posthouse_":
        found = await page.run("SELECT name FROM pragma_table_info('posthouse_saga_view')")
        assert [name for (name,) in found] == COLUMNS
        return
    found = await page.run("""
        SELECT a.attname::text, format_type(a.atttypid, NULL) FROM pg_attribute a
        WHERE a.attrelid = 'posthouse.saga_view'::regclass AND a.attnum > 0 ORDER BY a.attnum""")
    assert found == list(zip(COLUMNS, TYPES, strict=True))


def test_the_page_names_the_columns_in_order() -> None:
    _, _, section = SAGAS.read_text(encoding="utf-8").partition("## Show it on a page\n")
    named = re.findall(r"^\| (`.+?`) \|", section.partition("\n## ")[0], re.MULTILINE)
    assert re.findall(r"`(\w+)`", " ".join(named)) == COLUMNS


async def test_a_row_says_where_a_saga_stands(page: Page) -> None:
    deadlines = {name: Armed(f"e{name}", 7.0) for name in OWN_DEADLINES}
    row = replace(
        CLAIM,
        status="compensating",
        reason="withdrawn",
        parent=SagaRef("group", "g1", 2),
        done=(Done("filed", 1), Done("paid", 2, undoable=True), Done("paid", 3)),
        waiting=(
            Waiting(event_id="e2", type="b.v1", method="paid", since=1.5, until=9.5),
            Waiting(event_id="e1", type="a.v1", method="decided", since=2.0, until=9.0, key="k", woken=True),
        ),
        tasks={"decided": 12.5, "": 3.0},
        deadlines={"overdue": Armed("e9", 1e9 + 0.5), **deadlines},
    )
    await stand(page.store, row)
    [found] = await page.rows()
    times = [found.pop(name) for name in ("started_at", "changed_at")]
    assert 0 < times[0] <= times[1]
    assert found == {
        "saga": "claim",
        "tenant": "t1",
        "id": "c1",
        "attempt": 1,
        "newest": True,
        "status": "compensating",
        "reason": "withdrawn",
        "state": {"cents": 900, "name": "Zoë"},
        "done": ["filed", "paid", "paid"],
        "waiting": [
            {"type": "b.v1", "step": "paid", "since": 1.5, "until": 9.5},
            {"type": "a.v1", "step": "decided", "since": 2.0, "until": 9.0},
        ],
        "tasks": {"decided": 12.5, "": 3.0},
        "deadlines": {"overdue": 1e9 + 0.5},
        "parent_saga": "group",
        "parent_id": "g1",
        "parent_attempt": 2,
        "ended_at": None,
        "number": 1,
    }


async def test_of_one_that_has_nothing_lists_are_empty_and_not_null(page: Page) -> None:
    assert await added(page.store, CLAIM)
    [found] = await page.rows()
    assert [found[name] for name in JSON[1:]] == [[], [], {}, {}]
    assert found["parent_saga"] is None


async def test_the_newest_attempt_is_told_and_tombstones_are_left_out(page: Page) -> None:
    await stand(page.store, replace(CLAIM, status="cancelled"))
    await page.store.sagas.purge(-1.0, 10)
    await stand(page.store, replace(CLAIM, attempt=2, status="compensated"))
    await stand(page.store, replace(CLAIM, attempt=3))
    found = await page.rows()
    assert [(row["attempt"], row["newest"], row["status"]) for row in found] == [
        (2, False, "compensated"),
        (3, True, "running"),
    ]
    assert [row["ended_at"] is None for row in found] == [False, True]


async def test_a_page_joins_it_with_a_table_of_the_application(page: Page) -> None:
    await page.run("CREATE TABLE claim (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, customer TEXT NOT NULL)")
    await page.run("INSERT INTO claim VALUES ('c1', 't1', 'ann'), ('c2', 't1', 'ann'), ('c3', 't1', 'bob')")
    await stand(page.store, replace(CLAIM, status="cancelled"))
    await stand(page.store, replace(CLAIM, attempt=2, tasks={"decided": 1.0}))
    await stand(page.store, replace(CLAIM, tenant="t2", status="completed"))
    cents = "json_extract(v.state, '$.cents')" if page.prefix == "posthouse_" else "(v.state -> 'cents')::integer"
    assert await page.run(f"""
        SELECT c.id, v.status, v.attempt, {cents} FROM claim c
        LEFT JOIN {{}}saga_view v ON v.saga = 'claim' AND v.tenant = c.tenant AND v.id = c.id AND v.newest
        WHERE c.customer = 'ann' ORDER BY c.id""") == [("c1", "running", 2, 900), ("c2", None, None, None)]


async def test_fields_that_sagas_are_found_by_are_joined_by_number(page: Page) -> None:
    await stand(page.store, replace(CLAIM, index={"customer": "ann", "policy": "p1"}))
    await stand(page.store, replace(CLAIM, id="c2", index={"customer": "bob"}))
    assert await page.run("""
        SELECT v.id FROM {}saga_index i JOIN {}saga_view v ON v.tenant = i.tenant AND v.number = i.number
        WHERE i.field = 'customer' AND i.value = 'ann'""") == [("c1",)]


@pytest.mark.parametrize("text", ["a\\u0000b", "\\\\u0000", "\\\\\\u0000\\u0000", "\\\\\\\\u0000"])
async def test_one_saga_with_a_nul_does_not_spoil_the_page(page: Page, text: str) -> None:
    """jsonb takes none: the whole query would fail."""
    await stand(page.store, replace(CLAIM, state=f'{{"name":"{text}"}}'.encode(), note="\0"))
    [found] = await page.rows()
    expected = json.loads(f'"{text}"')
    assert found["state"]["name"] in (expected, expected.replace("\0", "\ufffd"))
    assert found["done"] == []


async def test_the_view_shows_what_the_transaction_has_written(page: Page) -> None:
    async with page.store.begin() as tx:
        await page.store.sagas.add(tx, CLAIM)
        found = await tx.execute(f"SELECT id, status FROM {page.prefix}saga_view")
        assert [tuple(row) for row in found] == [("c1", "running")]


PLANNED = {
    "SELECT v.status FROM posthouse.saga_view v WHERE v.saga = 'claim' AND v.tenant = 't1' AND v.id = 'c1' AND v.newest": "saga_(id|pkey)",
    "SELECT v.id FROM posthouse.saga_index i JOIN posthouse.saga_view v ON v.tenant = i.tenant AND v.number = i.number "
    "WHERE i.field = 'policy' AND i.value = 'p7'": "saga_by_number",
}


@pytest.mark.parametrize("query", PLANNED)
async def test_no_page_reads_the_whole_table(postgres_url: str, query: str) -> None:
    store = PostgresStore(postgres_url)
    await store.upgrade()
    await store.aclose()
    async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
        await connection.execute("""
            INSERT INTO posthouse.saga (tenant, saga, id, attempt, status, turn, reason, started_at, changed_at, progress, state)
            SELECT 't1', 'claim', 'c' || n, 1, 'running', 1, '', 0, 0, '{}', '{}' FROM generate_series(1, 20000) n;
            INSERT INTO posthouse.saga_index (tenant, number, field, value)
            SELECT tenant, number, 'policy', 'p' || number % 5000 FROM posthouse.saga;
            ANALYZE posthouse.saga; ANALYZE posthouse.saga_index""")
        plan = "\n".join([line async for (line,) in await connection.execute(f"EXPLAIN {query}".encode())])
        assert re.search(rf"\b{PLANNED[query]}\b", plan), plan
        assert "Seq Scan" not in plan, plan


@pytest.mark.parametrize("owner", ["a plain owner", "a superuser"])
async def test_under_isolation_a_tenant_sees_its_own(ground: Ground, owner: str) -> None:
    """A view shows what its owner sees; this one must not, whoever made it and on every version of PostgreSQL."""
    store = PostgresStore(ground.url if owner == "a superuser" else ground.owner_url)
    await store.upgrade()
    await stand(store, CLAIM)
    await stand(store, replace(CLAIM, tenant="t2"))
    await store.set_roles(ground.application, ground.runtime)
    await store.aclose()
    ground.execute(
        f"ALTER ROLE {ground.runtime} SET search_path = pg_catalog, pg_temp"
    )  # before 15 all may write in public
    isolated = PostgresStore(ground.application_url, isolation=True, runtime_url=ground.runtime_url)
    seen: dict[str | None, list[str]] = {}
    for tenant in ("t1", "t2", "t3", None):
        async with isolated.begin(tenant=tenant) as tx:
            found = await tx.execute("SELECT tenant FROM posthouse.saga_view ORDER BY tenant")
            seen[tenant] = [str(row[0]) for row in found]
    await isolated.aclose()
    assert seen == {"t1": ["t1"], "t2": ["t2"], "t3": [], None: ["t1", "t2"]}
    with psycopg.connect(ground.application_url) as connection:
        assert connection.execute("SELECT count(*) FROM posthouse.saga_view").fetchone() == (0,)
