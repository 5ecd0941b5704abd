"""The contract of a broker as tests. A new adapter is proven by a class of ten lines:

    class TestMyBroker(BrokerContract):
        async def make_broker(self) -> Broker:
            return MyBroker("my://localhost")

Needs pytest with pytest-asyncio. Each test makes topics and groups of its own, so one server serves all of them. What a
capability sheet denies is tested too: the adapter must then refuse, not pretend. Each module holds the tests of one
role of the broker; `fixtures` is what an adapter gives to them, `frames` compares what was sent with what came.
"""

from __future__ import annotations

from posthouse.testing.broker_contract.consuming import ConsumingContract
from posthouse.testing.broker_contract.links import LinkContract
from posthouse.testing.broker_contract.liveness import LivenessContract
from posthouse.testing.broker_contract.members import MemberContract
from posthouse.testing.broker_contract.outages import OutageContract
from posthouse.testing.broker_contract.publishing import PublishingContract
from posthouse.testing.broker_contract.seeking import SeekingContract
from posthouse.testing.broker_contract.surveying import SurveyingContract

__all__ = ["BrokerContract", "LocalBrokerContract"]


class LocalBrokerContract(
    PublishingContract, ConsumingContract, MemberContract, SeekingContract, SurveyingContract, LivenessContract
):
    """For a broker that has no server of its own: nothing that could be cut or killed but its processes."""


class BrokerContract(LocalBrokerContract, OutageContract, LinkContract):
    """Subclass it, give `make_broker`, and of the other hooks in `fixtures` those that the technology has. A test whose
    hook is missing is skipped, and says which."""
