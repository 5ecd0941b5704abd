"""Durations and outcomes at the seam."""

from __future__ import annotations

import pytest

from posthouse.clock import ManualClock
from posthouse.seam import Timing
from posthouse.seam.timing import MOST, OTHERS, merged, read_timing
from posthouse.store import Worker
from posthouse.stores import open_store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timing(clock: ManualClock) -> Timing:
    return Timing(clock.monotonic)


def test_a_note_counts_how_often_how_long_and_how_it_ended(clock: ManualClock, timing: Timing) -> None:
    for seconds, outcome in ((0.5, "ok"), (1.5, "ok"), (0.25, "refused")):
        began = timing.now()
        clock.advance(seconds)
        timing.note("publish", "orders", began, outcome)
    fine, refused = timing.figures()
    assert (fine.crossing, fine.name, fine.outcome) == ("publish", "orders", "ok")
    assert (fine.count, fine.total, fine.longest, fine.mean) == (2, 2.0, 1.5, 1.0)
    assert (refused.outcome, refused.count, refused.total) == ("refused", 1, 0.25)


def test_a_block_that_raises_is_noted_under_the_name_of_its_error(timing: Timing) -> None:
    with pytest.raises(LookupError), timing.measure("handler", "invoice"):
        raise LookupError
    with timing.measure("handler", "invoice") as crossing:
        crossing.outcome = "held"
    with timing.measure("handler", "invoice"):
        pass
    assert [(figure.outcome, figure.count) for figure in timing.figures()] == [
        ("LookupError", 1),
        ("held", 1),
        ("ok", 1),
    ]


def test_a_share_of_them_is_told_within_a_factor_of_two(clock: ManualClock, timing: Timing) -> None:
    for seconds in [0.001] * 98 + [0.1, 90.0]:
        began = timing.now()
        clock.advance(seconds)
        timing.note("receive", "billing", began)
    (figure,) = timing.figures()
    assert 0.001 <= figure.within(0.5) <= 0.002
    assert 0.1 <= figure.within(0.99) <= 0.2
    assert figure.within(1.0) == figure.longest == pytest.approx(90.0)
    assert sum(figure.buckets) == figure.count == 100


def test_what_took_no_time_and_a_clock_that_went_back_are_counted_all_the_same(timing: Timing) -> None:
    timing.note("inward", "billing", timing.now())
    timing.note("inward", "billing", timing.now() + 5)
    (figure,) = timing.figures()
    assert (figure.count, figure.buckets[0], figure.longest) == (2, 2, 0.0)


def test_names_without_end_cost_no_memory_without_end(timing: Timing) -> None:
    for number in range(MOST + 50):
        timing.note("outward", f"name-{number}", timing.now())
    figures = timing.figures()
    assert len(figures) == MOST + 1
    assert next(figure for figure in figures if figure.name == OTHERS).count == 50


def test_figures_of_several_processes_add_up(clock: ManualClock, timing: Timing) -> None:
    other = Timing(clock.monotonic)
    for seconds, one in ((1.0, timing), (3.0, other)):
        began = one.now()
        clock.advance(seconds)
        one.note("transaction", "orders", began)
    other.note("transaction", "billing", other.now())
    billing, orders = merged([*timing.figures(), *other.figures()])
    assert (orders.name, orders.count, orders.total, orders.longest) == ("orders", 2, 4.0, 3.0)
    assert (billing.name, billing.count) == ("billing", 1)
    assert sum(orders.buckets) == 2


async def test_workers_that_are_gone_for_an_hour_are_left_out(timing: Timing) -> None:
    clock = ManualClock()
    store = open_store("sqlite://", clock=clock)
    await store.upgrade()
    timing.note("transaction", "orders", timing.now())
    for id in ("gone", "silent", "here"):
        worker = Worker(id=id, services=["billing", "orders"], name=id, host="desk", pid=1, version="1")
        await store.workers.beat(worker, keep=86_400.0, figures=None if id == "silent" else timing.encoded())
        clock.advance(3_601.0 if id == "gone" else 1.0)
    (written,) = await read_timing(store.workers)
    await store.aclose()
    assert (written.service, written.processes, [figure.count for figure in written.figures]) == (
        "billing, orders",
        1,
        [1],
    )
