"""What the SQS adapter decides without a server."""

from __future__ import annotations

import json
import re

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from hypothesis import example, given
from hypothesis import strategies as st

from posthouse.broker import Frame
from posthouse.brokers import open_broker
from posthouse.brokers.sqs import SqsBroker
from posthouse.brokers.sqs.checks import queue_checks, subscription_checks, topic_checks
from posthouse.brokers.sqs.client import Missing, Refused, mapped
from posthouse.brokers.sqs.drift import queue_drift, repaired, subscription_drift, topic_drift, with_ours
from posthouse.brokers.sqs.messages import (
    Message,
    Value,
    frame_of,
    is_topic,
    letter_of,
    queue_name,
    tagged,
    token,
    topic_name,
    untagged,
)
from posthouse.brokers.sqs.topics import Queue, policy
from posthouse.clock import SystemClock
from posthouse.errors import BrokerError, BrokerUnavailable, ConfigurationError, SeekUnsupported

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def arrived(frame: Frame) -> Message:
    """The letter of a frame as SQS would give it back."""
    entry = letter_of(frame).entry
    attributes = entry["MessageAttributes"]
    assert isinstance(attributes, dict)
    values = {name: Value(value["StringValue"]) for name, value in attributes.items()}
    return Message("receipt", str(entry["Message"]), {"MessageGroupId": "g"}, values)


# Letters


@given(id_=TEXT, key=st.none() | TEXT, body=st.binary(), headers=st.dictionaries(TEXT, TEXT))
def test_a_frame_comes_back_as_it_was(id_: str, key: str | None, body: bytes, headers: dict[str, str]) -> None:
    frame = Frame(topic="t", id=id_, key=key, body=body, headers=headers)
    assert frame_of("t", arrived(frame)) == frame


@given(body=st.binary(), header=TEXT)
def test_what_is_sent_is_text_that_xml_can_hold_and_never_empty(body: bytes, header: str) -> None:
    message = arrived(Frame(topic="t", id="1", body=body, headers={"h": header}))
    for text in (message.body, message.attributes["posthouse"].string or ""):
        assert text
        assert all(
            char in "\t\n" or " " <= char <= "\ud7ff" or "\ue000" <= char <= "\ufffd" or char >= "\U00010000"
            for char in text
        )


def test_json_travels_as_it_is_and_bytes_as_base64() -> None:
    assert letter_of(Frame(topic="t", id="1", body=b'{"a":"\xc3\xbc"}')).entry["Message"] == '{"a":"ü"}'
    assert letter_of(Frame(topic="t", id="1", body=b"\xff\x00")).entry["Message"] == "/wA="
    assert letter_of(Frame(topic="t", id="1", body=b"a\r\nb")).entry["Message"] == "YQ0KYg=="


def test_the_size_of_a_letter_counts_bytes_and_the_attribute() -> None:
    small, large = (letter_of(Frame(topic="t", id="1", body="ü".encode() * n)) for n in (1, 101))
    assert large.size - small.size == 200
    noted = letter_of(Frame(topic="t", id="1", body="ü".encode(), headers={"h": "x" * 100}))
    assert noted.size - small.size > 100


def test_a_key_is_its_message_group_and_a_frame_without_one_is_alone() -> None:
    assert letter_of(Frame(topic="t", id="1", key="t1:o1", body=b"x")).entry["MessageGroupId"] == "t1:o1"
    assert letter_of(Frame(topic="t", id="1", body=b"x")).entry["MessageGroupId"] == "1"


def test_tokens_that_sqs_would_refuse_are_hashed_and_stay_different() -> None:
    assert token("t1:o-1_[x]") == "t1:o-1_[x]"
    hashed = {token(text) for text in ("größe", "a b", "", "x" * 129, "x" * 130)}
    assert len(hashed) == 5
    assert all(text.startswith("sha256:") and len(text) == 71 for text in hashed)
    assert token("x" * 128) == "x" * 128


def test_a_message_of_somebody_else_has_their_attributes_as_headers() -> None:
    system = {"MessageGroupId": "their group", "MessageDeduplicationId": "their id"}
    theirs = Message("r", "{}", system, {"Content-Type": Value("application/json"), "Blob": Value(None)})
    headers = {"content-type": "application/json", "blob": ""}
    assert frame_of("t", theirs) == Frame(topic="t", id="their id", key="their group", body=b"{}", headers=headers)
    named = Message("r", "{}", system, {"ce-id": Value("e1")})
    assert frame_of("t", named).id == "e1"


@pytest.mark.parametrize("note", ["no json", '{"id":5}', ""])
def test_an_attribute_of_our_name_that_is_not_ours_is_a_header(note: str) -> None:
    message = Message("r", "x", {"MessageGroupId": "g", "MessageDeduplicationId": "d"}, {"posthouse": Value(note)})
    assert frame_of("t", message).headers == {"posthouse": note}


def test_a_body_that_only_says_it_is_base64_is_handed_on() -> None:
    message = Message("r", "no base64!", {}, {"posthouse": Value('{"id":"1","body":"base64"}')})
    assert frame_of("t", message).body == b"no base64!"


# Names


def test_topics_are_named_with_hyphens_for_dots() -> None:
    assert topic_name("shop.orders.order_line") == "shop-orders-order_line.fifo"
    assert queue_name("billing", "shop.orders.order") == "billing__shop-orders-order.fifo"


def test_no_two_topics_or_queues_share_a_name() -> None:
    assert len({topic_name(name) for name in ("a.b", "a-b", "a_b")}) == 3
    pairs = [
        ("a", "b.c"),
        ("a", "b-c"),
        ("a.b", "c"),
        ("a-b", "c"),
        ("a__b", "c"),
        ("a", "b__c"),
        ("a_", "b"),
        ("a", "_b"),
        ("é", "c"),
        ("e", "c"),
    ]
    assert len({queue_name(*pair) for pair in pairs}) == len(pairs)
    assert len({queue_name("g" * 100 + end, "t") for end in "ab"}) == 2


@given(group=TEXT, topic=st.from_regex(r"[a-z_]{1,60}(\.[a-z_-]{1,60}){0,2}", fullmatch=True))
def test_names_of_queues_are_what_sqs_takes(group: str, topic: str) -> None:
    name = queue_name(group, topic)
    assert len(name) <= 80
    assert name.endswith(".fifo")
    assert all(char.isascii() and (char.isalnum() or char in "-_") for char in name.removesuffix(".fifo"))


def test_a_topic_is_words_between_dots() -> None:
    assert is_topic("shop.orders.order_line.dlq")
    assert not any(map(is_topic, ("", "a b", "a..b", ".a", "größe", "a/b", "x" * 201)))


# Checks

QUEUE = Queue("billing", "shop.orders.order", "http://queue")
GOOD = {
    "FifoQueue": "true",
    "VisibilityTimeout": "30",
    "MessageRetentionPeriod": "1209600",
    "MaximumMessageSize": "262144",
    "DeduplicationScope": "messageGroup",
    "FifoThroughputLimit": "perMessageGroupId",
}


def test_a_queue_as_we_make_it_is_as_it_should_be() -> None:
    assert {check.judgement for check in queue_checks(QUEUE, GOOD, 30)} == {"ok"}


@pytest.mark.parametrize(
    ("setting", "value", "judgement", "says"),
    [
        ("FifoQueue", "false", "fail", "keeps no order"),
        ("RedrivePolicy", '{"maxReceiveCount":3}', "fail", "Posthouse counts"),
        ("MaximumMessageSize", "1024", "fail", "would lose"),
        ("VisibilityTimeout", "29", "warn", "VisibilityTimeout to 30"),
        ("MessageRetentionPeriod", "3600", "warn", "is lost to it"),
        ("DeduplicationScope", "queue", "warn", "300 calls a second"),
        ("FifoThroughputLimit", "perQueue", "warn", "300 calls a second"),
        ("DelaySeconds", "5", "warn", "late by that"),
    ],
)
def test_a_setting_that_endangers_the_promise_is_found(setting: str, value: str, judgement: str, says: str) -> None:
    (found,) = [check for check in queue_checks(QUEUE, {**GOOD, setting: value}, 30) if check.judgement != "ok"]
    assert found.judgement == judgement
    assert says in found.fix


def test_a_subscription_must_be_there_raw_unfiltered_and_allowed() -> None:
    allowed, raw = policy("arn:queue", "arn:topic"), {"RawMessageDelivery": "true"}
    assert {check.judgement for check in subscription_checks(QUEUE, raw, allowed, "arn:topic")} == {"ok"}
    assert [check.judgement for check in subscription_checks(QUEUE, {}, allowed, "arn:topic")] == ["fail"]
    bad = {"RawMessageDelivery": "false", "FilterPolicy": '{"a":["b"]}'}
    assert [check.judgement for check in subscription_checks(QUEUE, bad, allowed, "arn:other")] == [
        "fail",
        "warn",
        "warn",
    ]


def test_a_standard_topic_is_no_topic_for_us() -> None:
    assert [check.judgement for check in topic_checks("t", {"FifoTopic": "true"})] == ["ok"]
    assert [check.judgement for check in topic_checks("t", {})] == ["fail"]


def test_the_policy_lets_one_topic_send() -> None:
    (statement,) = json.loads(policy("arn:queue", "arn:topic"))["Statement"]
    assert statement["Principal"] == {"Service": "sns.amazonaws.com"}
    assert (statement["Action"], statement["Resource"]) == ("sqs:SendMessage", "arn:queue")
    assert statement["Condition"] == {"ArnEquals": {"aws:SourceArn": "arn:topic"}}


# Errors and URLs


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("NotFound", 404, Missing),
        ("AWS.SimpleQueueService.NonExistentQueue", 400, Missing),
        ("AuthorizationError", 403, Refused),
        ("InvalidParameter", 400, Refused),
        ("Throttling", 400, BrokerUnavailable),
        ("RequestThrottled", 403, BrokerUnavailable),
        ("InternalError", 500, BrokerUnavailable),
    ],
)
def test_answers_of_aws_are_told_apart(code: str, status: int, kind: type[BrokerUnavailable]) -> None:
    answer = {"Error": {"Code": code, "Message": "words"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    with pytest.raises(BrokerUnavailable, match="words") as caught, mapped("publish"):
        raise ClientError(answer, "Publish")
    assert type(caught.value) is kind


def test_no_answer_is_unavailable() -> None:
    for error in (EndpointConnectionError(endpoint_url="http://x"), TimeoutError(), ConnectionResetError()):
        with pytest.raises(BrokerUnavailable) as caught, mapped("publish"):
            raise error
        assert type(caught.value) is BrokerUnavailable


async def test_there_is_no_way_back_and_the_error_names_the_archive() -> None:
    broker = open_broker("sqs://eu-central-1", clock=SystemClock())
    with pytest.raises(SeekUnsupported, match="archive"):
        await broker.seek("g", "t", time=0.0)
    with pytest.raises(BrokerError, match="either"):
        await broker.seek("g", "t", time=0.0, position=1)
    await broker.aclose()


async def test_a_url_names_region_account_endpoint_and_keys() -> None:
    url = "sqs://key%2F1:secret@cn-north-1?account=123456789012&endpoint=http://127.0.0.1:1&visibility=60&poll=20"
    broker = open_broker(url, clock=SystemClock())
    assert isinstance(broker, SqsBroker)
    assert await broker._topics.arn("a.b") == "arn:aws-cn:sns:cn-north-1:123456789012:a-b.fifo"
    assert broker._client._options["aws_access_key_id"] == "key/1"
    assert broker._client._options["endpoint_url"] == "http://127.0.0.1:1"
    assert (broker._visibility, broker._poll) == (60, 20)


async def test_a_poll_is_never_longer_than_a_third_of_the_visibility() -> None:
    broker = open_broker("sqs://eu-central-1?visibility=9&poll=20", clock=SystemClock())
    assert isinstance(broker, SqsBroker)
    assert broker._poll == 3


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqs://", "names no region"),
        ("sqs://eu-central-1?visibilty=5", "Did you mean 'visibility'?"),
        ("sqs://eu-central-1?visibility=1", "does not fit"),
        ("sqs://eu-central-1?account=12", "does not fit"),
    ],
)
def test_a_url_that_cannot_work_says_what_would(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_broker(url, clock=SystemClock())
    assert says in str(caught.value)


# Topology


@given(group=TEXT)
@example(group="mail ~ more=% & Ü")
def test_a_groups_name_comes_back_from_its_tag(group: str) -> None:
    value = tagged(group)
    assert re.fullmatch(r"[A-Za-z0-9 _.:/=+@-]{0,256}", value)
    assert untagged(value) == (group if value else "")


def test_a_name_too_long_for_a_tag_is_none() -> None:
    assert tagged("g" * 256) == "g" * 256
    assert tagged("g" * 257) == ""


WANTED = {
    "FifoQueue": "true",
    "VisibilityTimeout": "30",
    "MessageRetentionPeriod": "1209600",
    "Policy": policy("queue-arn", "topic-arn"),
}


def test_a_queue_as_we_make_it_does_not_drift() -> None:
    assert queue_drift({**WANTED, "MaximumMessageSize": "1048576", "DelaySeconds": "0"}, WANTED, "topic-arn") == []
    assert repaired(WANTED, WANTED, "topic-arn") == {}


@pytest.mark.parametrize(
    ("setting", "found", "to_set"),
    [
        ("VisibilityTimeout", "1", "30"),
        ("MessageRetentionPeriod", "60", "1209600"),
        ("RedrivePolicy", "{…}", ""),
        ("DelaySeconds", "5", "0"),
        ("MaximumMessageSize", "1024", "262144"),
    ],
)
def test_a_setting_that_weakens_the_promise_is_mended_alone(setting: str, found: str, to_set: str) -> None:
    there = {**WANTED, setting: found}
    (drift,) = queue_drift(there, WANTED, "topic-arn")
    assert (drift.setting, drift.found, drift.repairable) == (setting, found, True)
    assert repaired(there, WANTED, "topic-arn") == {setting: to_set}


def test_what_is_not_fifo_stays_so_for_life() -> None:
    (queue,) = queue_drift({**WANTED, "FifoQueue": "false"}, WANTED, "topic-arn")
    (topic,) = topic_drift({"FifoTopic": "false"}, {"FifoTopic": "true", "FifoThroughputScope": "MessageGroup"})
    assert (queue.repairable, topic.repairable) == (False, False)
    assert "make it anew" in topic.fix
    assert repaired({**WANTED, "FifoQueue": "false"}, WANTED, "topic-arn") == {}


def test_a_policy_keeps_what_others_wrote_and_has_our_statement_once() -> None:
    theirs = {"Version": "2008-10-17", "Id": "x", "Statement": [{"Sid": "audit"}, {"Sid": "posthouse", "Old": 1}]}
    both = json.loads(with_ours(json.dumps(theirs), WANTED["Policy"]))
    assert [statement["Sid"] for statement in both["Statement"]] == ["audit", "posthouse"]
    assert (both["Version"], both["Id"], "Old" in both["Statement"][1]) == ("2008-10-17", "x", False)
    alone = {"Statement": {"Sid": "audit"}}
    assert [each["Sid"] for each in json.loads(with_ours(json.dumps(alone), WANTED["Policy"]))["Statement"]] == [
        "audit",
        "posthouse",
    ]
    assert json.loads(with_ours("", WANTED["Policy"])) == json.loads(WANTED["Policy"])


def test_a_policy_that_cannot_be_read_is_left_alone_and_told() -> None:
    with pytest.raises(BrokerError, match="cannot be read"):
        with_ours("not json", WANTED["Policy"])


def test_a_subscription_is_missing_wrapped_or_filtered() -> None:
    good = {"RawMessageDelivery": "true", "FilterPolicy": "{}"}
    assert subscription_drift(good) == []
    assert [drift.setting for drift in subscription_drift({})] == ["subscription"]
    odd = {"RawMessageDelivery": "false", "FilterPolicy": '{"a": ["b"]}'}
    assert [drift.setting for drift in subscription_drift(odd)] == ["RawMessageDelivery", "FilterPolicy"]
