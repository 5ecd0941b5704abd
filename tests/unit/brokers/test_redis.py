"""What the Redis adapter decides without a server."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from posthouse.broker import Frame
from posthouse.brokers.group.log import Want
from posthouse.brokers.group.member import handed_out
from posthouse.brokers.redis.buffer import Holding, PartitionBuffer
from posthouse.brokers.redis.checks import Settings, Sync
from posthouse.brokers.redis.client import is_passing
from posthouse.brokers.redis.entries import (
    before,
    entry_at,
    fields_of,
    frame_of,
    lane_number,
    lanes_of,
    misfit,
    place_of,
    sought,
    stored_at,
)
from posthouse.brokers.redis.topics import is_topic, ledger_of
from posthouse.errors import BrokerError

# Entries


@pytest.mark.parametrize("key", [None, "t1:o1", "t1:größe 50%", "two\r\nlines", " blanks ", ""])
def test_a_frame_comes_back_as_it_was(key: str | None) -> None:
    frame = Frame(topic="shop.order", id="id 1 %", key=key, body=b"\x00\xff", headers={"ce-x": " a\nb ", "h": ""})
    wire = [field.encode() if isinstance(field, str) else field for field in fields_of(frame)]
    assert frame_of("shop.order", b"7-0", wire) == frame


def test_all_frames_of_a_key_have_one_lane() -> None:
    assert len({lane_number(Frame(topic="t", id=str(n), key="k", body=b""), 8) for n in range(50)}) == 1
    spread = {lane_number(Frame(topic="t", id=str(n), body=b""), 8) for n in range(200)}
    assert spread == set(range(8))
    assert lanes_of("t", 2) == ["t:0", "t:1", "t"]


def test_without_an_id_the_attribute_of_the_event_or_the_place_is_one() -> None:
    assert frame_of("t", b"7-1", [b"ce-id", b"e1"]).id == "e1"
    assert frame_of("t", b"7-1", [b"x", b"y"]).id == "t:7-1"


def test_headers_that_would_hide_ours_or_are_too_many_are_misfits() -> None:
    for name in ("id", "key", "body"):
        assert name in misfit(Frame(topic="t", id="1", body=b"", headers={name: "v", "other": "v"}))
    assert "1,001" in misfit(Frame(topic="t", id="1", body=b"", headers={f"h{n}": "" for n in range(1001)}))
    assert misfit(Frame(topic="t", id="1", body=b"", headers={f"h{n}": "" for n in range(1000)})) == ""


def test_places_are_ordered_as_the_server_orders_them() -> None:
    assert place_of("1000-10") > place_of(b"1000-9") > place_of("999-99")
    assert place_of("5") == (5, 0)
    assert before(place_of("1000-1")) == (1000, 0)
    assert entry_at(before(place_of("1000-0"))) == "999-18446744073709551615"
    assert before((0, 0)) == (0, 0)
    assert stored_at(b"1731650000123-4") == 1731650000.123


@pytest.mark.parametrize(
    ("time", "milliseconds"),
    [
        (1731650000.123, 1731650000123),
        (1731650000.123001, 1731650000124),
        (0.0, 0),
        (-5.0, 0),
        (1731650000.0, 1731650000000),
    ],
)
def test_a_time_is_the_first_millisecond_at_or_after_it(time: float, milliseconds: int) -> None:
    assert sought(None, time) == (milliseconds, 0)


def test_a_position_is_an_id_or_a_number_of_milliseconds() -> None:
    assert sought("1000-3", None) == (1000, 3)
    assert sought(0, None) == (0, 0)
    for position in ("x", "-1", "1-x"):
        with pytest.raises(BrokerError, match="id of an entry"):
            sought(position, None)
    for both in ((None, None), ("1-0", 1.0)):
        with pytest.raises(BrokerError, match="either"):
            sought(*both)


@pytest.mark.parametrize(
    ("name", "fits"), [("shop.orders", True), ("a:b", False), ("", False), ("a b", False), ("a\n", False)]
)
def test_topics_have_keys_that_nothing_else_has(name: str, fits: bool) -> None:
    assert is_topic(name) == fits


def test_ledgers_of_two_groups_are_never_the_same() -> None:
    assert ledger_of("a:b", "c") != ledger_of("a", "b.c")


def test_errors_about_the_server_are_told_from_those_about_a_frame() -> None:
    assert is_passing("MISCONF Errors writing to the AOF file: No space left on device")
    assert is_passing("READONLY You can't write against a read only replica.")
    assert not is_passing("OOM command not allowed when used memory > 'maxmemory'.")
    assert not is_passing("WRONGTYPE Operation against a key")


# Lanes


def lane(*, until: str = "0-0", size: int = 10) -> PartitionBuffer:
    return PartitionBuffer("t", 0, "t:0", Holding(1, "run", until, "0-0"), size)


def entries(*numbers: int) -> list[tuple[bytes, list[bytes]]]:
    return [(b"%d-0" % number, [b"id", b"%d" % number, b"body", b"xx"]) for number in numbers]


def taken(lane: PartitionBuffer, limit: int = 100) -> list[tuple[str, bool]]:
    """As a member takes them."""
    wants = [Want(lane, *run) for run in lane.window.take(limit, lane.arrived)]
    got = [delivery for want in wants for delivery in handed_out(want, lane.answer(want))]
    return [(delivery.frame.id, delivery.redelivered) for delivery in got]


def test_what_was_pending_comes_as_a_repeat_and_what_follows_as_new() -> None:
    held = lane()
    held.arrive(entries(1, 2), more=False)
    assert not held.pending
    assert not held.dry, "what is new was not asked for yet"
    held.arrive(entries(3), more=False)
    assert held.dry
    assert taken(held) == [("1", True), ("2", True), ("3", False)]


def test_what_was_stored_before_a_seek_comes_as_a_repeat() -> None:
    held = lane(until="2-0")
    held.arrive([], more=False)
    held.arrive(entries(1, 2, 3), more=True)
    assert taken(held) == [("1", True), ("2", True), ("3", False)]
    assert not held.dry


def test_what_was_handed_back_comes_first_and_in_order() -> None:
    held = lane()
    held.arrive([], more=False)
    held.arrive(entries(1, 2, 3, 4), more=False)
    assert len(taken(held, 3)) == 3
    for number in (3, 1):
        held.nack(number)
    assert not held.window.idle
    assert taken(held, 1) == [("1", True)]
    assert taken(held) == [("3", True), ("4", False)]


def test_no_more_than_the_window_is_in_hand() -> None:
    held = lane(size=2)
    held.arrive(entries(1, 2, 3, 4), more=False)
    assert len(taken(held, 9)) == 2
    assert taken(held, 9) == []
    held.nack(2)
    assert taken(held) == [("2", True)]
    held.ack(1)
    assert len(taken(held, 9)) == 1
    assert not held.window.idle
    for number in (2, 3):
        held.nack(number)
    assert held.window.idle


def test_one_that_is_in_hand_for_long_holds_up_nothing_behind_it() -> None:
    """The server keeps what is not acknowledged, wherever it is: the window counts what is in hand, not how far it reaches."""
    held = lane(size=2)
    held.arrive([], more=False)
    held.arrive(entries(*range(1, 9)), more=False)
    assert taken(held, 2) == [("1", False), ("2", False)]
    for number in range(2, 8):
        held.ack(number)
        assert taken(held) == [(str(number + 1), False)]
    assert taken(held) == []
    held.ack(1)
    held.ack(8)
    assert held.window.idle


def test_nothing_new_is_asked_for_before_what_a_lost_answer_held_was_fenced_off() -> None:
    held = lane()
    held.arrive([], more=False)
    held.unsure = True
    assert not held.wants
    held.fence(Holding(2, "run", "0-0", "9-0"))
    assert held.wants
    assert held.pending


def test_an_entry_that_was_deleted_is_acknowledged_and_handed_to_nobody() -> None:
    held = lane()
    held.arrive([(b"1-0", None), *entries(2)], more=False)
    assert held.done == ["1-0"]
    assert taken(held) == [("2", True)]
    assert held.last == "2-0"


def test_an_acknowledgement_counts_once_and_waits_until_it_was_saved() -> None:
    held = lane()
    held.arrive(entries(1, 2), more=False)
    taken(held, 2)
    for number in (2, 2, 1, 9):
        held.ack(number)
    assert held.done == ["2-0", "1-0"]
    held.saved(["2-0"])
    assert held.done == ["1-0"]


def test_what_was_never_handed_out_is_given_back_as_new() -> None:
    held = lane()
    assert held.unread() == ("0-0", [])
    held.arrive(entries(1), more=False)
    held.arrive(entries(2, 3, 4), more=False)
    taken(held, 2)
    assert held.unread() == (entry_at(before((3, 0))), ["3-0", "4-0"])


def test_a_fence_asks_again_for_what_may_have_been_read_and_keeps_what_is_in_hand() -> None:
    held = lane()
    held.arrive([], more=False)
    held.arrive(entries(1, 2), more=False)
    taken(held, 1)
    held.unsure = True
    held.fence(Holding(2, "run", "0-0", "9-0"))
    assert (held.pending, held.unsure, held.dry, held.last, held.holding.epoch) == (True, False, False, "2-0", 2)
    held.ack(1)
    assert held.done == ["1-0"]


def test_news_is_what_comes_behind_all_that_was_there() -> None:
    held = PartitionBuffer("t", 0, "t:0", Holding(1, "run", "0-0", "100-9"), 10)
    assert held.newest == "100-9"
    held.arrive(entries(99), more=False)
    assert held.newest == "100-9"
    held.arrive(entries(1000), more=False)
    assert held.newest == "1000-0"


def test_what_is_read_ahead_is_bounded_in_number_and_bytes() -> None:
    held = lane(size=1000)
    assert held.wants
    held.arrive([(b"1-0", [b"body", bytes(9 * 1024 * 1024)])], more=True)
    assert not held.wants
    taken(held, 1)
    held.ack(1)
    assert held.wants
    held.arrive(entries(*range(2, 252)), more=True)
    assert not held.wants
    assert held.arrived - held.window.read == 250
    taken(held, 1)
    assert held.wants


# Checks

GOOD_INFO = {"redis_version": "7.4.1", "role": "master", "maxmemory": "0", "used_memory": "1000000"}
GOOD_CONFIG = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}


def found(
    info: Mapping[str, str] | None = None, config: Mapping[str, str] | None = None, sync: Sync = "default"
) -> Settings:
    return Settings(info={**GOOD_INFO, **(info or {})}, config=GOOD_CONFIG if config is None else config, sync=sync)


def test_a_server_as_it_should_be() -> None:
    assert {check.judgement for check in found().checks(today=True)} == {"ok"}
    assert found().durable


@pytest.mark.parametrize(
    ("info", "config", "name", "judgement", "durable"),
    [
        ({"redis_version": "6.2.14"}, {}, "server", "fail", True),
        ({"role": "slave"}, {}, "place", "fail", True),
        ({"cluster_enabled": "1"}, {}, "place", "fail", True),
        ({}, {"appendonly": "no"}, "durability", "warn", False),
        ({}, {"appendfsync": "everysec"}, "durability", "warn", False),
        ({"maxmemory": "5000000"}, {"maxmemory-policy": "allkeys-lfu"}, "eviction", "fail", False),
        ({}, {"maxmemory-policy": "allkeys-lru"}, "eviction", "warn", False),
        ({"connected_slaves": "2"}, {}, "failover", "warn", True),
        ({"maxmemory": "1100000"}, {}, "memory", "warn", True),
    ],
)
def test_each_setting_that_weakens_the_promise_is_found(
    info: dict[str, str], config: dict[str, str], name: str, judgement: str, durable: bool
) -> None:
    settings = found(info, {**GOOD_CONFIG, **config})
    wrong = [check for check in settings.checks(today=True) if check.judgement != "ok"]
    assert [(check.name, check.judgement) for check in wrong] == [(name, judgement)]
    assert all(check.fix for check in wrong)
    assert settings.durable == durable


def test_keys_that_never_expire_are_safe_from_a_policy_for_those_that_do() -> None:
    assert found({"maxmemory": "9000000"}, {**GOOD_CONFIG, "maxmemory-policy": "volatile-lru"}).durable


def test_what_was_declared_counts_where_the_server_may_not_be_asked() -> None:
    assert not found(config={}).durable
    assert found(config={}, sync="always").durable
    assert not found({"maxmemory_policy": "allkeys-lru"}, config={}, sync="always").durable
