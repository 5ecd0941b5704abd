"""The tables as SQLAlchemy and Alembic see them: what the migrations made, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, inspect, select, text

from posthouse.errors import ConfigurationError
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.postgres.metadata import metadata, metadata_of
from posthouse.testing.store_contract.samples import row
from posthouse.testing.store_contract.steps import add


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:
    engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    yield engine
    engine.dispose()


async def upgrade(url: str, schema: str) -> None:
    store = PostgresStore(url, schema=schema)
    await store.upgrade()
    await add(store, row("k"))
    await store.aclose()


def differences(engine: Engine, ours: MetaData, *others: MetaData, schema: str | None) -> Sequence[object]:
    """What Alembic would write into a revision."""

    def wanted(name: str | None, kind: str, parents: object) -> bool:
        return kind != "schema" or name in (schema, *((None,) if others else ()))

    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "include_schemas": True,
                "include_name": wanted,
                "compare_type": True,
                "compare_server_default": True,
                "target_metadata": [ours, *others],
            },
        )
        found: Sequence[object] = compare_metadata(context, [ours, *others] if others else ours)  # type: ignore[arg-type] # alembic takes a list
        return found


@pytest.mark.parametrize("schema", ["posthouse", "events"])
async def test_alembic_finds_nothing_to_do(postgres_url: str, engine: Engine, schema: str) -> None:
    await upgrade(postgres_url, schema)
    assert differences(engine, metadata_of(schema), schema=schema) == []


async def test_alembic_finds_what_was_changed_by_hand(postgres_url: str, engine: Engine) -> None:
    await upgrade(postgres_url, "posthouse")
    for change, kind in (
        ("ALTER TABLE posthouse.held ADD COLUMN note text", "remove_column"),
        ("DROP INDEX posthouse.held_next_at", "add_index"),
        ("ALTER TABLE posthouse.sent ALTER COLUMN count TYPE integer", "modify_type"),
        ("ALTER TABLE posthouse.shard ALTER COLUMN epoch SET DEFAULT 7", "modify_default"),
        ("CREATE TABLE posthouse.stranger (n int)", "remove_table"),
    ):
        with engine.begin() as connection:
            connection.execute(text(change))
        assert kind in str(differences(engine, metadata, schema="posthouse")), change


async def test_users_tables_and_ours_are_compared_together(postgres_url: str, engine: Engine) -> None:
    await upgrade(postgres_url, "posthouse")
    theirs = MetaData()
    Table("orders", theirs, Column("id", Integer, primary_key=True))
    found = differences(engine, metadata, theirs, schema="posthouse")
    assert [change[0] for change in found if isinstance(change, tuple)] == ["add_table"]
    theirs.create_all(engine)
    assert differences(engine, metadata, theirs, schema="posthouse") == []


async def test_every_table_of_the_schema_is_there_with_its_columns_in_order(postgres_url: str, engine: Engine) -> None:
    await upgrade(postgres_url, "posthouse")
    found = inspect(engine)
    names = set(found.get_table_names(schema="posthouse"))
    assert {table.name for table in metadata.tables.values()} == names
    for table in metadata.tables.values():
        columns = [column["name"] for column in found.get_columns(table.name, schema="posthouse")]
        assert sorted(columns) == sorted(table.columns.keys()), table.name
        key = found.get_pk_constraint(table.name, schema="posthouse")["constrained_columns"]
        assert [column.name for column in table.primary_key] == key, table.name


async def test_the_tables_can_be_queried(postgres_url: str, engine: Engine) -> None:
    await upgrade(postgres_url, "events")
    outbox = metadata_of("events").tables["events.outbox"]
    with engine.connect() as connection:
        found = connection.execute(select(outbox.c.key, outbox.c.sequence)).all()
    assert [tuple(one) for one in found] == [("k", 1)]


def test_create_all_is_refused(engine: Engine) -> None:
    with pytest.raises(ConfigurationError, match="posthouse db upgrade"):
        metadata.create_all(engine)
