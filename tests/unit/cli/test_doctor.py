"""`posthouse doctor`: every check with what was found, and a fix for what is not ok."""

from __future__ import annotations

import json
import sqlite3

from posthouse.broker import Capabilities
from posthouse.cli.sheet import sheet_rows
from posthouse.promise import promise_of
from tests.unit.cli.conftest import Project


def checks_of(report: object, part: str) -> dict[str, dict[str, str]]:
    assert isinstance(report, dict)
    (found,) = [examination for examination in report["examinations"] if examination["part"] == part]
    return {check["name"]: check for check in found["checks"]}


def test_a_service_that_never_ran_is_healthy_and_nothing_is_made(project: Project) -> None:
    report = project.json("doctor", "shop:orders")
    assert isinstance(report, dict)
    assert report["healthy"] is True
    assert "not there yet" in checks_of(report, "store")["file"]["found"]
    assert not list(project.folder.glob("*.db"))


def test_every_check_of_a_used_store_is_shown_with_its_finding(project: Project) -> None:
    project.place(("a", 1))
    project.settle(applied=1, held=0)
    result = project.run("doctor", "shop:orders")
    assert result.exit_code == 0, result.output
    for name in ("SQLite", "filesystem", "journal_mode", "synchronous", "mmap_size", "room", "migrations", "wake-up"):
        assert f"\n{name} " in result.stdout
    report = project.json("doctor", "shop:orders")
    assert checks_of(report, "store")["journal_mode"]["found"] == "wal"
    assert checks_of(report, "broker")["synchronous"]["found"] == "FULL"


def test_shards_that_nobody_holds_are_a_warning_with_a_fix(project: Project) -> None:
    project.place(("a", 1))
    result = project.run("doctor", "shop:orders")
    assert result.exit_code == 0, "a warning is not a failure"
    shards = checks_of(project.json("doctor", "shop:orders"), "store")["shards"]
    assert shards["judgement"] == "warn"
    assert shards["found"] == "relays hold 0 of 16"
    assert "posthouse run" in result.stdout


def test_dead_and_stuck_events_are_counted(poisoned: Project) -> None:
    found = checks_of(poisoned.json("doctor", "shop:orders"), "store")
    assert (found["dead events"]["found"], found["dead events"]["judgement"]) == ("1", "warn")
    assert "posthouse held list" in found["dead events"]["fix"]
    assert found["stuck keys"]["judgement"] == "ok"


def test_the_promise_follows_from_the_sheet(project: Project) -> None:
    text = project.run("doctor", "shop:orders").stdout
    assert "survives a crash of the broker's machine: yes, because" in text
    assert "in order per key: yes, because" in text


def test_a_careless_log_is_told_so(project: Project) -> None:
    text = (project.folder / "shop.py").read_text()
    project.write(
        "shop.py",
        text + '\nfrom posthouse import App\n\nApp(orders, broker="embedded:///log.db?synchronous=NORMAL")\n',
    )
    project.place(("a", 1))
    project.settle(applied=1, held=0)
    result = project.run("doctor", "shop:orders")
    assert result.exit_code == 0
    assert "survives a crash of the broker's machine: no, because" in result.stdout
    assert "power cut" in result.stdout


def test_what_cannot_be_opened_is_a_finding_and_ends_with_code_1(project: Project) -> None:
    (project.folder / "orders.db").write_bytes(b"this is no database" * 400)
    result = project.run("doctor", "shop:orders", "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["healthy"] is False
    assert checks_of(report, "store")["opening"]["judgement"] == "fail"
    assert "memory" not in checks_of(report, "broker")


def test_two_services_are_examined_one_after_the_other(project: Project) -> None:
    project.write(
        "billing.py",
        'from posthouse import App, Service\n\nbilling = Service("billing")\nApp(billing, broker="memory://")\n',
    )
    report = project.json("doctor", "shop", "billing")
    assert isinstance(report, dict)
    assert [(found["service"], found["part"]) for found in report["examinations"]] == [
        ("orders", "store"),
        ("orders", "broker"),
        ("billing", "store"),
        ("billing", "broker"),
    ]


def test_a_narrow_terminal_gets_every_finding(project: Project) -> None:
    project.place(("a", 1))
    text = project.run("doctor", "shop:orders", columns=40).stdout
    assert "journal_mode" in text
    assert "wal" in text


def test_looking_changes_nothing(project: Project) -> None:
    project.place(("a", 1))
    with sqlite3.connect(project.folder / "orders.db") as connection:
        before = list(connection.iterdump())
    connection.close()
    project.run("doctor", "shop:orders")
    with sqlite3.connect(project.folder / "orders.db") as connection:
        assert list(connection.iterdump()) == before
    connection.close()


def test_every_line_of_the_sheet_is_said_in_words(project: Project) -> None:
    text = project.run("doctor", "shop:orders").stdout
    for field in Capabilities.__struct_fields__:
        if field not in ("name", "notes"):
            assert f"\n{field} " in text, field
    assert "8 MiB" in text
    assert "`posthouse seek` moves a consumer back and ahead" in text


def test_a_broker_that_can_do_nothing_is_described_too() -> None:
    poor = Capabilities(
        name="poor",
        durable_ack=False,
        ordered_publish=False,
        ordered_redelivery=False,
        history=False,
        binary_body=False,
        retains_unacked=False,
        max_bytes=262_144,
        header_limit=10,
        native_dedup_s=300.0,
    )
    rows = {name: (value, meaning) for name, value, meaning in sheet_rows(poor)}
    assert rows["seek"] == ("no", "there is no way back: replay from the archive")
    assert rows["max_bytes"][0] == "256 KiB"
    assert rows["header_limit"][0] == "10"
    assert rows["native_dedup_s"][0] == "5 min"
    assert {name for name, (value, _) in rows.items() if value == "yes"} == set()


def test_the_topology_is_compared(project: Project) -> None:
    assert checks_of(project.json("doctor", "shop"), "broker")["topology"]["found"].startswith("3 not made yet")
    project.run("topology", "apply", "shop", "--yes")
    assert checks_of(project.json("doctor", "shop"), "broker")["topology"]["found"] == "as declared"
    source = (project.folder / "shop.py").read_text(encoding="utf-8")
    project.write("shop.py", source.replace("order.placed.v1", "refund.paid.v1"))
    found = checks_of(project.json("doctor", "shop"), "broker")["topology"]
    assert (found["found"], found["judgement"]) == ("3 missing, 0 set otherwise, 3 not declared any more", "warn")


MAPPED = """
from posthouse import Event, Policy, Service, Tx

orders = Service("orders", namespace="shop", topics="{topics}")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced:
    order_id: str


@orders.event("order.cancelled.v1", key="order_id")
class OrderCancelled:
    order_id: str


@orders.on(OrderPlaced, OrderCancelled, policy=Policy(order={order}))
async def hear(event: Event[OrderPlaced], tx: Tx) -> None: ...
"""


SHY = """
from posthouse import App, Service
from posthouse.broker import Topology
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import BrokerError


class Shy(MemoryBroker):
    async def survey(self, topology: Topology) -> list:
        raise BrokerError("you may not list topics")


orders = Service("orders", namespace="shop")
App(orders, broker=Shy(clock=SystemClock()))
"""


def test_a_service_that_may_not_list_is_examined_all_the_same(project: Project) -> None:
    project.write("shop.py", SHY)
    found = checks_of(project.json("doctor", "shop:orders"), "broker")
    assert found["topology"]["judgement"] == "warn"
    assert "you may not list topics" in found["topology"]["found"]
    assert "memory" in found


def test_order_that_is_lost_between_topics_is_told(project: Project) -> None:
    for topics, order, told in (
        ("subject", '"key"', True),
        ("aggregate", '"key"', False),
        ("subject", '"none"', False),
    ):
        project.write("shop.py", MAPPED.format(topics=topics, order=order))
        found = checks_of(project.json("doctor", "shop"), "broker")
        assert ("order in orders" in found) == told, (topics, order)
        if told:
            assert "shop.orders.order comes by 2 topics" in found["order in orders"]["found"]


def test_a_promise_that_many_findings_weaken_names_one_and_counts_the_others() -> None:
    def because(*notes: str) -> str:
        sheet = Capabilities(name="poor", durable_ack=False, ordered_publish=True, ordered_redelivery=True, notes=notes)
        return promise_of(sheet)[2].because

    assert because() == "it answers before the frame is stored for good"
    assert because("fsync is off") == "fsync is off"
    assert because("fsync is off", "one", "two") == "fsync is off (and 2 more of the checks above)"


def test_a_store_on_a_server_with_a_log_of_one_host_is_a_failure_with_its_fix(project: Project) -> None:
    text = (project.folder / "shop.py").read_text()
    project.write(
        "shop.py", text + '\nfrom posthouse import App\n\nApp(orders, store="postgresql://shop@localhost:1/shop")\n'
    )
    result = project.run("doctor", "shop:orders", "--json")
    assert result.exit_code == 1
    reach = checks_of(json.loads(result.stdout), "broker")["reach"]
    assert reach["judgement"] == "fail"
    assert "embedded:///posthouse-log.db, which one host alone sees" in reach["found"]
    assert "single_host=true" in reach["fix"]
