"""Facts that a model made say so in their envelope, and one that does not is held."""

from __future__ import annotations

import msgspec
import pytest

from posthouse import Event, Payload, Service
from posthouse.broker import Frame
from posthouse.errors import ConfigurationError, ContractError
from posthouse.events import STRUCTURED, decode_any
from posthouse.testing import Harness
from tests.kit.waiting import eventually

desk = Service("ai_desk", namespace="shop")
reader = Service("reader", namespace="shop")
heard: list[Event[object]] = []


class Provenance(Payload):
    model: str
    confidence: float


@desk.event("fraud.suspected.v1", key="order_id", provenance="made_by")
class FraudSuspected(Payload):
    order_id: str
    made_by: Provenance | None


@reader.on(FraudSuspected)
async def look(event: Event[FraudSuspected]) -> None:
    heard.append(event)


def suspected(order: str = "o1") -> FraudSuspected:
    return FraudSuspected(order_id=order, made_by=Provenance(model="m7", confidence=0.9))


async def test_the_provenance_travels_in_the_envelope() -> None:
    heard.clear()
    async with Harness(desk, reader) as h:
        await h.publish(suspected())
        await h.settled()
    assert [event.metadata.ai_provenance for event in heard] == [{"model": "m7", "confidence": 0.9}]


async def test_a_fact_without_provenance_is_not_published() -> None:
    async with Harness(desk) as h:
        with pytest.raises(ContractError, match="'made_by' must say which model made it"):
            await h.publish(FraudSuspected(order_id="o1", made_by=None))


async def test_a_fact_whose_envelope_does_not_say_it_is_dead_and_its_key_waits() -> None:
    heard.clear()
    async with Harness(desk, reader) as h:
        await h.publish(suspected())
        await h.settled()
        (said,) = h.broker.log.topics["shop.ai_desk.fraud"]
        event = decode_any(said.frame.headers, said.frame.body)
        bare = msgspec.structs.replace(event.metadata, ai_provenance=None)
        other = msgspec.structs.replace(event, id="another", sequence=2, metadata=bare)
        wire = STRUCTURED.encode(other)
        await h.broker.publish(
            [Frame(topic=said.frame.topic, id=other.id, key=said.frame.key, headers=wire.headers, body=wire.body)]
        )
        await eventually(lambda: h.held(reader), within=10)
        (held,) = await h.held(reader)
        assert (held.state, "does not say which" in held.error) == ("dead", True)
    assert len(heard) == 1


def test_a_provenance_that_is_no_field_is_refused_with_a_suggestion() -> None:
    class Guess(Payload):
        order_id: str
        provenance: str

    with pytest.raises(ConfigurationError, match="Did you mean 'provenance'"):
        Service("ai").event("guess.made.v1", key="order_id", provenance="provenence")(Guess)
