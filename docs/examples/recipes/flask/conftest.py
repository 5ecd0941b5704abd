"""Tests on PostgreSQL: POSTHOUSE_TEST_SERVER names a server, where the session makes a database of its own and drops it."""

import os
from collections.abc import Iterator
from types import ModuleType

import pytest
from flask.testing import FlaskClient

pytest_plugins = ["posthouse.testing.plugin"]


@pytest.fixture(scope="session")
def posthouse_tables(posthouse_url: str) -> None:
    os.environ["DATABASE_URL"] = posthouse_url  # before the application is imported
    from app import Base, engine

    Base.metadata.create_all(engine)


@pytest.fixture
def app(posthouse_store: str) -> Iterator[ModuleType]:
    import app

    app.app.testing = True
    yield app
    app.engine.dispose()


@pytest.fixture
def client(app: ModuleType) -> FlaskClient:
    return app.app.test_client()
