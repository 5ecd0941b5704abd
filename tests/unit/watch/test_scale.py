"""What an autoscaler reads: a backlog, who works on it, and for how long; and never a 0 that nobody knows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from posthouse.watch.samples import Sample
from posthouse.watch.scale import Scale, Scaling, Work, scale_answer

BILLING = {"service": "shop", "consumer": "shop.billing"}


def figures(
    *,
    in_flight: int | None = 0,
    applied: int = 0,
    due: int = 0,
    unsent: int = 0,
    committed: int = 0,
    store: int = 1,
    broker: int = 1,
) -> Sequence[Sample]:
    """As they are read of one service with one consumer of two topics; an `in_flight` of None is not known in one of them."""
    shop = {"service": "shop"}
    up = [Sample("store_up", shop, store), Sample("broker_up", shop, broker)]
    if not store:
        return up[:1]
    counted = [
        Sample("consumer_unknown", {**BILLING, "topic": "orders"}, 0),
        Sample("consumer_unknown", {**BILLING, "topic": "refunds"}, 0),
        Sample("consumer_applied_total", {**BILLING, "topic": "orders"}, applied),
        Sample("consumer_in_flight", {**BILLING, "topic": "refunds"}, 1),
        Sample("held_due", BILLING, due),
        Sample("consumer_workers", BILLING, 3),
        Sample("outbox_unsent", {**shop, "topic": "orders"}, unsent),
        Sample("outbox_committed_total", {**shop, "topic": "orders"}, committed),
        Sample("workers", {**shop, "part": "relay"}, 2),
        Sample("workers", {**shop, "part": "consumers"}, 5),
    ]
    if in_flight is not None and broker:
        counted.append(Sample("consumer_in_flight", {**BILLING, "topic": "orders"}, in_flight))
    return [*up, *counted]


@pytest.fixture
def scaling() -> Scaling:
    return Scaling({"shop.billing": "shop"})


def billing(scale: Scale) -> Work:
    return scale.consumers["shop.billing"]


def test_a_backlog_is_what_is_in_flight_in_all_topics_and_what_is_due(scaling: Scaling) -> None:
    work = billing(scaling.look(figures(in_flight=40, due=2), at=0))
    assert (work.backlog, work.workers, work.unknown) == (43, 3, "")


def test_a_rate_needs_two_looks_and_a_backlog_does_not(scaling: Scaling) -> None:
    first = billing(scaling.look(figures(in_flight=99, applied=1_000), at=100))
    assert (first.backlog, first.rate, first.drain_seconds) == (100, None, None)
    then = billing(scaling.look(figures(in_flight=99, applied=1_050), at=110))
    assert (then.rate, then.drain_seconds) == (5.0, 20.0)


def test_the_same_look_twice_is_one(scaling: Scaling) -> None:
    scaling.look(figures(applied=1), at=100)
    assert billing(scaling.look(figures(applied=1), at=100)).rate is None


def test_a_rate_is_of_the_last_minute(scaling: Scaling) -> None:
    for second in range(0, 600, 10):
        work = billing(scaling.look(figures(applied=second * (1 if second < 300 else 10)), at=second))
    assert work.rate == 10.0


def test_looks_that_are_minutes_apart_have_a_rate_as_well(scaling: Scaling) -> None:
    scaling.look(figures(applied=0), at=0)
    assert billing(scaling.look(figures(applied=600), at=600)).rate == 1.0


def test_where_nothing_moves_nobody_knows_when_it_is_done(scaling: Scaling) -> None:
    scaling.look(figures(in_flight=9), at=0)
    work = billing(scaling.look(figures(in_flight=9), at=10))
    assert (work.backlog, work.rate, work.drain_seconds) == (10, 0.0, None)


def test_what_has_no_backlog_is_done_now(scaling: Scaling) -> None:
    relay = scaling.look(figures(), at=0).relays["shop"]
    assert (relay.backlog, relay.drain_seconds) == (0, 0.0)


def test_the_work_of_a_relay_is_what_is_not_sent(scaling: Scaling) -> None:
    scaling.look(figures(unsent=10, committed=10), at=0)
    relay = scaling.look(figures(unsent=30, committed=50), at=10).relays["shop"]
    assert (relay.backlog, relay.workers, relay.rate, relay.drain_seconds) == (30, 2, 2.0, 15.0)


def test_a_counter_that_went_back_is_no_rate_below_0(scaling: Scaling) -> None:
    scaling.look(figures(applied=1_000), at=0)
    assert billing(scaling.look(figures(applied=10), at=10)).rate == 0.0


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        ([], "the store of shop did not answer"),
        (figures(store=0), "the store of shop did not answer"),
        (figures(broker=0), "the broker of shop did not answer"),
        (figures(in_flight=None), "the broker cannot count what waits for it in orders"),
    ],
)
def test_what_nobody_knows_is_an_error_and_never_0(scaling: Scaling, samples: Sequence[Sample], why: str) -> None:
    scale = scaling.look(samples, at=0)
    assert billing(scale).backlog is None
    assert why in billing(scale).unknown
    status, value = scale_answer(scale, {"consumer": "shop.billing"})
    assert (status, value) == (503, billing(scale))
    assert scale_answer(scale, {})[0] == 503


def test_a_consumer_that_was_seen_once_stays_known(scaling: Scaling) -> None:
    generation = {"service": "shop", "consumer": "shop.listings.g1", "topic": "orders"}
    more = [Sample("consumer_unknown", generation, 0), Sample("consumer_in_flight", generation, 7)]
    assert scaling.look([*figures(), *more], at=0).consumers["shop.listings.g1"].backlog == 7
    assert scaling.look(figures(store=0), at=1).consumers["shop.listings.g1"].backlog is None


def test_one_of_them_is_asked_for_by_its_name(scaling: Scaling) -> None:
    scale = scaling.look(figures(in_flight=4, unsent=2), at=0)
    assert scale_answer(scale, {"consumer": "shop.billing"}) == (200, billing(scale))
    assert scale_answer(scale, {"relay": "shop"}) == (200, scale.relays["shop"])
    assert scale_answer(scale, {}) == (200, scale)


@pytest.mark.parametrize(
    ("query", "status", "why"),
    [
        ({"consumer": "shop.biling"}, 404, "there is no consumer 'shop.biling' here. Did you mean 'shop.billing'?"),
        ({"consumer": ""}, 404, "there is no consumer '' here. Known: shop.billing."),
        ({"relay": "shpo"}, 404, "there is no relay 'shpo' here. Did you mean 'shop'?"),
        ({"consumr": "shop.billing"}, 404, "/scale takes consumer and relay, not 'consumr'. Did you mean 'consumer'?"),
        ({"consumer": "shop.billing", "relay": "shop"}, 400, "one of them"),
    ],
)
def test_what_is_misspelled_is_an_error_with_the_right_word(
    scaling: Scaling, query: dict[str, str], status: int, why: str
) -> None:
    answered, value = scale_answer(scaling.look(figures(), at=0), query)
    assert answered == status
    assert isinstance(value, dict)
    assert why in value["unknown"]
