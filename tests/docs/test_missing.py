"""The page on missing events: its commands, run one after the other where events are missing."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from posthouse.app import App, app_of
from posthouse.cli import app as cli
from posthouse.cli.target import services_of
from tests.kit.waiting import eventually

PAGE = (Path(__file__).parents[2] / "docs" / "missing.md").read_text(encoding="utf-8")
APP = """
from posthouse import App, Event, Payload, Service, Tx

orders, billing = Service("orders", namespace="shop"), Service("billing", namespace="shop")
app = App(orders, billing)


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@billing.on(OrderPlaced)
async def invoice(event: Event[OrderPlaced], tx: Tx) -> None: ...
"""


def commands(after: str) -> list[list[str]]:
    """The first block behind a heading, line by line."""
    found = re.search(r"```\n(.*?)```", PAGE[PAGE.index(after) :], re.DOTALL)
    assert found is not None
    return [shlex.split(line)[1:] for line in found[1].splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two of three events are missing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    asyncio.run(work(["a"], consume=True))
    asyncio.run(work(["a", "b"], consume=False))
    for file in tmp_path.glob("posthouse-log.db*"):
        file.unlink()
    asyncio.run(work([], consume=True))  # the topic is made again
    yield tmp_path
    sys.modules.pop("app", None)


async def work(said: list[str], *, consume: bool, applied: int = 1) -> None:
    """Say these, and let them be sent or applied."""
    sys.modules.pop("app", None)
    orders = services_of("app")[0]
    host, made = app_of(orders), sys.modules["app"].OrderPlaced
    async with host.running(only=["relay", "consumers"] if consume else ["relay"]), asyncio.timeout(30):
        async with orders.transaction("t1") as tx:
            for order_id in said:
                tx.publish(made(order_id=order_id))
        await eventually(partial(_is_done, host, applied if consume else 0))


async def _is_done(host: App, applied: int) -> bool:
    counts = await host.store.counts()
    return not counts.unsent and sum(counts.applied.values()) >= applied


def run(command: list[str]) -> Result:
    sys.modules.pop("app", None)
    return CliRunner().invoke(cli, command, input="y\n", catch_exceptions=False)


def test_what_is_missing_is_sent_again_as_the_page_says(folder: Path) -> None:
    assert "2 missing" in run(["status", "app"]).stdout
    looked, sent, _ = (run(command) for command in commands("## Send them again"))
    assert "2 events would be sent again" in looked.stdout
    assert "2 events sent again" in sent.stdout, sent.output
    asyncio.run(work([], consume=True, applied=3))
    assert "adds up ✓" in run(commands("## Send them again")[-1]).stdout


def test_what_nobody_has_is_accepted_as_the_page_says(folder: Path) -> None:
    accepted, status, actions = (run(command) for command in commands("## When nobody has them"))
    assert "2 events accepted as lost" in accepted.stdout, accepted.output
    assert "by ann" in status.stdout
    assert "booked by hand" in status.stdout
    assert "outbox accept-loss" in actions.stdout
