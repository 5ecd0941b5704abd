"""Exports: rights as each broker's own tools take them. Pure; the names are those of the adapters, proven on real servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.trust.rights.account import Account, Files
from posthouse.trust.rights.exports.kafka import kafka
from posthouse.trust.rights.exports.nats import nats
from posthouse.trust.rights.exports.pubsub import pubsub
from posthouse.trust.rights.exports.rabbitmq import rabbitmq
from posthouse.trust.rights.exports.redis import redis
from posthouse.trust.rights.exports.sqs import sqs

BROKERS: Mapping[str, Callable[[Sequence[Account]], Files]] = {
    "kafka": kafka,
    "nats": nats,
    "pubsub": pubsub,
    "rabbitmq": rabbitmq,
    "redis": redis,
    "sqs": sqs,
}


def rights_for(broker: str, accounts: Sequence[Account]) -> Files:
    """The files for one broker. Raises ConfigurationError."""
    if broker not in BROKERS:
        raise ConfigurationError(
            f"there are no rights to write for {broker!r}: {', '.join(BROKERS)}.{did_you_mean(broker, BROKERS)}"
        )
    return BROKERS[broker](accounts)
