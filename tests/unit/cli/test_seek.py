"""`posthouse seek`: by time and by position, with words for what cannot be."""

from __future__ import annotations

from tests.unit.cli.conftest import Project

LONG_AGO = "2001-01-01T00:00:00Z"
FAR_OFF = "2999-01-01T00:00:00Z"


def moved(project: Project, *arguments: str) -> object:
    report = project.json("seek", "shop:orders", "--yes", *arguments)
    assert isinstance(report, dict)
    return report["topics"]["shop.orders.order"]


def test_a_consumer_goes_back_and_ahead_by_time(project: Project) -> None:
    project.place(("a", 1), ("b", 2))
    project.settle(applied=2, held=0)
    assert moved(project, "--time", LONG_AGO) == {"unread_before": 0, "unread": 2}
    assert moved(project, "--time", FAR_OFF) == {"unread_before": 2, "unread": 0}


def test_a_consumer_goes_to_a_position(project: Project) -> None:
    project.place(("a", 1), ("b", 2), ("c", 3))
    project.settle(applied=3, held=0)
    assert moved(project, "--position", "2") == {"unread_before": 0, "unread": 2}


def test_going_back_applies_nothing_twice(project: Project) -> None:
    project.place(("a", 1), ("b", 2))
    project.settle(applied=2, held=0)
    moved(project, "--time", LONG_AGO)
    project.place(("a", 3))
    project.settle(applied=3, held=0)
    assert sorted(project.invoices(), key=str) == [("a", 1), ("a", 3), ("b", 2)]


def test_it_asks_before_it_moves(project: Project) -> None:
    result = project.run("seek", "shop:orders", "--time", LONG_AGO, input="n\n")
    assert result.exit_code == 1
    assert "Move orders to" in result.output
    assert not list(project.folder.glob("*.db"))


def test_what_is_said_wrongly_is_refused_with_the_right_words(project: Project) -> None:
    project.run("db", "upgrade", "shop")
    for arguments, words in {
        (): "--time 2026-04-22T10:00:00Z, or --position",
        ("--time", LONG_AGO, "--position", "1"): "--time 2026-04-22T10:00:00Z, or --position",
        ("--time", "yesterday"): "is not a time",
        ("--time", "2026-04-22T10:00:00"): "in which zone",
        ("--time", LONG_AGO, "--consumer", "ordres"): "it has orders",
        ("--time", LONG_AGO, "--topic", "shop.orders.oder"): "'shop.orders.order'?",
        ("--position", "first", "--topic", "shop.orders.order"): "whole numbers",
    }.items():
        project.run("topology", "apply", "shop:orders", "--yes")
        result = project.run("seek", "shop:orders", "--yes", *arguments)
        assert result.exit_code == 2, arguments
        assert words in result.stderr, arguments


QUEUE = """
import unread
from posthouse import App, Event, Service, Tx

orders = Service("orders", namespace="shop")
App(orders, broker=unread.broker)


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced:
    order_id: str


@orders.on(OrderPlaced)
async def hear(event: Event[OrderPlaced], tx: Tx) -> None: ...
"""
UNREAD = """
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import SeekUnsupported


class Queue(MemoryBroker):
    async def seek(self, group, topic, *, position=None, time=None):
        raise SeekUnsupported(f"{type(position).__name__}: queues keep no history: replay from the archive")


broker = Queue(clock=SystemClock())
"""


def test_a_broker_without_history_names_the_archive(project: Project) -> None:
    project.run("db", "upgrade", "shop")
    project.write("unread.py", UNREAD)
    project.write("shop.py", QUEUE)
    for arguments, kind in (
        (("--time", LONG_AGO), "NoneType"),
        (("--position", "7"), "int"),
        (("--position", "0:7"), "str"),
    ):
        result = project.run("seek", "shop:orders", "--yes", *arguments)
        assert result.exit_code == 2
        assert f"{kind}: queues keep no history: replay from the archive" in result.stderr
