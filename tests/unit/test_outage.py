"""An outage: told when it begins, ever more rarely, and once when it is over, for all loops of a process together."""

from __future__ import annotations

import logging

import pytest

from posthouse.clock import ManualClock, SystemClock
from posthouse.errors import BrokerError, BrokerUnavailable, StoreCollision, StoreUnavailable
from posthouse.outage import Outages

REFUSED = BrokerUnavailable("connection refused")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def outages(clock: ManualClock) -> Outages:
    return Outages(clock, "the database (db)", "the broker (nats://b)")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "posthouse.outage"]


def test_an_hour_of_twenty_loops_that_try_every_half_second_is_a_handful_of_lines(
    outages: Outages, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    loops = [f"consumer {number}" for number in range(20)]
    for _ in range(7200):
        for loop in loops:
            outages.failed(loop, REFUSED)
        clock.advance(0.5)
    for loop in loops:
        outages.answered(loop)
    first, *reminders, back = lines(caplog)
    assert first == "the broker (nats://b) is away, consumer 0 waits: connection refused"
    assert 3 <= len(reminders) <= 8
    assert reminders[0] == (
        "the broker (nats://b) is away for 30 s, consumer 0, consumer 1, consumer 2 and 17 more wait: connection refused"
    )
    assert back == "the broker (nats://b) is back after 60 min"


def test_it_is_over_when_the_last_who_waited_is_served(outages: Outages, caplog: pytest.LogCaptureFixture) -> None:
    outages.failed("a", REFUSED)
    outages.failed("b", REFUSED)
    outages.answered("a")
    assert len(lines(caplog)) == 1
    outages.answered("b")
    assert len(lines(caplog)) == 2
    outages.answered("b")
    assert len(lines(caplog)) == 2


def test_one_that_comes_and_goes_is_told_as_rarely_as_one_that_stays(
    outages: Outages, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(600):
        outages.failed("a", REFUSED)
        clock.advance(0.5)
        outages.answered("a")
        clock.advance(0.5)
    assert len(lines(caplog)) <= 10


def test_a_new_one_after_a_calm_minute_is_told_at_once(
    outages: Outages, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        outages.failed("a", REFUSED)
        outages.answered("a")
        clock.advance(61)
    assert len(lines(caplog)) == 4


def test_each_server_is_told_by_itself_with_its_fields(outages: Outages, caplog: pytest.LogCaptureFixture) -> None:
    outages.failed("relay", StoreUnavailable("no route"))
    outages.failed("relay", BrokerError("authorization violation"))
    assert lines(caplog) == [
        "the database (db) is away, relay waits: no route",
        "the broker (nats://b) refuses us, relay waits: authorization violation",
    ]
    fields = vars(caplog.records[0])
    assert (fields["server"], fields["reason"], fields["waiting"]) == ("the database (db)", "no route", ["relay"])


def test_who_lost_against_another_transaction_has_found_the_store_well(
    outages: Outages, caplog: pytest.LogCaptureFixture
) -> None:
    outages.failed("relay", StoreCollision("deadlock detected"))
    assert [record.levelno for record in caplog.records if record.levelno > logging.INFO] == []
    assert outages.waiting(outages.store) == {}


def test_who_stops_leaves_no_line_behind(outages: Outages, caplog: pytest.LogCaptureFixture) -> None:
    outages.failed("a", REFUSED)
    outages.left("a")
    outages.answered("a")
    assert len(lines(caplog)) == 1
    assert outages.waiting(outages.broker) == {}


def test_two_apps_of_one_process_share_what_is_told_of_one_server(caplog: pytest.LogCaptureFixture) -> None:
    both = [Outages(SystemClock(), "the database (db)", "the broker (nats://shared)") for _ in range(2)]
    for one in both:
        one.failed("relay", REFUSED)
    assert len(lines(caplog)) == 1
    assert all(one.waiting(one.broker).keys() == {"relay"} for one in both)
    for one in both:
        one.answered("relay")
    assert len(lines(caplog)) == 2
