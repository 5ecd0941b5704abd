"""RabbitMQ as the broker: an exchange per topic, quorum queues as the lanes of each group, one active member per lane."""

from posthouse.brokers.rabbitmq.broker import RabbitmqBroker

__all__ = ["RabbitmqBroker"]
