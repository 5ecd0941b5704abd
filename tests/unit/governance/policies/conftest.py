"""Services written as text, and what one rule finds in them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pytest

from posthouse.cli.check.gathering import facts_of
from posthouse.governance.policies import Facts, Finding, Settings, examine
from posthouse.service import Service

HEAD = """
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any
from msgspec import Meta
from posthouse import Event, Payload, Policy, Service, Tx
from posthouse.contracts.personal import Personal

orders = Service("orders", namespace="shop", owner="checkout")
billing = Service("billing", namespace="shop", owner="finance")
"""

Gather = Callable[..., Facts]
Find = Callable[..., list[Finding]]


@pytest.fixture
def gather(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gather]:
    """The facts of services that are declared by a text."""
    monkeypatch.setattr(
        sys, "dont_write_bytecode", True
    )  # another text of the same second and length would not be read

    def made(text: str, settings: Settings | None = None) -> Facts:
        file = tmp_path / "shop.py"
        file.write_text(HEAD + text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("shop", file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules["shop"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        services = [value for value in vars(module).values() if isinstance(value, Service)]
        return facts_of(services, settings or Settings(), root=tmp_path, today=date(2026, 11, 15))

    yield made
    sys.modules.pop("shop", None)


@pytest.fixture
def find(gather: Gather) -> Find:
    """What one rule finds in services that are declared by a text."""

    def made(rule: str, text: str, settings: Settings | None = None) -> list[Finding]:
        return [finding for finding in examine(gather(text, settings)).findings if finding.rule == rule]

    return made
