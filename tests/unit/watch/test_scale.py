"""What an autoscaler reads: a backlog, who works on it, and for how long; and never a 0 that nobody knows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from posthouse import App, Event, Payload, Service
from posthouse.watch.samples import Sample
from posthouse.watch.scale import Scale, Scaling, Work

BILLING = {"service": "billing", "consumer": "billing"}
APP = {"service": "shop, billing"}


def figures(
    *,
    in_flight: int | None = 0,
    applied: int = 0,
    due: int = 0,
    unsent: int = 0,
    committed: int = 0,
    store: int = 1,
    broker: int = 1,
    workers: int = 3,
) -> Sequence[Sample]:
    """As they are read of one App with one consumer of two topics; an `in_flight` of None is not known in one of them."""
    shop = {"service": "shop"}
    up = [Sample("store_up", APP, store), Sample("broker_up", APP, broker)]
    if not store:
        return up[:1]
    counted = [
        Sample("consumer_unknown", {**BILLING, "topic": "orders"}, 0),
        Sample("consumer_unknown", {**BILLING, "topic": "refunds"}, 0),
        Sample("consumer_applied_total", {**BILLING, "topic": "orders"}, applied),
        Sample("consumer_in_flight", {**BILLING, "topic": "refunds"}, 1),
        Sample("held_due", BILLING, due),
        Sample("consumer_workers", BILLING, workers),
        Sample("outbox_unsent", {**shop, "topic": "orders"}, unsent),
        Sample("outbox_sent_total", {**shop, "topic": "orders"}, committed - unsent),
        Sample("outbox_unsent", {**APP, "topic": "(others)"}, 1),
        Sample("workers", {**shop, "part": "relay"}, 2),
        Sample("workers", {"service": "billing", "part": "relay"}, 2),
        Sample("workers", {**shop, "part": "consumers"}, 5),
    ]
    if in_flight is not None and broker:
        counted.append(Sample("consumer_in_flight", {**BILLING, "topic": "orders"}, in_flight))
    return [*up, *counted]


@pytest.fixture
def scaling() -> Scaling:
    shop, billing = Service("shop"), Service("billing")

    @shop.event("order.placed.v1", key="order")
    class OrderPlaced(Payload):
        order: str

    @billing.on(OrderPlaced)
    async def bill(event: Event[OrderPlaced]) -> None: ...

    return Scaling([App(shop, billing, store="sqlite://", broker="memory://")])


def billing(scale: Scale) -> Work:
    return scale.consumers["billing"]


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


def test_where_nobody_works_nobody_knows_when_it_is_done(scaling: Scaling) -> None:
    scaling.look(figures(in_flight=99, applied=0), at=0)
    work = billing(scaling.look(figures(in_flight=99, applied=50, workers=0), at=10))
    assert (work.backlog, work.workers, work.rate, work.drain_seconds) == (100, 0, 5.0, None)


def test_what_has_no_backlog_is_done_now(scaling: Scaling) -> None:
    work = billing(scaling.look(figures(in_flight=-1), at=0))
    assert (work.backlog, work.drain_seconds) == (0, 0.0)


def test_the_work_of_a_relay_is_what_is_not_sent(scaling: Scaling) -> None:
    scaling.look(figures(unsent=10, committed=10), at=0)
    relay = scaling.look(figures(unsent=30, committed=50), at=10).relays["shop, billing"]
    assert (relay.backlog, relay.workers, relay.rate, relay.drain_seconds) == (31, 2, 2.0, 15.5)


def test_a_counter_that_went_back_is_no_rate_below_0(scaling: Scaling) -> None:
    scaling.look(figures(applied=1_000), at=0)
    assert billing(scaling.look(figures(applied=10), at=10)).rate == 0.0


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        ([], "the store of shop, billing did not answer"),
        (figures(store=0), "the store of shop, billing did not answer"),
        (figures(broker=0), "the broker of shop, billing did not answer"),
        (figures(in_flight=None), "nobody can count what waits for it in orders"),
    ],
)
def test_what_nobody_knows_is_an_error_and_never_0(scaling: Scaling, samples: Sequence[Sample], why: str) -> None:
    scale = scaling.look(samples, at=0)
    assert billing(scale).backlog is None
    assert why in billing(scale).unknown
    assert scaling.answer(scale, {"consumer": "billing"}) == (503, billing(scale))
    assert scaling.answer(scale, {})[0] == 503


def test_one_of_them_is_asked_for_by_its_name(scaling: Scaling) -> None:
    scale = scaling.look(figures(in_flight=4, unsent=2), at=0)
    assert scaling.answer(scale, {"consumer": "billing"}) == (200, billing(scale))
    for name in ("shop", "billing", "shop, billing"):
        assert scaling.answer(scale, {"relay": name}) == (200, scale.relays["shop, billing"])
    assert scaling.answer(scale, {}) == (200, scale)


@pytest.mark.parametrize(
    ("query", "status", "why"),
    [
        ({"consumer": "biling"}, 404, "there is no consumer 'biling' here. Did you mean 'billing'?"),
        ({"consumer": ""}, 404, "there is no consumer '' here. Known: billing."),
        ({"relay": "shpo"}, 404, "there is no relay 'shpo' here. Did you mean 'shop'?"),
        ({"consumr": "billing"}, 404, "/scale takes consumer and relay, not 'consumr'. Did you mean 'consumer'?"),
        ({"consumer": "billing", "relay": "shop"}, 400, "one of them"),
    ],
)
def test_what_is_misspelled_is_an_error_with_the_right_word(
    scaling: Scaling, query: dict[str, str], status: int, why: str
) -> None:
    answered, value = scaling.answer(scaling.look(figures(), at=0), query)
    assert answered == status
    assert isinstance(value, dict)
    assert why in value["error"]


def test_a_named_consumer_is_found_by_the_name_that_it_was_declared_with() -> None:
    pickups = Service("pickups")

    @pickups.event("parcel.fetched.v1", key="parcel")
    class ParcelFetched(Payload):
        parcel: str

    for name in ("board", "pickups"):

        @pickups.on(ParcelFetched, consumer=name)
        async def note(event: Event[ParcelFetched]) -> None: ...

    scaling = Scaling([App(pickups, store="sqlite://", broker="memory://")])
    status, value = scaling.answer(scaling.look([], at=0), {"consumer": "pickups"})
    assert (status, value) == (404, {"error": "there is no consumer 'pickups' here. Did you mean 'pickups.pickups'?"})
