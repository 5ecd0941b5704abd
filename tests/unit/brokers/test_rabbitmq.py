"""What the RabbitMQ adapter decides without a server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from posthouse.broker import Frame
from posthouse.brokers import open_broker
from posthouse.brokers.rabbitmq import RabbitmqBroker, messages
from posthouse.brokers.rabbitmq.broker import as_made, version_check
from posthouse.brokers.rabbitmq.client import address_of
from posthouse.brokers.rabbitmq.drift import HIDDEN, argument_drift, missing, policy_drift, said
from posthouse.brokers.rabbitmq.management import Management
from posthouse.brokers.rabbitmq.members import Members, Notice
from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError
from posthouse.survey import partition_drift

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
names = st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True)


def carried(properties: Basic.Properties) -> Basic.Properties:
    """As the other side of the wire gets them."""
    data = ContentHeader(properties=properties).marshal()
    back = ContentHeader()
    back.unmarshal(data)
    return back.properties


@given(st.builds(Frame, topic=st.just("t"), id=texts.filter(bool), body=st.just(b"x"), key=st.none() | texts))
def test_id_and_key_come_back_as_they_were(frame: Frame) -> None:
    assert messages.frame_of("t", "tag", carried(messages.properties_of(frame, 5.0)), b"x") == frame


@given(st.dictionaries(names, texts, max_size=5))
def test_headers_come_back_as_they_were_or_are_refused(headers: dict[str, str]) -> None:
    frame = Frame(topic="t", id="1", body=b"x", headers=headers)
    if not messages.misfit(frame):
        assert messages.frame_of("t", "tag", carried(messages.properties_of(frame, 5.0)), b"x") == frame


def test_an_id_too_long_for_a_property_is_a_header() -> None:
    frame = Frame(topic="t", id="ü" * 200, body=b"")
    assert messages.frame_of("t", "tag", carried(messages.properties_of(frame, 5.0)), b"") == frame


def test_cloudevents_attributes_are_written_as_the_amqp_binding_has_them() -> None:
    headers = {"ce-subject": "50%25%20gr%C3%B6%C3%9Fer", "content-type": "application/json", "ph-topic": "t"}
    properties = messages.properties_of(Frame(topic="t", id="1", body=b"", headers=headers), 5.0)
    assert properties.headers is not None
    assert properties.headers["cloudEvents:subject"] == "50% größer"
    assert properties.headers["ph-topic"] == "t"
    assert (properties.content_type, properties.delivery_mode) == ("application/json", 2)


def test_a_message_of_anybody_has_the_events_id_then_its_own_then_its_place() -> None:
    plain = Basic.Properties(message_id="driver's", headers={"cloudEvents_id": "event's", "cloudEvents_time": 1500})
    frame = messages.frame_of("t", "tag", plain, b"")
    assert (frame.id, frame.headers["ce-time"]) == ("event's", "1970-01-01T00:00:01.500000Z")
    assert messages.frame_of("t", "tag", Basic.Properties(message_id="driver's"), b"").id == "driver's"
    assert messages.frame_of("t", "tag", Basic.Properties(), b"").id == "tag"


@pytest.mark.parametrize("lanes", [1, 2, 8, 64])
def test_every_key_has_one_lane_and_every_lane_some_keys(lanes: int) -> None:
    patterns = [messages.pattern_of(lane, lanes).removesuffix("#") for lane in range(lanes)]
    met = set()
    for n in range(2000):
        route = messages.route_of(Frame(topic="t", id="1", key=f"k{n}", body=b"")) + "."
        (lane,) = [lane for lane, pattern in enumerate(patterns) if route.startswith(pattern)]
        met.add(lane)
    assert met == set(range(lanes))


def circle(*names: str) -> list[Members]:
    """Everybody has heard of everybody."""
    members = [Members(name, ["t"], lease=3.0) for name in names]
    for member in members:
        for name in names:
            member.hear(Notice(name, ["t"]), 0.0)
    return members


def test_members_share_the_lanes_evenly_and_agree() -> None:
    members = circle("a", "b", "c")
    shares = [[lane for lane in range(8) if member.is_mine("t", lane)] for member in members]
    assert sorted(lane for share in shares for lane in share) == list(range(8))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_who_leaves_or_falls_silent_is_no_member() -> None:
    (first, _, _) = circle("a", "b", "c")
    before = first.changes
    assert first.hear(Notice("b", ["t"], leaving=True), 1.0)
    assert not first.hear(Notice("b", ["t"], leaving=True), 1.0)
    assert not first.hear(Notice("c", ["t"]), 2.0)
    assert not first.bury(5.0)
    assert first.bury(5.1)
    assert first.changes == before + 2
    assert all(first.is_mine("t", lane) for lane in range(8))


def test_a_member_of_other_topics_takes_no_lane_of_this_one() -> None:
    (first,) = circle("a")
    first.hear(Notice("b", ["other"]), 0.0)
    assert all(first.is_mine("t", lane) for lane in range(8))


def test_a_frame_too_large_for_the_server_is_refused_the_next_time() -> None:
    broker = RabbitmqBroker("amqp://h", clock=SystemClock())
    broker._publisher._learn("PRECONDITION_FAILED - message size 9000000 is larger than configured max size 6000000")
    assert broker._publisher.room == 6_000_000
    broker._publisher._learn("PRECONDITION_FAILED - something else, 5")
    assert broker._publisher.room == 6_000_000


@pytest.mark.parametrize(
    ("version", "judgement"), [("3.9.29", "fail"), ("3.10.8", "ok"), ("4.1.0", "ok"), ("", "fail")]
)
def test_old_servers_are_refused(version: str, judgement: str) -> None:
    assert version_check(version).judgement == judgement


def test_the_driver_gets_an_amqp_address() -> None:
    assert address_of("rabbitmq://u:w@h:1/v%2F?name=x", 7) == "amqp://u:w@h:1/v%2F?name=x&heartbeat=7"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("rabbitmq://", "names no server"),
        ("rabbitmq://h?partitions=6", "power of two"),
        ("rabbitmq://h?partitons=8", "Did you mean 'partitions'?"),
        ("rabbitmq://h?tls_ca=/no/such/file", "cannot be used"),
        ("rabbitmq://h?heartbeat=0", "does not fit"),
    ],
)
def test_a_url_that_cannot_work_says_what_would(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        open_broker(url, clock=SystemClock())
    assert says in str(raised.value)


def test_a_url_names_a_broker() -> None:
    assert isinstance(open_broker("rabbitmq://u:w@h/v?partitions=4&tls=true", clock=SystemClock()), RabbitmqBroker)
    with pytest.raises(ConfigurationError, match="partitions must be one of"):
        RabbitmqBroker("amqp://h", clock=SystemClock(), partitions=3)


@pytest.mark.parametrize(
    ("words", "setting", "found", "wanted"),
    [
        (
            "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received the value 'quorum' of"
            " type 'longstr' but current is none",
            *("x-queue-type", "none", "quorum"),
        ),
        (
            "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q' in vhost 'a: b': received none but current is"
            " the value '9' of type 'signedint'",
            *("x-max-length", "9", "none"),
        ),
        (
            "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'x' in vhost '/': received 'topic' but current is"
            " 'fanout'",
            *("type", "fanout", "topic"),
        ),
    ],
)
def test_the_servers_words_on_a_difference_are_understood(words: str, setting: str, found: str, wanted: str) -> None:
    drift = said(words)
    assert (drift.setting, drift.found, drift.wanted, drift.repairable) == (setting, found, wanted, False)


def test_words_that_say_something_else_are_told_as_they_are() -> None:
    drift = said("PRECONDITION_FAILED - something new")
    assert (drift.found, drift.repairable) == ("PRECONDITION_FAILED - something new", False)


def test_arguments_that_change_nothing_for_us_are_nobodys_business() -> None:
    wanted: dict[str, object] = {"x-queue-type": "quorum", "x-single-active-consumer": True}
    assert argument_drift({**wanted, "x-queue-leader-locator": "balanced"}, wanted) == []
    (drift,) = argument_drift({"x-queue-type": "quorum", "x-single-active-consumer": False}, wanted)
    assert (drift.setting, drift.found, drift.wanted) == ("x-single-active-consumer", "false", "true")
    (drift,) = argument_drift({**wanted, "x-dead-letter-exchange": "theirs"}, wanted)
    assert (drift.found, drift.wanted) == ("theirs", "none")


def test_of_a_policy_only_what_takes_frames_away_is_named() -> None:
    assert policy_drift(None, []) == []
    assert policy_drift("ha", {"queue-leader-locator": "balanced"}) == []
    (drift,) = policy_drift("short", {"message-ttl": 60, "queue-leader-locator": "balanced"})
    assert (drift.setting, drift.found) == ("policy message-ttl", "60")
    assert "'short'" in drift.fix


def test_what_is_missing_is_told_apart_from_what_is_wrong() -> None:
    """Without the queue for unread frames they are refused; without a lane they are lost to its group."""
    gone, lanes = missing("queue t.unread"), missing("lanes", "1", "2")
    assert as_made("topic t", [gone], lost="refused").judgement == "warn"
    assert as_made("lanes", [lanes], lost="lost").judgement == "fail"
    assert "topology apply" in as_made("lanes", [lanes], lost="lost").fix
    assert as_made("topic t", [HIDDEN], lost="refused").judgement == "warn"
    assert "configure" in as_made("lanes", [HIDDEN], lost="lost").fix
    wrong = as_made("topic t", [gone, said("something new")], lost="refused")
    assert (wrong.judgement, "make it anew" in wrong.fix) == ("fail", True)
    assert as_made("topic t", partition_drift(4, 8), lost="refused").judgement == "ok"


@pytest.mark.parametrize(
    ("management", "broker", "asks"),
    [
        ("http://h:15672", "amqp://me:w%40rd@h:5672/shop", ("http://h:15672/api/", "bWU6d0ByZA==", "shop")),
        ("http://you:word@h:15672/m/", "amqp://me:w@h:5672", ("http://h:15672/m/api/", "eW91OndvcmQ=", "/")),
        ("http://h:15672", "amqp://h/%2Fodd", ("http://h:15672/api/", "Z3Vlc3Q6Z3Vlc3Q=", "/odd")),
    ],
)
def test_the_management_api_is_asked_as_the_brokers_user_about_its_virtual_host(
    management: str, broker: str, asks: tuple[str, str, str]
) -> None:
    api = Management(management, broker, timeout=1.0)
    assert (api._base, api._word, api._vhost) == asks


def test_a_management_url_that_is_none_is_told() -> None:
    with pytest.raises(ConfigurationError, match="management"):
        open_broker("rabbitmq://host?management=host:15672", clock=SystemClock())
