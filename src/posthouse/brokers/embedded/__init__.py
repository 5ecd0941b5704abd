"""A durable log in one SQLite file, shared by the processes of one machine."""

from posthouse.brokers.embedded.broker import EmbeddedBroker

__all__ = ["EmbeddedBroker"]
