"""Sagas in every order of arrival, with failures, copies, cancels and deadlines in between: money is kept for a service or not
at all, it is given once, and nothing stands still."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType

import pytest

from posthouse.testing import Orders
from tests.faults.orders import hotel, payouts, synchronous
from tests.kit.long import LONG

pytestmark = pytest.mark.timeout(1800 if LONG else 300)

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def example(name: str) -> ModuleType:
    """A file of docs/examples, which may be a script."""
    spec = importlib.util.spec_from_file_location(f"orders_of_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # whose annotations are read there
    spec.loader.exec_module(module)
    return module


def played(orders: Orders, limit: int) -> None:
    """Violations are raised before; what was not played shows none."""
    print(orders)
    assert orders.runs == limit or orders.whole


@pytest.mark.parametrize("name", ["test_orders", "test_claims"])
async def test_an_example_of_the_docs_keeps_its_promises_in_every_order(name: str) -> None:
    limit = 20_000 if LONG else 120
    played(await example(name).play(limit), limit)


def test_the_payment_of_plain_code_is_completed_or_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # it is a script, which makes a database here
    script = example("synchronous")
    orders = asyncio.run(synchronous.play(script, 1000))
    assert orders.whole
    assert orders.runs > 40


async def test_a_payout_that_is_called_for_is_made_once_or_recalled() -> None:
    limit = 20_000 if LONG else 120
    played(await payouts.play(limit), limit)


@pytest.mark.parametrize(
    "play", [hotel.play_booking, hotel.play_check_in, hotel.play_check_out, hotel.play_date_change]
)
async def test_a_saga_of_melmastoon_keeps_its_promises_in_every_order(
    play: Callable[[int], Awaitable[Orders]],
) -> None:
    limit = 10_000 if LONG else 100
    played(await play(limit), limit)
