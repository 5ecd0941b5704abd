"""The way in: from the broker to an applied effect."""

from posthouse.receiving.consumer import Consumer
from posthouse.receiving.executor import Executor
from posthouse.receiving.handler import Calling, Handler, consumer_name, handler_of
from posthouse.receiving.held import HeldEvents
from posthouse.receiving.holding import dead_letter_topic
from posthouse.receiving.lifting import lifted
from posthouse.receiving.policy import Policy
from posthouse.receiving.retrier import Retrier
from posthouse.receiving.uses import Uses

__all__ = [
    "Calling",
    "Consumer",
    "Executor",
    "Handler",
    "HeldEvents",
    "Policy",
    "Retrier",
    "Uses",
    "consumer_name",
    "dead_letter_topic",
    "handler_of",
    "lifted",
]
