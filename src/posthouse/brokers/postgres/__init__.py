"""A durable log in one PostgreSQL database, shared by every service that can reach it."""

from posthouse.brokers.postgres.broker import PostgresBroker

__all__ = ["PostgresBroker"]
