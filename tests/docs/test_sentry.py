"""The recipe for Sentry, with a transport that keeps what would be sent."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any, ClassVar

import pytest

from posthouse.testing import Harness
from tests.kit.waiting import eventually

RECIPE = Path(__file__).parents[2] / "docs" / "examples" / "recipes" / "sentry_app.py"

if "CI" not in os.environ:
    pytest.importorskip("sentry_sdk", reason="pip install -e .[dev]")


async def test_a_dead_event_is_one_issue_with_its_exception_and_its_facts() -> None:
    import sentry_sdk
    from sentry_sdk.transport import Transport

    class Kept(Transport):
        """Sends nothing."""

        sent: ClassVar[list[Any]] = []

        def capture_envelope(self, envelope: Any) -> None:
            self.sent.append(envelope.get_event())

    spec = importlib.util.spec_from_file_location("sentry_app", RECIPE)
    assert spec is not None
    assert spec.loader is not None
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    sentry_sdk.init(dsn="https://key@sentry.example/1", transport=Kept)
    try:
        async with Harness(recipe.shop) as harness:
            await harness.publish(recipe.OrderPlaced(order_id="o1"), tenant="acme")
            await harness.settled()
            assert Kept.sent == [], "it is tried again"
            await harness.advance(3600)
            for _ in range(10):
                if Kept.sent:
                    break
                await harness.advance(3600)
            [issue] = await eventually(lambda: Kept.sent)
    finally:
        sentry_sdk.init()
    assert issue["exception"]["values"][-1]["type"] == "LookupError"
    assert issue["tags"]["event_type"] == "shop.order.placed.v1"
    assert issue["tags"]["tenant"] == "acme"
    assert issue["tags"]["handler"].endswith("charge")
    assert issue["contexts"]["posthouse"]["attempt"] == 7
