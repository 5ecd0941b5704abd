"""What a type checker says about a user's code: a handler takes the events that it is registered for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SHOP = """
from posthouse import Event, Model, Payload, Policy, Service, Tx

shop = Service("shop")


@shop.event("order.placed.v1", key="order_id")
class Placed(Payload):
    order_id: str


@shop.event("order.paid.v1", key="order_id")
class Paid(Payload):
    order_id: str


@shop.event("order.sent.v1", key="order_id")
class Sent(Payload):
    order_id: str


@shop.on(Placed, consumer="a")
async def one(event: Event[Placed], tx: Tx) -> None: ...


@shop.on(Placed, consumer="b", policy=Policy(grouped=True))
async def many(events: list[Event[Placed]], tx: Tx) -> None: ...


@shop.on(Placed, Paid, consumer="c")
async def two(event: Event[Placed | Paid]) -> Sent: ...


@shop.on(Placed, Paid, Sent, consumer="d")
async def three(event: Event[Placed | Paid | Sent], tx: Tx) -> None: ...


@shop.on(Placed, Paid, consumer="e")
async def any_of_ours(event: Event[Payload], tx: Tx) -> None: ...


@shop.on(Placed)  # wrong
async def another(event: Event[Paid], tx: Tx) -> None: ...


@shop.on(Placed, Paid)  # wrong
async def one_of_two(event: Event[Paid], tx: Tx) -> None: ...


@shop.on(Placed, Paid, Sent)  # wrong
async def two_of_three(event: Event[Placed | Paid], tx: Tx) -> None: ...


@shop.on(Placed)  # wrong
async def many_others(events: list[Event[Paid]], tx: Tx) -> None: ...


shop.on(Placed, consummer="f")  # wrong

listings = shop.projection("listings")


@listings.on(Placed)
async def listed(event: Event[Placed], model: Model) -> None: ...


@listings.on(Paid, Sent, policy=Policy(group_size=10))
async def many_listed(events: list[Event[Paid | Sent]], model: Model) -> None: ...


@listings.on(Placed)  # wrong
async def another_listed(event: Event[Paid], model: Model) -> None: ...


@listings.on(Placed, Paid)  # wrong
async def many_others_listed(events: list[Event[Sent]], model: Model) -> None: ...


listings.on(Placed, consumer="f")  # wrong
"""


@pytest.mark.slow
def test_a_handler_of_another_event_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--allow-empty-bodies",
            "--cache-dir",
            str(tmp_path / "cache"),
            "shop.py",
        ],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
    )
    found = {int(line) for line in re.findall(r"^shop\.py:(\d+): error", checked.stdout, flags=re.M)}
    wrong = {number for number, line in enumerate(SHOP.splitlines(), 1) if "# wrong" in line}
    assert found == wrong, checked.stdout + checked.stderr
