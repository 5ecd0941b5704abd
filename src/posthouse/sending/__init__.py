"""The way out: from a transaction to the broker."""

from posthouse.sending.envelope_builder import EnvelopeBuilder, EventContext, context_of
from posthouse.sending.outbox import Outbox
from posthouse.sending.recording import record
from posthouse.sending.relay import Relay, RelaySettings
from posthouse.sending.sightings import VersionUsage
from posthouse.sending.transaction import TransactionScope, Tx

__all__ = [
    "EnvelopeBuilder",
    "EventContext",
    "Outbox",
    "Relay",
    "RelaySettings",
    "TransactionScope",
    "Tx",
    "VersionUsage",
    "context_of",
    "record",
]
