"""What Django's users have: a database by its name in DATABASES, and our tables by `migrate`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import connections
from django.db.migrations import Migration
from django.db.migrations.state import ProjectState
from django.db.utils import DatabaseError

from posthouse.brokers import open_broker
from posthouse.brokers.postgres import PostgresBroker
from posthouse.clock import SystemClock
from posthouse.django.operations import UpgradeStore
from posthouse.errors import ConfigurationError
from posthouse.local.django import database_of
from posthouse.stores import open_store
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract.samples import row
from posthouse.testing.store_contract.steps import add
from tests.integration.django_site import allowed_on_a_loop, django_on


@pytest.fixture
def default() -> Iterator[dict[str, Any]]:
    """What DATABASES says of the default one; put back afterwards."""
    settings: dict[str, Any] = connections.settings["default"]
    before = dict(settings)
    yield settings
    settings.clear()
    settings.update(before)


SERVER = {"NAME": "shop", "USER": "shop", "PASSWORD": "", "HOST": "db", "PORT": "5433", "OPTIONS": {}}


@pytest.mark.parametrize(
    ("given", "url", "means"),
    [
        ({}, "django://default", "postgresql://shop@db:5433/shop"),
        ({"PASSWORD": "a/b@c"}, "django://default", "postgresql://shop:a%2Fb%40c@db:5433/shop"),
        ({"HOST": "", "PORT": "", "USER": ""}, "django://default", "postgresql:///shop"),
        (
            {"HOST": "/run/pg"},
            "django://default?schema=facts",
            "postgresql://shop@/shop?host=%2Frun%2Fpg&port=5433&schema=facts",
        ),
        (
            {"OPTIONS": {"sslmode": "require", "pool": True}},
            "django://default",
            "postgresql://shop@db:5433/shop?sslmode=require",
        ),
    ],
)
def test_a_name_in_databases_is_a_url(default: dict[str, Any], given: dict[str, Any], url: str, means: str) -> None:
    default.update(SERVER | given)
    assert database_of(urlsplit(url)) == urlsplit(means)


async def test_store_and_broker_are_those_of_the_settings_when_they_are_opened(default: dict[str, Any]) -> None:
    default.update(SERVER)
    store, broker = (opening("django://default", clock=SystemClock()) for opening in (open_store, open_broker))
    assert isinstance(store, PostgresStore)
    assert isinstance(broker, PostgresBroker)
    await store.aclose()
    await broker.aclose()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("django://defualt", "DATABASES has no 'defualt'.*Did you mean 'default'"),
        ("django://elsewhere", "is on sqlite: only PostgreSQL"),
        ("django://default?shema=a", "Did you mean 'schema'"),
    ],
)
def test_a_name_that_cannot_be_used_says_why(default: dict[str, Any], url: str, says: str) -> None:
    default.update(SERVER)
    with pytest.raises(ConfigurationError, match=says):
        open_store(url, clock=SystemClock())


def test_without_settings_it_says_how_to_have_them(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "from posthouse import App, Service\napp = App(Service('shop'), store='django://default', broker='memory://')\n"
    )
    command = [sys.executable, "-m", "posthouse", "status", "app"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert "`manage.py posthouse …`" in " ".join(run.stderr.split())


def test_a_module_that_needs_django_says_how_to_run_it(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("from django.db.models import Model\nclass Order(Model): pass\n")
    command = [sys.executable, "-m", "posthouse", "run", "app"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert "run this as `python manage.py posthouse …`" in " ".join(run.stderr.split())


async def test_migrate_makes_the_tables_and_takes_them_back(postgres_url: str, default: dict[str, Any]) -> None:
    store = PostgresStore(postgres_url)
    operation = UpgradeStore()
    with allowed_on_a_loop(), django_on(postgres_url) as connection:
        for _ in range(2):  # also where `posthouse db upgrade` was before it
            apply(connection, operation)
            assert await store.pending_migrations(post=True) == []
        await add(store, row("k"))
        with pytest.raises(DatabaseError, match="has 1 events that were not sent"):
            apply(connection, operation, backwards=True)
        async with store.begin() as tx:
            await tx.execute("DELETE FROM posthouse.outbox")
        apply(connection, operation, backwards=True)
        assert await store.pending_migrations() != []
        apply(connections["elsewhere"], operation)  # SQLite: nothing to do
    await store.aclose()


def apply(connection: Any, operation: UpgradeStore, *, backwards: bool = False) -> None:
    class Step(Migration):
        operations = (operation,)

    migration = Step("0001_store", "posthouse")
    with connection.schema_editor() as editor:
        (migration.unapply if backwards else migration.apply)(ProjectState(), editor)
