"""The test kit that ships with the library: run a service in memory, move its clock, try decisions
out, and prove adapters.

The conformance suites need pytest: import them from `posthouse.testing.broker_contract` and
`posthouse.testing.store_contract`.
"""

from posthouse.testing.capturing import Later, Said, capture_outbox
from posthouse.testing.chaos import Chaos, ChaosBroker
from posthouse.testing.crashing import Crashes, assert_survives_crashes
from posthouse.testing.deciding import deciding
from posthouse.testing.harness import Harness, Unsettled
from posthouse.testing.hosting import rehost
from posthouse.testing.orders import Ending, Orders, OrdersBroken, Violation, assert_every_order, hears
from posthouse.testing.recording import Reads, recording
from posthouse.testing.sagas import SagaCase, given
from posthouse.testing.synchronous import SyncHarness

__all__ = [
    "Chaos",
    "ChaosBroker",
    "Crashes",
    "Ending",
    "Harness",
    "Later",
    "Orders",
    "OrdersBroken",
    "Reads",
    "SagaCase",
    "Said",
    "SyncHarness",
    "Unsettled",
    "Violation",
    "assert_every_order",
    "assert_survives_crashes",
    "capture_outbox",
    "deciding",
    "given",
    "hears",
    "recording",
    "rehost",
]
