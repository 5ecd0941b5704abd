"""The contract of the store where tenants are kept apart: as the runtime, which carries the events of all, and as the
application, which works for one."""

from collections.abc import Sequence

import pytest

from posthouse.clock import Clock
from posthouse.errors import ConfigurationError, StoreError
from posthouse.store import Store
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.postgres.handler_transaction import HandlerTransaction
from posthouse.stores.postgres.transaction import PostgresTransaction
from posthouse.testing.store_contract.held import HeldContract
from posthouse.testing.store_contract.inbox import InboxContract
from posthouse.testing.store_contract.outbox import OutboxContract
from posthouse.testing.store_contract.projections import ProjectionContract
from posthouse.testing.store_contract.shards import ShardContract
from posthouse.testing.store_contract.streams import HistoryContract, StreamContract
from posthouse.testing.store_contract.stuck import StuckContract
from posthouse.testing.store_contract.timers import TimerContract
from posthouse.testing.store_contract.transactions import TransactionContract
from tests.kit.servers.roles import Ground


class Isolated(PostgresStore):
    """Upgraded by the owner of its tables. `tenant`: whom its transactions work for; None is the runtime."""

    def __init__(self, ground: Ground, clock: Clock, tenant: str | None) -> None:
        super().__init__(ground.application_url, clock=clock, isolation=True, runtime_url=ground.runtime_url)
        self._ground = ground
        self._tenant = tenant

    async def upgrade(self, *, post: bool = False) -> Sequence[str]:
        owner = PostgresStore(self._ground.owner_url)
        applied = await owner.upgrade(post=post)
        await owner.set_roles(self._ground.application, self._ground.runtime)
        await owner.aclose()
        return applied

    def begin(
        self, shape: type | None = None, *, tenant: str | None = None, lazily: bool = False
    ) -> PostgresTransaction | HandlerTransaction:
        return super().begin(shape, tenant=tenant or self._tenant, lazily=lazily)


class TestPostgresAsTheRuntime(
    ShardContract, StuckContract, HeldContract, TimerContract, StreamContract, HistoryContract, ProjectionContract
):
    @pytest.fixture(autouse=True)
    def _database(self, ground: Ground) -> None:
        self.ground = ground

    async def make_store(self) -> Store:
        return Isolated(self.ground, self.clock, None)


class TestPostgresAsTheApplication(
    TransactionContract, OutboxContract, InboxContract, HeldContract, TimerContract, StreamContract
):
    """All of one tenant."""

    FOR_TWO = (
        "test_a_timer_with_the_same_name_replaces_the_first",
        "test_held_events_are_found_by_what_they_are",
        "test_heads_belong_to_consumer_topic_tenant_and_key",
        "test_an_event_without_a_number_is_claimed_once",
        "test_each_topic_tenant_and_key_has_numbers_of_its_own",
        "test_a_row_comes_back_as_it_was_given",
        "test_an_intent_belongs_to_its_tenant_and_topic",
        "test_what_was_sent_is_read_again_as_it_was_and_nothing_else",
        "test_what_was_sent_is_read_page_by_page_and_by_what_is_wanted",
    )
    """They write for another tenant too, which must be refused."""

    FOR_ALL = (
        "test_a_loss_is_accepted_by_who_has_seen_what_was_accepted_before",
        "test_what_never_came_is_counted_as_lost_until_it_comes_after_all",
    )
    """They write what is of no tenant, which only the runtime may."""

    @pytest.fixture(autouse=True)
    def _database(self, ground: Ground, request: pytest.FixtureRequest) -> None:
        self.ground = ground
        ground.execute(f"GRANT CREATE ON SCHEMA public TO {ground.application}")
        ground.execute(f"ALTER ROLE {ground.runtime} SET search_path = pg_catalog, pg_temp")
        if request.node.name in self.FOR_TWO:
            refused = pytest.mark.xfail(raises=ConfigurationError, strict=True, reason="writes for two tenants")
            request.node.add_marker(refused)
        if request.node.name in self.FOR_ALL:
            request.node.add_marker(pytest.mark.xfail(raises=StoreError, strict=True, reason="writes for all tenants"))

    async def make_store(self) -> Store:
        return Isolated(self.ground, self.clock, "t1")
