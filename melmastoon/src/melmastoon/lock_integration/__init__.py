"""lock-integration-service: who may open which door, and until when. No key outlives its stay.

Read `keys` for what a key is, `asking` for how a vendor that fails is dealt with, `opening` and `ending` for what bookings ask,
`again` for what is tried again by itself, `desk` for what people do, `devices` for which vendor a house has."""

from melmastoon.facts.lock_integration import lock_integration
from melmastoon.lock_integration import again, asking, desk, devices, ending, keys, opening, queue, tables

__all__ = ["again", "asking", "desk", "devices", "ending", "keys", "lock_integration", "opening", "queue", "tables"]
