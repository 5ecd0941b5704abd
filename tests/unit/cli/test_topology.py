"""`posthouse topology`: a diff first, nothing deleted unless it was said, and nothing to do the second time."""

from __future__ import annotations

import json
import sqlite3

from tests.unit.cli.conftest import Project

REFUNDS = """
from posthouse import Service

orders = Service("orders", namespace="shop")


@orders.event("refund.paid.v1", key="order_id")
class RefundPaid:
    order_id: str
"""


def lines(text: str, sign: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"{sign} ")]


def test_a_plan_shows_what_is_missing_and_makes_nothing(project: Project) -> None:
    result = project.run("topology", "plan", "shop:orders")
    assert result.exit_code == 2
    assert len(lines(result.stdout, "+")) == 3
    assert "group orders in shop.orders.order" in result.stdout
    assert "shop.orders.order.dlq" in result.stdout
    assert not list(project.folder.glob("*.db"))


def test_apply_asks_first_and_makes_nothing_without_a_yes(project: Project) -> None:
    result = project.run("topology", "apply", "shop:orders", input="n\n")
    assert result.exit_code == 1
    assert len(lines(result.stdout, "+")) == 3
    assert not list(project.folder.glob("*.db"))


def test_apply_makes_what_was_shown_and_then_there_is_nothing_to_do(project: Project) -> None:
    assert project.run("topology", "apply", "shop:orders", input="y\n").exit_code == 0
    again = project.run("topology", "plan", "shop:orders")
    assert again.exit_code == 0
    assert "nothing to do" in again.stdout
    assert project.json("topology", "apply", "shop:orders") == {
        "made": 0,
        "brokers": [{"broker": "embedded:///posthouse-log.db", "services": ["orders"], "steps": [], "made": []}],
    }


def test_a_service_that_ran_has_nothing_to_do(project: Project) -> None:
    project.place(("a", 1))
    project.settle(applied=1, held=0)
    assert project.run("topology", "plan", "shop:orders").exit_code == 0


def test_what_is_not_declared_any_more_goes_only_when_that_is_said(project: Project) -> None:
    project.place(("a", 1), ("b", 2))
    project.settle(applied=2, held=0)
    project.write("shop.py", REFUNDS)
    kept = project.run("topology", "apply", "shop:orders", "--yes")
    assert kept.exit_code == 0
    assert len(lines(kept.stdout, "-")) == 3
    assert "loses 2 frames; needs --allow-delete" in kept.stdout
    report = json.loads(project.run("topology", "plan", "shop:orders", "--json").stdout)
    assert report["differences"] == 3
    assert {step["verb"] for step in report["brokers"][0]["steps"]} == {"delete"}
    gone = project.run("topology", "apply", "shop:orders", "--allow-delete", "--yes")
    assert "3 steps made" in gone.stdout
    assert project.run("topology", "plan", "shop:orders").exit_code == 0
    with sqlite3.connect(project.folder / "posthouse-log.db") as log:
        assert log.execute("SELECT count(*) FROM frames").fetchone() == (0,)
    log.close()


def test_drift_that_cannot_be_mended_says_what_to_do(project: Project) -> None:
    project.run("topology", "apply", "shop:orders", "--yes")
    source = (project.folder / "shop.py").read_text(encoding="utf-8")
    app = 'App(orders, broker="embedded:///posthouse-log.db?partitions=3")'
    project.write("shop.py", f"{source}\nfrom posthouse import App\n\n{app}\n")
    result = project.run("topology", "plan", "shop:orders")
    assert result.exit_code == 2
    assert "partitions: 8 → 3" in result.stdout
    assert "say partitions=8 in the broker's URL" in result.stdout
    assert project.run("topology", "apply", "shop:orders", "--yes").exit_code == 0


def test_services_on_one_broker_are_planned_together(project: Project) -> None:
    project.write("audit.py", 'from posthouse import Service\nfrom shop import OrderPlaced\naudit = Service("audit")\n')
    report = json.loads(project.run("topology", "plan", "shop:orders", "audit", "--json").stdout)
    assert [site["services"] for site in report["brokers"]] == [["orders", "audit"]]
