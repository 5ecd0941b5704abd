"""What the Kafka adapter decides without a server."""

from __future__ import annotations

import msgspec
import pytest
from confluent_kafka import ConsumerGroupState, Message, Node, TopicPartition
from confluent_kafka.admin import ConsumerGroupDescription, MemberAssignment, MemberDescription

from posthouse.broker import Delivery, Frame
from posthouse.brokers.admission import frame_size
from posthouse.brokers.kafka.admin import is_at_work
from posthouse.brokers.kafka.buffer import PartitionBuffer
from posthouse.brokers.kafka.checks import is_durable, keeps, server_checks, topic_checks
from posthouse.brokers.kafka.client import Client
from posthouse.brokers.kafka.committed_offsets import (
    ALL,
    METADATA,
    Claim,
    Note,
    acknowledged,
    placed,
    read,
    settled,
    written,
)
from posthouse.brokers.kafka.drift import drift_of
from posthouse.brokers.kafka.offsets import progress_of
from posthouse.brokers.kafka.records import delivery_of, is_topic, letter_of, wire_size
from posthouse.brokers.kafka.stream import known, taken
from posthouse.brokers.kafka.topics import Settings, Topic
from posthouse.errors import ConfigurationError


def message(offset: int, *, key: bytes | None = b"k", body: bytes = b"x", headers: object = None) -> Message:
    given = {"topic": "t", "partition": 3, "offset": offset, "key": key, "value": body, "timestamp": (2, 1500)}
    return Message(**given, headers=headers or [])  # type: ignore[arg-type]  # as the driver makes them


# Records


def test_cloudevents_headers_have_their_kafka_names_and_plain_text() -> None:
    headers = {"ce-id": "e%202", "ce-subject": "gr%C3%B6%C3%9Fe", "x-y": "a%20b"}
    letter = letter_of(Frame(topic="t", id="e 1", body=b"", headers=headers), 8)
    assert letter.headers == [
        ("ce_id", b"e 2"),
        ("ce_subject", "größe".encode()),
        ("x-y", b"a%20b"),
        ("posthouse-id", b"e 1"),
    ]


@pytest.mark.parametrize(("header", "id_"), [("e1", "e1"), ("e%201", "e 1")])
def test_an_id_that_the_headers_say_is_not_said_twice(header: str, id_: str) -> None:
    assert letter_of(Frame(topic="t", id=id_, body=b"", headers={"ce-id": header}), 8).headers == [
        ("ce_id", id_.encode())
    ]


@pytest.mark.parametrize(
    "headers",
    [{"ce-id": "a", "ce-subject": "gr%C3%B6%C3%9Fe 1".replace(" ", "%20")}, {"content-type": "x", "h": "ü ☃"}, {}],
)
def test_a_frame_comes_back_as_it_was(headers: dict[str, str]) -> None:
    frame = Frame(topic="t", id="a", key="ключ", body=b"\xff\x00", headers=headers)
    back = message(7, key=(frame.key or "").encode(), body=frame.body, headers=letter_of(frame, 8).headers)
    assert delivery_of(back, True, 1) == Delivery(frame=frame, position="3:7", stored_at=1.5, redelivered=True, token=1)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"ce_id": "x"}, "cannot be the name"),
        ({"posthouse-id": "x"}, "cannot be the name"),
        ({"ce-subject": "größe"}, "not percent-encoded"),
        ({"ce-subject": "a%2fb"}, "not percent-encoded"),
    ],
)
def test_what_would_come_back_changed_is_refused(headers: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        letter_of(Frame(topic="t", id="a", body=b"", headers=headers), 8)


def test_a_record_of_anybody_has_an_id_a_key_and_text() -> None:
    theirs = delivery_of(message(9, key=b"\xff", headers=[("X-Colour", b"\xfe"), ("none", None)]), False, None)
    assert theirs.frame == Frame(
        topic="t", id="t:3:9", key="\\xff", body=b"x", headers={"x-colour": "\\xfe", "none": ""}
    )
    assert delivery_of(message(9, headers=[("ce_id", b"their 1")]), False, None).frame.id == "their 1"
    assert delivery_of(message(9, key=None), False, None).frame.key is None
    assert delivery_of(message(9, key=b""), False, None).frame.key == ""


@pytest.mark.parametrize("broken", [{"id": "a\ud800"}, {"key": "a\ud800"}, {"headers": {"h": "a\ud800"}}])
def test_text_that_is_no_text_is_refused(broken: dict[str, object]) -> None:
    frame = Frame(**{"topic": "t", "id": "a", "body": b"", **broken})  # type: ignore[arg-type]  # each has its type
    with pytest.raises(ValueError, match="not valid Unicode"):
        letter_of(frame, 8)


def test_the_size_on_the_wire_is_never_guessed_too_small() -> None:
    frame = Frame(topic="t", id="a" * 36, key="k" * 100, body=bytes(1000), headers={"h": "ü" * 10})
    letter = letter_of(frame, 8)
    assert letter.size == frame_size(frame)
    assert wire_size(letter) >= 61 + 1000 + 100 + 36 + len("posthouse-id") + 21


@pytest.mark.parametrize(
    ("name", "fits"), [("shop.orders_a-1", True), ("a b", False), ("", False), ("..", False), ("x" * 250, False)]
)
def test_names_that_kafka_takes(name: str, fits: bool) -> None:
    assert is_topic(name) is fits


def test_a_frame_without_a_key_spreads_by_its_id() -> None:
    assert letter_of(Frame(topic="t", id="x", key="21", body=b""), 8).partition == 4
    assert {letter_of(Frame(topic="t", id=str(n), body=b""), 8).partition for n in range(100)} == set(range(8))


# CommittedOffsets


def test_a_claim_is_read_as_it_was_written() -> None:
    claim = Claim(5, Note(move="m", began=2, handed=10, until=9, done=[(1, 3), (7, 7)]))
    assert read(written(("t", 1), claim)) == claim
    assert claim.done == {6, 7, 8, 12}
    assert read(TopicPartition("t", 1, -1001)) is None


def test_a_note_that_is_too_long_forgets_acknowledgements_and_nothing_else() -> None:
    many = Claim(0, Note(move="m", handed=4000, done=[(n, n) for n in range(1, 4000, 2)]))
    found = read(written(("t", 1), many))
    assert found is not None
    assert len(written(("t", 1), many).metadata or "") <= METADATA
    assert (found.note.move, found.note.handed) == ("m", 4000)
    assert found.done < many.done


def test_an_offset_of_somebody_elses_tool_is_believed_and_its_note_is_not_ours() -> None:
    for metadata in ("", "their words", "[1]"):
        theirs = read(TopicPartition("t", 1, 7, metadata=metadata))
        assert theirs == Claim(7)
        assert settled(theirs, Claim(3, Note(move="m", began=1))) == Claim(7, Note(move="m", began=1, until=ALL))


def test_a_move_counts_until_it_was_followed() -> None:
    told = Claim(3, Note(move="new"))
    assert settled(Claim(9, Note(move="old")), told) == told
    assert settled(Claim(9, Note(move="new")), told) == Claim(9, Note(move="new"))
    assert settled(None, told) == told
    assert settled(Claim(9, Note(move="old")), None) == Claim(9, Note(move="old"))
    assert settled(None, None) is None


def test_a_place_in_a_topic_that_was_made_again_since_is_the_beginning_of_the_new_one() -> None:
    old, new = Note(move="m", began=3, handed=10, done=[(1, 3)], topic_id="a"), Note(move="m", topic_id="b")
    anew = Claim(0, Note(move="m", until=ALL, topic_id="b"))
    assert settled(Claim(9, old), Claim(3, old), "b") == anew
    assert settled(Claim(9, old), None, "b") == anew
    assert settled(None, Claim(3, old), "b") == anew
    assert settled(Claim(9, new), Claim(3, old), "b") == Claim(9, new), "whoever began anew has gone on"
    assert settled(Claim(9, old), Claim(3, new), "b") == Claim(3, new), "it was told to go there in the new one"
    assert settled(Claim(9), Claim(3, old), "b") == Claim(9, Note(move="m", until=ALL)), "a tool is believed"


def test_a_topic_whose_id_nobody_knows_is_believed_to_be_the_same() -> None:
    told = Claim(3, Note(move="m"))
    assert settled(Claim(9, Note(move="m")), told, "b") == Claim(9, Note(move="m")), "a note of an older release"
    assert settled(Claim(9, Note(move="m", topic_id="a")), told, "") == Claim(9, Note(move="m", topic_id="a"))
    assert known(Claim(9, Note(end=9)), 0, 9, "b") == Claim(9, Note(end=9, topic_id="b"))
    assert known(Claim(9, Note(end=9, topic_id="a")), 0, 9, "") == Claim(9, Note(end=9, topic_id="a"))


def test_where_nothing_is_written_the_beginning_is_the_place_and_all_may_be_repeats() -> None:
    assert known(None, 4, 9) == Claim(4, Note(began=4, until=9))
    assert known(Claim(5, Note(move="m", until=ALL)), 4, 9) == Claim(5, Note(move="m", end=9, until=9))
    assert known(Claim(5), 4, 9) == Claim(5, Note(end=9))
    assert known(Claim(5, Note(end=7)), 4, 9) == Claim(5, Note(end=7))
    assert known(Claim(5, Note(handed=3)), 4, 9).note.unsure == 4, "its owner did not say what it had dealt with"
    assert known(Claim(5, Note(handed=3, end=7, unsure=1)), 4, 9).note.unsure == 1


def test_an_owner_writes_down_a_window_before_it_hands_out_any() -> None:
    assert taken(Claim(5, Note(handed=3)), 10).note.handed == 10
    assert taken(Claim(5, Note(handed=30)), 10).note.handed == 30
    assert taken(Claim(5, Note(handed=3, end=7)), 10).note.end is None


def test_progress_counts_from_the_cursor_and_shows_what_is_hidden() -> None:
    spots, firsts, ends = [("t", 0), ("t", 1)], {("t", 0): 0, ("t", 1): 4}, {("t", 0): 10, ("t", 1): 10}
    whole = progress_of(spots[:1], {("t", 0): Claim(7)}, firsts, ends)
    assert (whole.stored, whole.pending, whole.truncated) == (10, 3, False)
    lost = progress_of(spots, {("t", 0): None, ("t", 1): Claim(2)}, firsts, ends)
    assert (lost.stored, lost.pending, lost.truncated) == (20, 16, True)
    assert progress_of(spots[:1], {("t", 0): Claim(7, Note(began=5))}, firsts, ends).truncated


@pytest.mark.parametrize(
    ("note", "pending", "unsure"),
    [
        (Note(), 10, 0),  # nobody has read yet
        (Note(handed=5), 10, 10),  # somebody reads
        (Note(handed=5, end=5), 10, 0),
        (Note(handed=5, end=5, done=[(1, 3)]), 7, 0),
        (Note(handed=5, end=5, done=[(1, 3)], unsure=5), 7, 2),
        (Note(end=5, until=4), 10, 4),
        (Note(end=5, until=ALL), 10, 10),
    ],
)
def test_progress_leaves_out_what_was_acknowledged_behind_the_cursor_and_says_what_is_unsure(
    note: Note, pending: int, unsure: int
) -> None:
    found = progress_of([("t", 0)], {("t", 0): Claim(0, note)}, {("t", 0): 0}, {("t", 0): 10})
    assert (found.pending, found.unsure) == (pending, unsure)


def test_what_is_too_much_to_be_written_down_is_unsure() -> None:
    runs = [(n, n) for n in range(1, 2001, 2)]
    kept = read(written(("t", 0), Claim(7, Note(end=9, done=runs))))
    assert kept is not None
    assert 0 < len(kept.note.done) < len(runs)
    assert kept.note.unsure == 2000


# One partition


def filled(claim: Claim, *offsets: int, size: int = 10) -> PartitionBuffer:
    lane = PartitionBuffer(("t", 3), claim, size)
    for offset in offsets:
        lane.arrive(message(offset))
    return lane


def test_a_lane_commits_behind_what_is_acknowledged_without_a_gap() -> None:
    lane = filled(Claim(5), 5, 6, 9, 10)  # 7 and 8 are marks of a transaction
    got = list(lane.take(10))
    assert [delivery.position for delivery in got] == ["3:5", "3:6", "3:9", "3:10"]
    lane.ack(1)
    lane.ack(3)
    assert lane.unsaved
    assert lane.progressed().cursor == 6
    lane.ack(2)
    claim = lane.progressed()
    assert claim.cursor == 10
    lane.saved(claim)
    assert (lane.unsaved, lane.window.committed) == (False, 3)


def test_whoever_leaves_says_what_was_acknowledged_and_what_was_handed_out() -> None:
    lane = filled(Claim(5), 5, 6, 7, 8, 9)
    list(lane.take(4))
    lane.ack(2)
    lane.ack(4)
    claim = lane.progressed(leaving=True)
    assert (claim.cursor, claim.note.handed, claim.done) == (5, 4, {6, 8})
    heir = filled(claim, 5, 6, 7, 8, 9)
    got = list(heir.take(10))
    assert [(delivery.position, delivery.redelivered) for delivery in got] == [
        ("3:5", True),
        ("3:7", True),
        ("3:9", False),
    ]
    heir.ack(1)
    assert heir.progressed().cursor == 7
    slow = filled(claim, 5, 6, 7, 8, 9)
    assert [[delivery.position for delivery in slow.take(1)] for _ in range(4)] == [["3:5"], ["3:7"], ["3:9"], []]


def test_after_a_crash_a_window_may_be_repeats_and_after_a_move_everything_below_it() -> None:
    lane = filled(taken(Claim(5), 2), 5, 6, 7, size=2)
    assert [delivery.redelivered for delivery in lane.take(2)] == [True, True]
    moved = filled(Claim(0, Note(move="m", until=2)), 0, 1, 2)
    assert [delivery.redelivered for delivery in moved.take(10)] == [True, True, False]


def test_nothing_that_was_stored_after_a_crash_is_a_repeat_of_the_window_that_was_open_then() -> None:
    heir = filled(known(taken(Claim(5), 1000), 0, 7), 5, 6, 7, 8)
    assert [delivery.redelivered for delivery in heir.take(10)] == [True, True, False, False]
    for number in (1, 2, 3):
        heir.ack(number)
    given = heir.progressed(leaving=True)
    assert (given.cursor, given.note.end) == (8, 9)
    last = filled(known(given, 0, 20), 8, 9)
    assert [delivery.redelivered for delivery in last.take(10)] == [True, False]


def test_a_log_that_begins_anew_is_read_from_there() -> None:
    lane = filled(Claim(20, Note(move="m", topic_id="a")), 20, 21)
    back = message(3)
    assert not lane.fits(back)
    anew = lane.anew(back)
    anew.arrive(back)
    (delivery,) = anew.take(1)
    assert (delivery.position, delivery.redelivered) == ("3:3", True)
    anew.ack(1)
    assert anew.progressed() == Claim(4, Note(move="m", handed=10, until=22, topic_id="a"))


def test_a_lane_is_paused_by_frames_and_by_bytes() -> None:
    lane = filled(Claim(0), *range(41))
    assert lane.full
    list(lane.take(10))
    assert not lane.full
    assert not lane.roomy
    heavy = PartitionBuffer(("t", 3), Claim(0), 10)
    heavy.arrive(message(0, body=bytes(5 * 1024 * 1024)))
    assert heavy.full


def test_runs_are_counted_from_the_cursor() -> None:
    assert acknowledged(10, {9, 11, 12, 15}) == [(1, 2), (5, 5)]


# Settings


GOOD = {
    "min.insync.replicas": "2",
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
    "max.message.bytes": "1048588",
}


def topic(replicas: int = 3, partitions: int = 8, **changed: str) -> Topic:
    config = GOOD | {name.replace("_", "."): value for name, value in changed.items()}
    return Topic(name="t", partitions=partitions, replicas=replicas, config=config)


def test_a_topic_that_keeps_the_promise_has_no_findings() -> None:
    assert {check.judgement for check in topic_checks(topic(), 8)} == {"ok"}


@pytest.mark.parametrize(
    ("found", "name", "judgement"),
    [
        (topic(replicas=1), "durability", "warn"),
        (topic(min_insync_replicas="1"), "durability", "warn"),
        (topic(unclean_leader_election_enable="true"), "leaders", "fail"),
        (topic(cleanup_policy="compact,delete"), "clean-up", "fail"),
        (topic(retention_ms="604800000"), "age", "warn"),
        (topic(retention_bytes="1000"), "age", "warn"),
        (topic(partitions=12), "partitions", "warn"),
    ],
)
def test_each_setting_that_weakens_the_promise_is_found(found: Topic, name: str, judgement: str) -> None:
    wrong = [check for check in topic_checks(found, 8) if check.judgement != "ok"]
    assert [(check.name, check.judgement) for check in wrong] == [(f"topic t, {name}", judgement)]
    assert wrong[0].fix


def test_settings_that_may_not_be_read_are_a_finding() -> None:
    unread = msgspec.structs.replace(topic(), config={})
    assert [check.judgement for check in (*topic_checks(unread, 8), *server_checks({}))] == ["warn", "warn"]
    assert not is_durable(unread)
    assert not keeps(unread)


def test_a_disk_before_the_answer_is_durable_too() -> None:
    assert is_durable(topic(replicas=1, flush_messages="1"))


def test_servers_that_forget_cursors_or_make_topics_are_found() -> None:
    checks = server_checks({"offsets.retention.minutes": "60", "auto.create.topics.enable": "true"})
    assert [check.judgement for check in checks] == ["warn", "warn"]
    assert {check.judgement for check in server_checks({"offsets.retention.minutes": "10080"})} == {"ok"}


def test_options_of_the_driver_are_passed_on_unless_they_break_the_promise() -> None:
    wire = Client("a:9092", timeout=5.0, driver={"acks": "ALL", "client.id": "shop", "socket.timeout.ms": 9000})
    config = wire.config({"acks": "all"})
    assert (config["acks"], config["client.id"], config["socket.timeout.ms"]) == ("all", "shop", 9000)
    with pytest.raises(ConfigurationError, match="Posthouse sets acks='all'"):
        Client("a:9092", timeout=5.0, driver={"acks": 1})


def test_an_option_that_the_driver_does_not_have_is_a_configuration_error() -> None:
    wire = Client("a:9092", timeout=5.0, driver={"no.such.option": "1"})
    with pytest.raises(ConfigurationError, match=r"no\.such\.option"):
        _ = wire.admin


def test_a_group_that_was_only_declared_never_overrules_its_members() -> None:
    declared, place = Claim(0, Note(state="declared")), Claim(7, Note(move="m1"))
    assert settled(place, declared) is place
    assert settled(None, declared) is declared
    assert placed(declared) is None
    assert placed(place) is place


def test_a_place_that_was_removed_is_gone_until_it_is_made_anew() -> None:
    removed, before, anew = Claim(0, Note(move="m2", state="removed")), Claim(7, Note(move="m1")), Claim(9, Note("m3"))
    assert settled(before, removed) is removed
    assert placed(settled(before, removed)) is None
    assert settled(before, anew) is anew


SETTINGS = Settings(partitions=8, replicas=3, min_insync=2, retention=None)


def topic_with(changed: dict[str, str] | None = None, *, replicas: int = 3, partitions: int = 8) -> Topic:
    config = SETTINGS.config("t") | (changed or {})
    return Topic(name="t", partitions=partitions, replicas=replicas, config=config)


def test_a_topic_as_we_make_it_does_not_drift() -> None:
    assert drift_of(topic_with(), SETTINGS) == []


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("min.insync.replicas", "1"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", "60000"),
        ("retention.bytes", "1000"),
        ("message.timestamp.type", "CreateTime"),
        ("unclean.leader.election.enable", "true"),
    ],
)
def test_a_setting_that_weakens_the_promise_is_drift_that_can_be_mended(setting: str, value: str) -> None:
    (drift,) = drift_of(topic_with({setting: value}), SETTINGS)
    assert (drift.setting, drift.found, drift.repairable) == (setting, value, True)
    assert not drift.loses


def test_a_shorter_age_says_what_it_deletes() -> None:
    shorter = msgspec.structs.replace(SETTINGS, retention=60.0)
    for found, loses in (("-1", "frames older than 60 s"), ("90000", "frames older than 60 s"), ("30000", "")):
        (drift,) = drift_of(topic_with({"retention.ms": found}), shorter)
        assert drift.loses == loses


def test_replicas_and_partitions_say_what_to_do_instead() -> None:
    partitions, replicas = drift_of(topic_with(replicas=2, partitions=4), SETTINGS)
    assert (partitions.repairable, replicas.repairable) == (False, False)
    assert "partitions=4" in partitions.fix
    assert "kafka-reassign-partitions" in replicas.fix


def test_more_replicas_in_sync_than_there_are_is_not_to_be_set() -> None:
    _, in_sync = drift_of(topic_with({"min.insync.replicas": "1"}, replicas=1), SETTINGS)
    assert (in_sync.setting, in_sync.repairable) == ("min.insync.replicas", False)
    assert "would take no frame" in in_sync.fix


def test_settings_that_may_not_be_read_are_not_said_to_be_right() -> None:
    (drift,) = drift_of(Topic(name="t", partitions=8, replicas=3, config={}), SETTINGS)
    assert not drift.repairable
    assert "DescribeConfigs" in drift.fix


def group_in(state: ConsumerGroupState, *topics: str) -> ConsumerGroupDescription:
    parts = [TopicPartition(topic, 0) for topic in topics]
    member = MemberDescription("m", "c", "h", MemberAssignment(parts))
    return ConsumerGroupDescription("g", False, [member] if topics else [], "range", state, Node(1, "h", 1))


def test_a_group_is_at_work_where_a_member_reads_or_nobody_can_tell() -> None:
    stable, shared_out, empty = (
        group_in(ConsumerGroupState.STABLE, "t"),
        group_in(ConsumerGroupState.PREPARING_REBALANCING, "other"),
        group_in(ConsumerGroupState.EMPTY),
    )
    assert [is_at_work(group, "t") for group in (stable, shared_out, empty, None)] == [True, True, False, False]
    assert not is_at_work(stable, "other")
