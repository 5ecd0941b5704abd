"""The contract of a store as tests. A new adapter is proven by a class of ten lines:

    class TestMyStore(StoreContract):
        async def make_store(self) -> Store:
            return MyStore("my://localhost", clock=self.clock)

Needs pytest with pytest-asyncio. Each test wants a database of its own. Each module holds the tests of one role of the
store; `fixtures` is what an adapter gives to them, `samples` and `steps` are what they are written with.
"""

from __future__ import annotations

from posthouse.testing.store_contract.actions import ActionContract
from posthouse.testing.store_contract.archives import ArchiveContract
from posthouse.testing.store_contract.browsing import BrowsingContract
from posthouse.testing.store_contract.gauges import GaugeContract, ProcessGaugeContract
from posthouse.testing.store_contract.grants import GrantContract
from posthouse.testing.store_contract.held import HeldContract
from posthouse.testing.store_contract.inbox import InboxContract
from posthouse.testing.store_contract.jobs import JobContract
from posthouse.testing.store_contract.outbox import OutboxContract
from posthouse.testing.store_contract.projections import ProjectionContract
from posthouse.testing.store_contract.replays import ReplayContract
from posthouse.testing.store_contract.retention import RetentionContract
from posthouse.testing.store_contract.sagas import SagaContract
from posthouse.testing.store_contract.schedules import ScheduleContract
from posthouse.testing.store_contract.shards import ShardContract
from posthouse.testing.store_contract.streams import HistoryContract, StreamContract
from posthouse.testing.store_contract.stuck import StuckContract
from posthouse.testing.store_contract.tables import TableContract
from posthouse.testing.store_contract.tail import TailContract
from posthouse.testing.store_contract.timers import TimerContract
from posthouse.testing.store_contract.transactions import TransactionContract
from posthouse.testing.store_contract.version_usage import VersionUsageContract
from posthouse.testing.store_contract.workers import WorkerContract

__all__ = ["CoreStoreContract", "StoreContract"]


class CoreStoreContract(
    TableContract,
    TransactionContract,
    OutboxContract,
    ShardContract,
    StuckContract,
    TailContract,
    InboxContract,
    HeldContract,
    TimerContract,
    WorkerContract,
    ActionContract,
    JobContract,
    GrantContract,
    RetentionContract,
    VersionUsageContract,
    GaugeContract,
):
    """The core alone, for a store without tables for processes; used as `StoreContract`."""


class StoreContract(
    CoreStoreContract,
    BrowsingContract,
    SagaContract,
    ScheduleContract,
    StreamContract,
    HistoryContract,
    ProjectionContract,
    ArchiveContract,
    ReplayContract,
    ProcessGaugeContract,
):
    """Subclass it and give `make_store`; `later` too where the store's clock is not ours to move."""
