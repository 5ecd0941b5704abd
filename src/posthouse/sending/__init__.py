"""The way out: from a transaction to the broker."""

from posthouse.sending.outbox import Outbox
from posthouse.sending.recording import record
from posthouse.sending.relay import Relay, RelaySettings
from posthouse.sending.synchronous import SyncTx
from posthouse.sending.transaction import TransactionScope, Tx

__all__ = ["Outbox", "Relay", "RelaySettings", "SyncTx", "TransactionScope", "Tx", "record"]
