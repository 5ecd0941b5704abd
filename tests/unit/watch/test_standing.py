"""The figures of stores and brokers."""

from __future__ import annotations

from posthouse import Event, Payload, Policy, Service, Tx
from posthouse.app import apps_of
from posthouse.testing import Harness
from posthouse.watch.standing import Standing
from posthouse.watch.table import TABLE
from tests.kit.samples import Found

shop = Service("shop")
ledger = Service("ledger")


@shop.event("order.placed.v1", key="key")
class OrderPlaced(Payload):
    key: str
    number: int = 0


@ledger.on(OrderPlaced, policy=Policy(max_attempts=1))
async def book(event: Event[OrderPlaced], tx: Tx) -> None:
    if event.data.number < 0:
        raise ValueError("no")


async def look(standing: Standing) -> Found:
    return Found(await standing.samples())


def standing_of(*services: Service) -> Standing:
    return Standing(apps_of(services))


async def test_the_figures_follow_events_to_their_ends() -> None:
    async with Harness(shop, ledger) as harness:
        for number in (1, -1, 2):
            await harness.publish(OrderPlaced(key="k", number=number))
        await harness.publish(OrderPlaced(key="other"))
        await harness.settled()
        found = await look(standing_of(shop, ledger))
        line = {"service": "ledger", "consumer": "ledger", "topic": "shop.order"}
        assert found.one("outbox_committed_total", service="shop", topic="shop.order") == 4
        assert found.one("outbox_unsent", service="shop", topic="shop.order") == 0
        assert found.one("consumer_applied_total", **line) == 2
        assert found.one("held", **line, state="dead") == 1
        assert found.one("held", **line, state="blocked") == 1
        assert found.one("consumer_in_flight", **line) == 0
        assert found.one("consumer_lag_seconds", **line) == 0.0
        assert (found.one("consumer_unaccounted", **line), found.one("consumer_unknown", **line)) == (0, 0)
        assert found.of("store_up") == found.of("broker_up") == [1, 1]


async def test_every_sample_is_a_store_figure_and_none_is_said_twice() -> None:
    async with Harness(shop, ledger) as harness:
        await harness.publish(OrderPlaced(key="k"))
        await harness.settled()
        found = await look(standing_of(shop, ledger))
        places = [(one.metric, *sorted(one.labels.items())) for one in found.all]
        assert len(places) == len(set(places))
        assert {TABLE[one.metric].source for one in found.all} == {"store"}
