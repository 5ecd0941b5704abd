"""What differs between a broker and what services declare, from values alone."""

from __future__ import annotations

from typing import Any

import pytest

from posthouse import Service
from posthouse.broker import Topology
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import BrokerError
from posthouse.survey import Drift, Resource, partition_drift, with_missing
from posthouse.testing.chaos import Chaos, ChaosBroker
from posthouse.topology import Scope, Step, carry_out, plan, steps

ORDERS = Scope(topics=frozenset({"shop.orders"}), groups=frozenset({"orders"}))
BOTH = Scope(topics=frozenset({"shop.orders", "shop.billing"}), groups=frozenset({"orders", "billing"}))


def topic(name: str, *drift: Drift, frames: int = 0) -> Resource:
    return Resource(topic=name, called=f"topic {name}", drift=drift, frames=frames)


def place(group: str, name: str, *, at_work: bool = False, frames: int = 0) -> Resource:
    return Resource(topic=name, group=group, called=f"group {group}", at_work=at_work, frames=frames)


def shown(planned: list[Step]) -> list[tuple[str, str, str | None]]:
    return [(step.verb, step.resource.topic, step.resource.group) for step in planned]


def test_what_is_missing_is_created_and_what_is_there_is_left() -> None:
    wanted = Topology(topics=["shop.orders.order"], groups={"orders": ["shop.orders.order"]})
    resources = with_missing(wanted, [topic("shop.orders.order")], lambda name, group: f"{group}@{name}")
    assert shown(steps(wanted, resources, ORDERS)) == [("create", "shop.orders.order", "orders")]
    assert resources[1].called == "orders@shop.orders.order"


def test_a_topic_that_is_only_read_is_wanted_too() -> None:
    resources = with_missing(Topology(groups={"orders": ["shop.stock.item"]}), [], lambda name, group: name)
    assert [(resource.topic, resource.group) for resource in resources] == [
        ("shop.stock.item", None),
        ("shop.stock.item", "orders"),
    ]


def test_only_what_bears_the_name_of_a_service_is_deleted() -> None:
    there = [
        topic("shop.orders.order", frames=1200),
        topic("shop.orders.order.placed.v1"),
        topic("shop.ordersarchive.order"),
        topic("crm.orders.order"),
        place("orders.mailer", "shop.stock.item", frames=7),
        place("ordersarchive", "shop.stock.item"),
    ]
    planned = steps(Topology(), there, ORDERS)
    assert shown(planned) == [
        ("delete", "shop.orders.order", None),
        ("delete", "shop.orders.order.placed.v1", None),
        ("delete", "shop.stock.item", "orders.mailer"),
    ]
    assert [step.loses for step in planned] == ["1,200 frames", "0 frames", "its place, 7 unread"]


def test_a_service_without_a_namespace_does_not_answer_for_a_namespace_of_its_name() -> None:
    scope = Scope(topics=frozenset({"shop"}), groups=frozenset({"shop"}))
    assert [scope.has_topic(name) for name in ("shop", "shop.file", "shop.file.dlq", "shop.file.sent.v1")] == [True] * 4
    assert not scope.has_topic("shop.orders.order")
    assert not scope.has_topic("shop.orders.order.dlq")


def test_dead_letters_stay_as_long_as_their_topic_and_go_with_it() -> None:
    letters = topic("shop.orders.order.dlq")
    assert steps(Topology(topics=["shop.orders.order"]), [topic("shop.orders.order"), letters], ORDERS) == []
    planned = steps(Topology(), [topic("shop.orders.order"), letters], ORDERS)
    assert shown(planned)[1] == ("delete", "shop.orders.order.dlq", None)


def test_a_topic_that_somebody_else_reads_is_not_deleted() -> None:
    there = [topic("shop.orders.order"), place("billing", "shop.orders.order")]
    (step,) = steps(Topology(), there, ORDERS)
    assert "still read by billing" in step.blocked
    assert [step.blocked for step in steps(Topology(), there, BOTH)] == ["", ""]


def test_a_group_at_work_is_not_deleted_and_keeps_its_topic() -> None:
    there = [topic("shop.orders.order"), place("orders", "shop.orders.order", at_work=True)]
    assert all(step.blocked for step in steps(Topology(), there, ORDERS))


def test_settings_are_judged_by_whom_the_topic_belongs_to() -> None:
    drift = Drift(setting="replicas", found="1", wanted="3")
    there = [topic("shop.orders.order", drift), topic("shop.stock.item", drift)]
    wanted = Topology(topics=["shop.orders.order"], groups={"orders": ["shop.stock.item"]})
    resources = [*there, place("orders", "shop.stock.item")]
    (step,) = steps(wanted, resources, ORDERS)
    assert (step.verb, step.resource.topic, step.drift) == ("change", "shop.orders.order", (drift,))
    assert not step.blocked


def test_what_stays_for_ever_blocks_a_change_only_when_nothing_else_differs() -> None:
    (fixed,) = partition_drift(8, 4)
    other = Drift(setting="replicas", found="1", wanted="3")
    wanted = Topology(topics=["shop.orders.order"])
    (alone,) = steps(wanted, [topic("shop.orders.order", fixed)], ORDERS)
    assert "partitions=8" in alone.blocked
    (mixed,) = steps(wanted, [topic("shop.orders.order", fixed, other)], ORDERS)
    assert not mixed.blocked
    assert partition_drift(8, 8) == []


async def test_a_change_that_loses_frames_waits_until_it_is_allowed() -> None:
    drift = Drift(setting="max_age", found="none", wanted="60 s", loses="frames older than 60 s")
    planned = steps(Topology(topics=["shop.orders.order"]), [topic("shop.orders.order", drift)], ORDERS)
    broker = MemoryBroker(clock=SystemClock())
    assert await carry_out(broker, Topology(), planned, allow_delete=False) == []
    assert await carry_out(broker, Topology(), planned, allow_delete=True) == planned


async def test_a_plan_that_was_carried_out_leaves_nothing_to_do() -> None:
    broker, wanted = MemoryBroker(clock=SystemClock()), Topology(groups={"orders": ["shop.orders.order"]})
    await broker.ensure(Topology(topics=["shop.orders.old", "shop.stock.item"], groups={"orders": ["shop.orders.old"]}))
    planned = await plan(broker, wanted, ORDERS)
    kept = await carry_out(broker, wanted, planned, allow_delete=False)
    assert [step.verb for step in kept] == ["create", "create"]
    left = await plan(broker, wanted, ORDERS)
    assert [step.verb for step in left] == ["delete", "delete"]
    await carry_out(broker, wanted, left, allow_delete=True)
    assert await plan(broker, wanted, ORDERS) == []
    assert set(broker.log.topics) == {"shop.orders.order", "shop.stock.item"}


async def test_a_broker_that_shows_nothing_says_so() -> None:
    broker: Any = ChaosBroker(MemoryBroker(clock=SystemClock()), Chaos(), seed=1)
    with pytest.raises(BrokerError, match="cannot show what it has"):
        await plan(broker, Topology(), ORDERS)


def test_the_scope_of_services_is_their_full_name() -> None:
    scope = Scope.of([Service("orders", namespace="shop"), Service("audit")])
    assert scope == Scope(topics=frozenset({"shop.orders", "audit"}), groups=frozenset({"orders", "audit"}))


def test_settings_of_a_group_are_judged_by_whose_group_it_is_and_not_where_it_goes_anyway() -> None:
    drift = Drift(setting="ack deadline", found="10 s", wanted="60 s")
    theirs, ours = (
        Resource(topic="shop.stock.item", group=group, called=group, drift=[drift]) for group in ("billing", "orders")
    )
    wanted = Topology(groups={"orders": ["shop.stock.item"], "billing": ["shop.stock.item"]})
    there = [topic("shop.stock.item"), theirs, ours]
    assert shown(steps(wanted, there, ORDERS)) == [("change", "shop.stock.item", "orders")]
    assert shown(steps(Topology(), there, ORDERS)) == [("delete", "shop.stock.item", "orders")]


async def test_what_is_blocked_is_never_carried_out() -> None:
    broker = MemoryBroker(clock=SystemClock())
    await broker.ensure(Topology(topics=["shop.orders.order"], groups={"billing": ["shop.orders.order"]}))
    planned = await plan(broker, Topology(), ORDERS)
    assert [step.verb for step in planned] == ["delete"]
    assert await carry_out(broker, Topology(), planned, allow_delete=True) == []
    assert "shop.orders.order" in broker.log.topics
