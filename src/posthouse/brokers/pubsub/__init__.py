"""Google Pub/Sub as the broker: one topic per topic, one ordered subscription per group and topic."""

from posthouse.brokers.pubsub.broker import PubSubBroker

__all__ = ["PubSubBroker"]
