"""What the NATS adapter decides without a server."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from posthouse.broker import Frame
from posthouse.brokers.group.log import Want
from posthouse.brokers.group.member import handed_out
from posthouse.brokers.nats.broker import servers_of
from posthouse.brokers.nats.buffer import PartitionBuffer
from posthouse.brokers.nats.checks import is_durable, topic_checks, version_check
from posthouse.brokers.nats.client import mapped
from posthouse.brokers.nats.ledger import Assignment
from posthouse.brokers.nats.messages import (
    frame_of,
    headers_of,
    is_topic,
    line,
    misfit,
    place_of,
    subject_of,
    subjects_of,
    wire_size,
    word,
)
from posthouse.brokers.nats.topics import NANO, Config, Topic
from posthouse.errors import BrokerUnavailable

GOOD = Config(discard="new", num_replicas=3, duplicate_window=120 * NANO, allow_direct=True)


# Letters


@pytest.mark.parametrize("key", [None, "t1:o1", "t1:größe 50%", "two\r\nlines", " blanks "])
def test_id_and_key_come_back_as_they_were(key: str | None) -> None:
    frame = Frame(topic="shop.order", id="id 1 %", key=key, body=b"x", headers={"ce-x": "a b"})
    headers = headers_of(frame)
    assert all("\n" not in value and value == value.strip() for value in headers.values())
    assert frame_of("shop.order", 7, headers, b"x") == frame


def test_the_servers_own_headers_are_not_the_frames() -> None:
    headers = {"Nats-Msg-Id": "1:t", "Nats-Batch-Id": "b", "Nats-Expected-Stream": "t", "X-Colour": "blue"}
    assert frame_of("t", 1, headers, b"").headers == {"x-colour": "blue"}


def test_one_event_for_two_topics_has_two_ids_for_the_server() -> None:
    ids = {headers_of(Frame(topic=topic, id="1", body=b""))["Nats-Msg-Id"] for topic in ("a", "b")}
    assert len(ids) == 2


def test_all_frames_of_a_key_have_one_subject_that_its_stream_takes() -> None:
    subjects = {subject_of(Frame(topic="t", id=str(n), key="k", body=b""), 8) for n in range(50)}
    assert len(subjects) == 1
    spread = {subject_of(Frame(topic="t", id=str(n), body=b""), 8) for n in range(200)}
    assert spread == set(subjects_of("t", 8)) - {"t"}


@pytest.mark.parametrize("name", ["nats-thing", "Nats-Msg-Id", "posthouse-key", "with blank", "a:b", "", "ü"])
def test_a_name_that_is_taken_or_impossible_is_a_misfit(name: str) -> None:
    assert repr(name) in misfit(Frame(topic="t", id="1", body=b"", headers={name: "v"}))


@pytest.mark.parametrize("value", [" a", "a ", "a\nb", "a\rb"])
def test_a_value_that_the_client_would_change_is_a_misfit(value: str) -> None:
    assert "'h'" in misfit(Frame(topic="t", id="1", body=b"", headers={"h": value}))
    assert misfit(Frame(topic="t", id="1", body=b"", headers={"h": "wört ☃"})) == ""


def test_words_are_fit_for_subjects_and_never_the_same_for_two_texts() -> None:
    texts = ["billing", "billing.invoice", "billing=2Einvoice", "a b", "a*", "größe", "a_b", "a-b"]
    words = [word(text) for text in texts]
    assert len(set(words)) == len(texts)
    assert not any(set(" .*>") & set(made) for made in words)


@pytest.mark.parametrize(
    ("topic", "fine"),
    [("a.b", True), ("a", True), ("a..b", False), ("a.*", False), ("a b", False), ("", False), ("a/b", False)],
)
def test_a_topic_must_be_a_subject(topic: str, fine: bool) -> None:
    assert is_topic(topic) is fine


def test_the_place_is_read_from_both_forms_of_a_reply() -> None:
    old = place_of("$JS.ACK.stream.consumer.1.22.3.1794723782946107804.2")
    new = place_of("$JS.ACK.domain.account.stream.consumer.1.22.3.1794723782946107804.2.random")
    assert old == new == (22, 3, 1794723782.946107804)


def test_the_size_on_the_wire_is_what_the_client_writes() -> None:
    headers = {"a": "b", "colour": "ü"}
    written = "NATS/1.0\r\na: b\r\ncolour: ü\r\n\r\nbody".encode()
    assert wire_size(headers, b"body") == len(written)


def test_plain_text_is_a_line_as_it_is() -> None:
    assert line("0190b3c0-7b1a:o1") == "0190b3c0-7b1a:o1"


def test_several_servers_share_the_rights_of_the_url() -> None:
    assert servers_of("nats://u:p@a:4222,b:4222") == ["nats://u:p@a:4222", "nats://u:p@b:4222"]
    assert servers_of("nats://a") == ["nats://a"]


# A partition in hand


def buffer(assignment: Assignment | None = None, *, size: int = 10) -> PartitionBuffer:
    return PartitionBuffer("t", 0, assignment or Assignment(born="b", owner="me", cursor=100), 1, size)


def arrive(buffer: PartitionBuffer, *sequences: int) -> None:
    for sequence in sequences:
        reply = f"$JS.ACK.t.c.1.{sequence}.{buffer.arrived + 1}.1000000000.0"
        buffer.arrive(place_of(reply), Msg(_client=Client(), subject="t.0", reply=reply, data=b"x"))


def taken(buffer: PartitionBuffer, limit: int = 10) -> list[tuple[int, bool]]:
    """As a member takes them."""
    found: list[tuple[int, bool]] = []
    while len(found) < limit and (runs := buffer.window.take(limit - len(found), buffer.arrived)):
        for run in runs:
            want = Want(buffer, *run)
            found += [(int(d.position), d.redelivered) for d in handed_out(want, buffer.answer(want))]
    return found


def test_the_cursor_moves_over_what_is_acknowledged_without_a_gap() -> None:
    one = buffer()
    arrive(one, 105, 109, 120)
    assert taken(one) == [(105, False), (109, False), (120, False)]
    one.ack(1)
    one.ack(3)
    assert one.progressed("me").cursor == 105
    one.saved(one.progressed("me"), 2)
    assert (one.window.committed, one.version, one.unsaved) == (1, 2, False)
    one.ack(2)
    assert one.progressed("me").cursor == 120


def test_what_is_given_back_says_exactly_what_was_handed_out_and_done() -> None:
    one = buffer()
    arrive(one, 105, 109, 120, 130)
    taken(one, 3)
    one.ack(1)
    one.ack(3)
    given = one.progressed(None)
    assert (given.owner, given.cursor, given.handed, given.done) == (None, 105, 2, (120,))
    heir = buffer(msgspec.structs.replace(given, owner="heir", epoch=2))
    arrive(heir, 109, 120, 130)
    assert taken(heir) == [(109, True), (130, False)]


def test_what_is_done_behind_the_cursor_says_when_the_last_of_it_was_stored() -> None:
    one = buffer()
    arrive(one, 105, 109, 120)
    taken(one, 3)
    one.ack(2)
    assert (one.progressed(None).done, one.progressed(None).done_at) == ((109,), 1.0)
    heir = buffer(Assignment(born="b", owner="me", cursor=100, done=(109, 120), done_at=7.0))
    arrive(heir, 105)
    taken(heir)
    heir.ack(1)
    assert (heir.progressed("me").done, heir.progressed("me").done_at) == ((109, 120), 7.0)
    assert (buffer().progressed(None).done, buffer().progressed(None).done_at) == ((), 0.0)


def test_frames_that_an_earlier_owner_acknowledged_make_nobody_wait_for_those_behind_them() -> None:
    """Whoever takes one at a time would be told that nothing is there, and wait for news that came long ago."""
    heir = buffer(Assignment(born="b", owner="me", cursor=100, done=(102, 103)))
    arrive(heir, 101, 102, 103, 104)
    assert taken(heir, 1) == [(101, False)]
    assert taken(heir, 1) == [(104, False)]
    assert taken(heir, 1) == []
    heir.ack(1)
    heir.ack(4)
    assert heir.progressed("me").cursor == 104


def test_an_owner_says_that_its_whole_window_may_be_out() -> None:
    one = buffer(size=10)
    arrive(one, 105)
    taken(one)
    assert one.progressed("me").handed == 10
    heir = buffer(one.progressed("me"))
    arrive(heir, *range(201, 211))
    assert taken(heir, 20) == [(n, True) for n in range(201, 211)]


def test_nothing_that_was_stored_after_a_crash_is_a_repeat_of_the_window_that_was_open_then() -> None:
    heir = buffer(Assignment(born="b", owner="me", cursor=100, handed=1000))
    heir.end = 106
    arrive(heir, 105, 106, 107, 108)
    assert taken(heir) == [(105, True), (106, True), (107, False), (108, False)]
    for number in (1, 2, 3):
        heir.ack(number)
    assert heir.progressed("me").end is None, "it may hand out more"
    given = heir.progressed(None)
    assert (given.cursor, given.end) == (107, 108)
    last = buffer(given)
    arrive(last, 108, 109)
    assert taken(last) == [(108, True), (109, False)]


def test_what_an_owner_before_the_last_may_have_handed_out_stays_marked() -> None:
    given = buffer(Assignment(born="b", owner="me", cursor=100, handed=50), size=10).progressed(None)
    assert given.handed == 50


def test_what_was_stored_before_a_seek_comes_as_a_repeat() -> None:
    one = buffer(Assignment(born="b", owner="me", cursor=0, until=3))
    arrive(one, 2, 3, 4)
    assert taken(one) == [(2, True), (3, True), (4, False)]


def test_what_is_handed_back_comes_again_first_and_marked() -> None:
    one = buffer()
    arrive(one, 1, 2, 3)
    taken(one, 2)
    one.window.nack(1)
    assert taken(one) == [(1, True), (3, False)]


def test_there_is_room_for_the_window_and_for_so_many_bytes() -> None:
    one = buffer(size=3)
    arrive(one, 1, 2)
    assert one.room == 1
    reply = "$JS.ACK.t.c.1.3.3.1000000000.0"
    two = buffer(size=3)
    two.arrive(place_of(reply), Msg(_client=Client(), subject="t.0", reply=reply, data=bytes(9 * 1024 * 1024)))
    assert two.room == 0
    taken(two)
    two.ack(1)
    assert two.room == 2


# Errors and checks


async def test_foreign_errors_end_at_the_wire() -> None:
    for error in (nats.errors.ConnectionClosedError(), TimeoutError(), ConnectionResetError("gone")):
        with pytest.raises(BrokerUnavailable, match="NATS, doing"), mapped("doing"):
            raise error


async def test_a_cancellation_that_the_client_keeps_to_itself_goes_on() -> None:
    async def swallowing() -> None:
        with mapped("doing"), contextlib.suppress(asyncio.CancelledError):  # as nats-py does while it flushes
            await asyncio.Event().wait()

    task = asyncio.create_task(swallowing())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


def topic(config: Config) -> Topic:
    return Topic(name="t", partitions=8, together=True, max_bytes=1000, created="", first=1, last=1, config=config)


def test_a_stream_as_it_should_be_has_no_findings() -> None:
    assert {check.judgement for check in topic_checks(topic(GOOD), "default")} == {"ok"}
    assert is_durable(GOOD, "default")


@pytest.mark.parametrize(
    ("change", "what", "judgement"),
    [
        ({"num_replicas": 1}, "durability", "warn"),
        ({"storage": "memory"}, "durability", "warn"),
        ({"retention": "workqueue"}, "retention", "fail"),
        ({"discard": "old"}, "full stream", "warn"),
        ({"max_age": NANO}, "age", "warn"),
        ({"duplicate_window": NANO}, "repeats", "warn"),
        ({"allow_direct": False}, "direct reads", "fail"),
    ],
)
def test_each_setting_that_weakens_the_promise_is_found(change: dict[str, object], what: str, judgement: str) -> None:
    checks = topic_checks(topic(msgspec.structs.replace(GOOD, **change)), "default")
    assert [(check.name, check.judgement) for check in checks if check.judgement != "ok"] == [
        (f"topic t, {what}", judgement)
    ]
    assert all(check.fix for check in checks if check.judgement != "ok")


def test_memory_is_not_durable_whatever_was_declared() -> None:
    assert not is_durable(msgspec.structs.replace(GOOD, storage="memory"), "always")
    assert is_durable(msgspec.structs.replace(GOOD, num_replicas=1), "always")


def test_a_server_that_is_too_old_is_refused_and_one_without_batches_is_named() -> None:
    assert [version_check(version).judgement for version in ((2, 10), (2, 11), (2, 12))] == ["fail", "warn", "ok"]
