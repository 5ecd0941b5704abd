"""Commands that only read make no table in a database that has none of ours, nor in one that has."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.unit.cli.conftest import SHOP, Project
from tests.unit.cli.test_reading import DECIDES, LOOKS, MORE, READS

CATALOGUE = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') ORDER BY 1, 2
"""
SCHEMAS = "SELECT nspname FROM pg_namespace ORDER BY 1"


def catalogue(url: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return [*connection.execute(CATALOGUE), *connection.execute(SCHEMAS)]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str) -> Iterator[Project]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("POSTHOUSE_STORE", f"{postgres_url}?durable=false")
    monkeypatch.setenv("POSTHOUSE_BROKER", postgres_url)
    made = Project(tmp_path)
    made.write("shop.py", SHOP + MORE)
    yield made
    made.forget()


def test_where_nothing_is_nothing_is_made(shop: Project, postgres_url: str) -> None:
    before = catalogue(postgres_url)
    for verb, arguments in {**LOOKS, **READS, **DECIDES}.items():
        result = shop.run(*verb.split(), *arguments)
        assert catalogue(postgres_url) == before, verb
        if verb not in READS:
            assert result.exit_code == 2, (verb, result.output)
            assert "has no tables of Posthouse in the schema 'posthouse'." in result.stderr, verb
            assert "`posthouse db upgrade " in result.stderr


def test_a_store_without_a_log_gets_none_by_looking(
    shop: Project, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shop.run("db", "upgrade", "shop").exit_code == 0
    before = catalogue(postgres_url)
    for verb, arguments in {**LOOKS, **READS}.items():
        shop.run(*verb.split(), *arguments)
        assert catalogue(postgres_url) == before, verb
    monkeypatch.setenv("POSTHOUSE_STORE", f"{postgres_url}?durable=false&schema=posthuse")
    refused = shop.run("status", "shop")
    assert refused.exit_code == 2
    assert "in the schema 'posthuse'. Did you mean 'posthouse'?" in refused.stderr


def test_a_database_that_is_not_there_is_named(
    shop: Project, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTHOUSE_STORE", f"{postgres_url.partition('?')[0]}_no")
    result = shop.run("status", "shop")
    assert result.exit_code in (2, 3)
    assert "does not exist" in result.stderr
