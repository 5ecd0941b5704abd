"""Servers that tests may ask for by name; none is started before one does."""

from tests.servers.pgbouncer import pgbouncer
from tests.servers.postgres import postgres_server, postgres_url

__all__ = ["pgbouncer", "postgres_server", "postgres_url"]
