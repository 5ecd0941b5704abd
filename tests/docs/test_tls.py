"""The URLs of docs/tls.md, with real files in their places."""

from __future__ import annotations

from pathlib import Path

import pytest

from posthouse.brokers import open_broker
from posthouse.clock import SystemClock
from posthouse.local.links import encryption_check
from posthouse.stores import open_store
from tests.kit.servers.tls import Authority

PAGE = (Path(__file__).parents[2] / "docs" / "tls.md").read_text()
URLS = [line for line in PAGE.split("```")[1].splitlines() if line]


@pytest.mark.parametrize("url", URLS)
async def test_each_url_of_the_page_works_and_doctor_has_nothing_to_say(url: str, tmp_path: Path) -> None:
    Authority(tmp_path).give("shop")
    real = url.replace("/etc/posthouse/tls", str(tmp_path))
    broker = open_broker(real, clock=SystemClock())
    await broker.aclose()
    if real.startswith("postgresql"):
        await open_store(real, clock=SystemClock()).aclose()
    check = encryption_check(real, {})
    assert check is None or check.judgement == "ok"
