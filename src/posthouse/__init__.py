"""Posthouse: the event backbone for Python services.

A committed event is never lost, and a rolled-back one is never seen. Each is delivered at least once; its effect in your
database is applied once per consumer and, per key, in commit order. What could not be applied is held in order, visible,
and one command away from being applied.
"""

from posthouse.broker import Broker
from posthouse.contracts import Payload
from posthouse.errors import PosthouseError, Reject, RetryLater, RetryNow
from posthouse.events import Actor, Event, Subject
from posthouse.receiving import Policy
from posthouse.sending import RelaySettings, SyncTx, Tx
from posthouse.service import Service
from posthouse.store import Store

__all__ = [
    "Actor",
    "Broker",
    "Event",
    "Payload",
    "Policy",
    "PosthouseError",
    "Reject",
    "RelaySettings",
    "RetryLater",
    "RetryNow",
    "Service",
    "Store",
    "Subject",
    "SyncTx",
    "Tx",
]
