"""Apache Kafka as the broker: a topic per topic, murmur2 of the key to a partition, and offsets committed after the ack."""

from posthouse.brokers.kafka.broker import KafkaBroker

__all__ = ["KafkaBroker"]
