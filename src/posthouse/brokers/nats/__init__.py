"""NATS JetStream as the broker: a stream per topic, a subject per partition, and our own cursors."""

from posthouse.brokers.nats.broker import NatsBroker

__all__ = ["NatsBroker"]
