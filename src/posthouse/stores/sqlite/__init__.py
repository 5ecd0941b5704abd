"""The store inside a SQLite file."""

from posthouse.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
