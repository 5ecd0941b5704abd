"""The way out: from a transaction to the broker."""

from posthouse.sending.draft import Cause, Drafter, cause_of
from posthouse.sending.outbox import Outbox
from posthouse.sending.recording import record
from posthouse.sending.relay import Relay, RelaySettings
from posthouse.sending.sightings import Sightings
from posthouse.sending.transaction import Block, Tx

__all__ = ["Block", "Cause", "Drafter", "Outbox", "Relay", "RelaySettings", "Sightings", "Tx", "cause_of", "record"]
