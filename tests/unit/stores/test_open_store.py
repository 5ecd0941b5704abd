import os
from pathlib import Path

import pytest

from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError
from posthouse.stores import open_store
from posthouse.stores.postgres import PostgresStore


async def test_a_relative_and_an_absolute_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url, file in (("sqlite:///a%20b.db", "a b.db"), (f"sqlite:///{tmp_path}/c.db", "c.db")):
        store = open_store(url, clock=SystemClock())
        await store.upgrade()
        await store.aclose()
        assert (tmp_path / file).exists()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
async def test_a_store_in_memory_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(url, clock=SystemClock())
    await store.upgrade()
    await store.aclose()
    assert os.listdir(tmp_path) == []


async def test_a_url_of_sqlalchemy_is_taken_as_it_is(tmp_path: Path) -> None:
    on_sqlite = open_store(f"sqlite+aiosqlite:///{tmp_path}/a.db", clock=SystemClock())
    await on_sqlite.upgrade()
    await on_sqlite.aclose()
    assert (tmp_path / "a.db").exists()
    on_postgres = open_store("postgresql+asyncpg://shop@db/shop?schema=facts", clock=SystemClock())
    assert isinstance(on_postgres, PostgresStore)
    assert on_postgres._database.url == "postgresql://shop@db/shop"
    await on_postgres.aclose()


async def test_options_reach_the_store(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/a.db?shards=3&synchronous=NORMAL", clock=SystemClock())
    await store.upgrade()
    assert len(await store.outbox.lease("a", 10)) == 3
    async with store.begin() as tx:
        assert (await tx.execute("PRAGMA synchronous")).scalar() == 1
    await store.aclose()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqllite:///a.db", "Did you mean 'sqlite'"),
        ("mongodb://localhost", "no store is in MongoDB"),
        ("postgresl://localhost/a", "Did you mean 'postgresql'"),
        ("postgresql://localhost/a?schemas=b", "Did you mean 'schema'"),
        ("postgresql://localhost/a?sslmod=require", "Did you mean 'sslmode'"),
        ("postgresql://localhost/a?schema=B", "schema"),
        ("postgres://localhost/a?pooler=yes", "pooler"),
        ("sqlite://a.db", "sqlite:///shop.db"),
        ("sqlite:///a.db?shard=3", "Did you mean 'shards'"),
        ("sqlite:///a.db?shards=100", "62"),
        ("sqlite:///a.db?synchronous=OFF", "synchronous"),
    ],
)
def test_a_url_that_cannot_work_says_why(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        open_store(url, clock=SystemClock())


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as told:
        open_store("sqlite://host/a.db?shard=3&shards=x", clock=SystemClock())
    assert len(told.value.problems) == 3
