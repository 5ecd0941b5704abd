"""The store inside a PostgreSQL database."""

from posthouse.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
