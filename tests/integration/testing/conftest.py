"""The plugin as a user has it, on the server of this run."""

import asyncio

import asyncpg
import pytest

from posthouse.testing.plugin import (
    _posthouse_scratch,
    posthouse_database,
    posthouse_schema,
    posthouse_store,
    posthouse_url,
)
from tests.kit.servers.postgres import PostgresServer

__all__ = ["_posthouse_scratch", "posthouse_database", "posthouse_schema", "posthouse_store", "posthouse_url"]

TABLES = """
CREATE TABLE kind (name text PRIMARY KEY, rank int GENERATED ALWAYS AS IDENTITY, twice int GENERATED ALWAYS AS (2) STORED);
INSERT INTO kind (name) VALUES ('small'), ('large');
CREATE TABLE invoice (id serial PRIMARY KEY, order_id text, kind text REFERENCES kind DEFAULT 'small');
CREATE TABLE line (invoice int REFERENCES invoice ON DELETE RESTRICT, above int, number int PRIMARY KEY);
ALTER TABLE line ADD FOREIGN KEY (above) REFERENCES line;
"""


@pytest.fixture(scope="session")
def posthouse_server(postgres_server: PostgresServer) -> str:
    return postgres_server.url


@pytest.fixture(scope="session")
def posthouse_tables(posthouse_url: str) -> None:
    async def make() -> None:
        connection = await asyncpg.connect(posthouse_url)
        await connection.execute(TABLES)
        await connection.close()

    asyncio.run(make())
