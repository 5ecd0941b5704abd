"""Bindings: what topics, groups and keys are in each broker, as its adapter makes them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib import import_module

from posthouse.errors import ConfigurationError
from posthouse.governance.document import EventEntry

Bindings = dict[str, object]

KAFKA, AMQP, PUBSUB, SNS, SQS = "0.5.0", "0.3.0", "0.2.0", "0.1.0", "0.2.0"
"""Versions of the bindings."""


def of_channel(topic: str, protocols: Collection[str]) -> Bindings:
    """NATS has none. That of Pub/Sub must name a schema, and topics have none: their messages are envelopes."""
    made: Bindings = {}
    if _any(protocols, "kafka"):
        made["kafka"] = {"topic": topic, "bindingVersion": KAFKA}
    if _any(protocols, "amqp"):
        exchange = {"name": topic, "type": "topic", "durable": True, "autoDelete": False}
        made["amqp"] = {"is": "routingKey", "exchange": exchange, "bindingVersion": AMQP}
    if "sqs" in protocols:
        ordering = {"type": "FIFO", "contentBasedDeduplication": False}
        made["sns"] = {"name": _aws("topic_name")(topic), "ordering": ordering, "bindingVersion": SNS}
    return made


def of_receiving(group: str, topic: str, protocols: Collection[str]) -> Bindings:
    made: Bindings = {}
    if _any(protocols, "kafka"):
        made["kafka"] = {"groupId": {"type": "string", "enum": [group]}, "bindingVersion": KAFKA}
    if "sqs" in protocols:
        queue = {"name": _aws("queue_name")(group, topic), "fifoQueue": True}
        made["sqs"] = {"queues": [queue], "bindingVersion": SQS}
    return made


def of_message(entry: EventEntry, protocols: Collection[str]) -> Bindings:
    if entry.key is None:
        return {}
    made: Bindings = {}
    if _any(protocols, "kafka"):
        key = {"type": "string", "description": f"The tenant, a colon, and {entry.key}."}
        made["kafka"] = {"key": key, "bindingVersion": KAFKA}
    if "googlepubsub" in protocols:
        made["googlepubsub"] = {"orderingKey": f"tenant:{entry.key}", "bindingVersion": PUBSUB}
    return made


def _any(protocols: Collection[str], kind: str) -> bool:
    return any(protocol.startswith(kind) for protocol in protocols)


def _aws(name: str) -> Callable[..., str]:
    """The adapter's own names. It comes with its driver, which is optional."""
    try:
        found: Callable[..., str] = getattr(import_module("posthouse.brokers.sqs.messages"), name)
    except ImportError as error:
        raise ConfigurationError(
            f"the names of topics and queues on AWS need the adapter ({error}): pip install 'posthouse[sqs]'"
        ) from error
    return found
