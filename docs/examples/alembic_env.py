"""What an Alembic user adds: to env.py the store's tables, or the wish to leave them alone; and a revision that makes them."""

from __future__ import annotations

from collections.abc import Mapping

from alembic import op
from sqlalchemy import MetaData

from posthouse.stores.postgres import PostgresStore
from posthouse.stores.postgres.metadata import metadata as posthouse_tables

my_tables = MetaData()

# env.py, one way: our tables are compared too, and found equal.
target_metadata = [my_tables, posthouse_tables]


# env.py, the other way: autogenerate does not look at them.
def include_name(name: str | None, kind: str, parents: Mapping[str, str | None]) -> bool:
    return not (kind == "schema" and name == "posthouse")


# A revision that makes them, instead of `posthouse db upgrade`.
def upgrade() -> None:
    for step in PostgresStore("postgresql://").migrations():
        op.execute(step.sql)
