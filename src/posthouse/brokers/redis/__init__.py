"""Redis Streams as the broker: a stream per lane of a topic, native groups, and one owner of a lane at a time."""

from posthouse.brokers.redis.broker import RedisBroker

__all__ = ["RedisBroker"]
