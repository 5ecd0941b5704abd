"""What `make load` computes: when events are due, and what became of them."""

from __future__ import annotations

import pytest

from benchmarks.load.plan import Phase, Plan, Schedule
from benchmarks.load.result import (
    GOAL,
    Latency,
    Result,
    Saturation,
    latencies,
    quantile,
    readings,
    timeline,
)

NOON = 1_000_000.0
TWO = Schedule([Phase("base", 10.0, 3.0), Phase("peak", 30.0, 2.0)], first=100, began=NOON)


def test_each_event_is_due_at_its_own_time_whatever_became_of_those_before() -> None:
    assert TWO.events == 90
    due = [TWO.due(number) - NOON for number in (100, 101, 129, 130, 131)]
    assert due == pytest.approx([0.0, 0.1, 2.9, 3.0, 3.0 + 1 / 30])
    assert [TWO.phase_of(number).name for number in (100, 129, 130, 189)] == ["base", "base", "peak", "peak"]
    assert (TWO.begins(TWO.phases[1]), TWO.ended) == (NOON + 3.0, NOON + 5.0)
    for number in (99, 190):
        with pytest.raises(ValueError, match="is in no phase"):
            TWO.due(number)


def test_a_plan_is_base_then_its_multiple_then_base_again() -> None:
    plan = Plan(seconds=60.0, factor=3.0)
    assert [(one.name, one.rate, one.seconds) for one in plan.measured(50.0)] == [
        ("warm-up", 50.0, 5.0),
        ("base", 50.0, 30.0),
        ("peak", 150.0, 60.0),
        ("base again", 50.0, 30.0),
    ]


def test_a_stall_counts_for_all_that_were_due_in_it() -> None:
    """Nothing is applied for a second: those that came late because of it count from when they were due."""
    applied = {
        number: max(TWO.due(number) + 0.01, NOON + 4.0) if number >= 130 else TWO.due(number) + 0.01
        for number in range(100, 190)
    }
    base, peak = latencies(TWO, applied)
    assert (base.events, peak.events) == (30, 60)
    assert base.p99 == pytest.approx(10.0)
    assert peak.worst == pytest.approx(1000.0)
    assert peak.p50 == pytest.approx(quantile([*(1000 - n * 1000 / 30 for n in range(30)), *[10.0] * 30], 0.5), abs=1)
    assert peak.p99 > 900


def test_an_event_that_was_never_applied_cannot_be_measured_away() -> None:
    with pytest.raises(KeyError):
        latencies(TWO, {100: NOON})


def test_the_backlog_is_what_was_committed_and_not_applied() -> None:
    committed = {number: TWO.due(number) for number in range(100, 190)}
    applied = {number: at + 2.0 for number, at in committed.items()}
    seconds = timeline([TWO], committed, applied)
    assert [one.committed for one in seconds] == [10, 10, 10, 30, 30, 0, 0]
    assert [one.applied for one in seconds] == [0, 0, 10, 10, 10, 30, 30]
    assert [one.backlog for one in seconds] == [10, 20, 20, 40, 60, 30, 0]
    assert [one.phase for one in seconds] == ["base"] * 3 + ["peak"] * 2 + [None] * 2
    assert [one.p99 for one in seconds[:5]] == [pytest.approx(2000.0)] * 5


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.99, 99), (0.999, 100), (1.0, 100)])
def test_a_quantile_is_a_value_that_was_seen(share: float, value: int) -> None:
    assert quantile(list(range(1, 101)), share) == value
    assert quantile([7.0], share) == 7.0


def result(peak: float, applied: int = 1000) -> Result:
    full = Saturation(
        offered=90.0,
        done=45.0,
        seconds=5.0,
        events=450,
        backlog=225,
        in_hand=200,
        in_hand_limit=200,
        growth=1.5,
        drained=3.0,
        samples=[],
    )
    names = (("base", 30.0, 10.0), ("peak", 90.0, peak), ("base again", 30.0, 9.0))
    return Result(
        broker="nats",
        began=NOON,
        cores=2,
        load_before=0.1,
        capacity=150.0,
        base=30.0,
        factor=3.0,
        latencies=[
            Latency(phase=name, rate=rate, events=10, p50=1.0, p99=p99, p999=p99, worst=p99)  # type: ignore[arg-type]
            for name, rate, p99 in names
        ],
        seconds=[],
        saturation=full,
        committed=1000,
        applied=applied,
        verdict="adds up",
    )


@pytest.mark.parametrize(("peak", "met"), [(19.0, True), (21.0, False)])
def test_the_peak_is_judged_by_its_ratio_to_the_base(peak: float, met: bool) -> None:
    [reading] = [one for one in readings(result(peak)) if one.goal == GOAL]
    assert reading.ours == pytest.approx(peak / 10)
    assert reading.met is met


def test_an_event_that_is_not_applied_misses_the_goal() -> None:
    assert [one.met for one in readings(result(10.0, applied=999)) if one.unit == "events"] == [False]
