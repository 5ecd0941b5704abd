"""What the Pub/Sub adapter decides without a server."""

from __future__ import annotations

import pytest
from google.api_core import exceptions as google
from google.pubsub_v1.types import PubsubMessage

from posthouse.broker import Frame
from posthouse.brokers import open_broker
from posthouse.brokers.pubsub import PubSubBroker
from posthouse.brokers.pubsub.checks import endpoint_check
from posthouse.brokers.pubsub.client import mapped
from posthouse.brokers.pubsub.messages import frame_of, message_of, misfit
from posthouse.clock import SystemClock
from posthouse.errors import BrokerUnavailable, ConfigurationError


def frame(**parts: object) -> Frame:
    return Frame(**{"topic": "t", "id": "1", "body": b"x", **parts})  # type: ignore[arg-type]  # by the tests' own hands


@pytest.mark.parametrize("key", [None, "t1:o1", "t1:größe 50%", " blanks ", "k" * 1024, "ü" * 640 + "k"])
@pytest.mark.parametrize("length", [0, 1, 256, 257, 1023, 1024, 1025, 5000])
def test_a_frame_comes_back_as_it_was(key: str | None, length: int) -> None:
    sent = frame(key=key, headers={"ce-type": "a.b", "long": "ü" * length, "wide": "x" + "\N{SNOWMAN}" * length})
    message = message_of(sent)
    assert all(len(value.encode()) <= 1024 for value in message.attributes.values())
    assert len(message.ordering_key.encode()) <= 1024
    assert misfit(sent) == ""
    assert frame_of("t", message) == sent


@pytest.mark.parametrize("name", ["", "n" * 253, "google-thing", "posthouse-id", "posthouse-key", "a~1"])
def test_a_header_name_that_is_taken_or_impossible_is_a_misfit(name: str) -> None:
    assert repr(name[:40]) in misfit(frame(headers={name: "v"}))


def test_what_readers_route_by_is_spelt_as_they_expect_and_comes_back_as_it_was() -> None:
    headers = {"eventtype": "shop.thing.made", "eventversion": "2", "tenantid": "t1", "idempotencykey": "k" * 1500}
    sent = frame(id="e1", headers=headers)
    message = message_of(sent)
    assert message.attributes["eventId"] == "e1"
    assert message.attributes["eventVersion"] == "2"
    assert len(message.attributes["idempotencyKey"]) == 1024
    assert misfit(sent) == ""
    assert frame_of("t", message) == sent
    assert "attributes" in misfit(frame(headers={**{f"h{n}": "v" for n in range(95)}, **headers}))


def test_keys_ids_and_headers_beyond_the_limits_are_misfits() -> None:
    assert misfit(frame(key="k" * 1024, headers={f"h{n}": "v" for n in range(99)})) == ""
    assert "key" in misfit(frame(key=""))
    assert "id" in misfit(frame(id=""))
    assert "id" in misfit(frame(id="i" * 1025))
    assert "101 attributes" in misfit(frame(headers={f"h{n}": "v" for n in range(100)}))
    assert "attributes" in misfit(frame(headers={"h": "v" * 101 * 1024}))


def test_a_message_of_somebody_else_has_the_id_of_its_event() -> None:
    theirs = PubsubMessage.pb()(data=b"x", attributes={"ce-id": "theirs"}, message_id="7")
    assert frame_of("t", theirs).id == "theirs"


def test_foreign_errors_end_in_the_wire() -> None:
    for kind in (google.ServiceUnavailable, google.DeadlineExceeded, google.Cancelled, TimeoutError, OSError):
        with pytest.raises(BrokerUnavailable, match=f"Pub/Sub, asking: {kind.__name__}"), mapped("asking"):
            raise kind("gone")


@pytest.mark.parametrize(
    ("endpoint", "emulator", "judgement"),
    [
        (None, None, "warn"),
        ("pubsub.googleapis.com:443", None, "warn"),
        ("europe-west1-pubsub.googleapis.com", None, "ok"),
        ("pubsub.europe-west1.rep.googleapis.com:443", None, "ok"),
        (None, "127.0.0.1:8085", "warn"),
    ],
)
def test_order_needs_a_regional_endpoint(endpoint: str | None, emulator: str | None, judgement: str) -> None:
    assert endpoint_check(endpoint, emulator).judgement == judgement


def test_the_url_names_the_project_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)
    broker = open_broker("pubsub://shop?lease=30&retention=86400", clock=SystemClock())
    assert isinstance(broker, PubSubBroker)
    assert (broker.sheet.redelivery_s, broker.sheet.durable_ack) == (86_400.0, True)
    with pytest.raises(ConfigurationError) as raised:
        open_broker("pubsub://?leese=5&retention=1", clock=SystemClock())
    assert len(raised.value.problems) == 3
    assert "'lease'" in str(raised.value)


def test_an_emulator_of_the_environment_is_used_and_promises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")
    assert not open_broker("pubsub://shop", clock=SystemClock()).sheet.durable_ack
