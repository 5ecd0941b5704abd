import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from posthouse.broker import Broker
from posthouse.brokers.pubsub import PubSubBroker
from posthouse.clock import ManualClock, SystemClock
from posthouse.testing.broker_contract import BrokerContract, LocalBrokerContract
from posthouse.testing.broker_contract.fixtures import Link
from tests.conformance.broker_path import BrokerPathContract
from tests.conformance.losing import from_pubsub
from tests.kit.servers.proxy import Proxy
from tests.kit.servers.pubsub import PubSubServer


class TestPubSub(BrokerContract):
    tells_ages = False  # only Cloud Monitoring knows, minutes later
    knows_what_was_given_back = False

    @pytest_asyncio.fixture(autouse=True)
    async def _proxy(self, pubsub_server: PubSubServer) -> AsyncIterator[None]:
        self.address = pubsub_server.address
        async with Proxy("127.0.0.1", pubsub_server.port) as self.proxy:
            yield

    async def make_broker(self) -> Broker:
        return PubSubBroker("shop", emulator=self.address, clock=SystemClock(), lease=2)

    async def make_doomed(self) -> Broker:
        return PubSubBroker("shop", emulator=self.address, clock=ManualClock(time.time()), lease=1)  # it renews nothing

    async def make_linked(self) -> tuple[Broker, Link]:
        address = f"127.0.0.1:{self.proxy.port}"
        return PubSubBroker("shop", emulator=address, clock=SystemClock(), lease=2, timeout=1.0), self.proxy

    async def lose_frames(self, topic: str, group: str) -> int:
        return await from_pubsub(self.address, topic, group)


class TestPubSubPath(BrokerPathContract):
    knows_what_was_given_back = False
    can_count = False  # Pub/Sub tells its clients no backlog

    @pytest.fixture(autouse=True)
    def _server(self, pubsub_server: PubSubServer) -> None:
        self.address = pubsub_server.address

    async def make_broker(self) -> Broker:
        return PubSubBroker("shop", emulator=self.address, clock=SystemClock())

    async def lose_frames(self, topic: str, group: str) -> int:
        return await from_pubsub(self.address, topic, group)


ONE_OF_A_KEY = "pstest hands out one message of a key at a time; the service and our delivery do not"
BEYOND_PSTEST = {
    "test_graceful_close_no_orphan": ONE_OF_A_KEY,
    "test_crash_consumer_redelivers": ONE_OF_A_KEY,
    "test_hang_is_reclaimed_and_ack_after_reclaim_is_harmless": ONE_OF_A_KEY,
    "test_retention_does_not_drop_unacked": ONE_OF_A_KEY,
    "test_nack_keeps_key_order": ONE_OF_A_KEY,
    "test_acks_in_any_order_are_never_handed_out_again": ONE_OF_A_KEY,
    "test_slow_consumer_bounded_memory": ONE_OF_A_KEY,
    "test_progress_counts_what_is_stored_and_what_is_left": ONE_OF_A_KEY,
    "test_stress_10k": "pstest looks at all messages a hundred times a second: a thousand a second at most",
    "test_seek_from_offset": "pstest ends itself when a subscription is sought to the past",
    "test_going_back_with_one_group_leaves_the_others_where_they_are": "pstest ends itself when a subscription is sought to the past",
    "test_seek_from_time": "pstest ends itself when a subscription is sought to the past",
    "test_what_is_published_after_a_seek_is_no_repeat": "pstest ends itself when a subscription is sought to the past",
    "test_an_ack_from_before_a_seek_does_not_undo_it": "pstest ends itself when a subscription is sought to the past",
    "test_what_is_published_before_a_member_has_heard_of_a_seek_is_no_repeat": "pstest ends itself when a subscription is sought to the past",
}


class TestPubSubOnPstest(LocalBrokerContract):
    tells_ages = False
    knows_what_was_given_back = False
    """Google's fake as it is, for what it can do."""

    most_in_hand = 8

    @pytest.fixture(autouse=True)
    def _plain(self, plain_pubsub_server: PubSubServer) -> None:
        self.address = plain_pubsub_server.address

    async def make_broker(self) -> Broker:
        return PubSubBroker("shop", emulator=self.address, clock=SystemClock(), lease=2)


for beyond in BEYOND_PSTEST:
    setattr(TestPubSubOnPstest, beyond, None)
