"""What `doctor` finds of the links of an App."""

from __future__ import annotations

from pathlib import Path

from posthouse import App, Service
from posthouse.watch.examining import examine


async def test_a_broker_in_plain_text_is_warned_of_also_while_it_is_away(tmp_path: Path) -> None:
    app = App(
        Service("shop"), store=f"sqlite:///{tmp_path}/shop.db", broker="nats://me:word@nats.invalid:4222?timeout=0.2"
    )
    store, broker = await examine(app)
    await app.aclose()
    assert [check for check in store.checks if check.name == "encryption"] == []
    (check,) = [check for check in broker.checks if check.name == "encryption"]
    assert check.judgement == "warn"
    assert "nats.invalid:4222 in plain text" in check.found
    assert "word" not in f"{check.found}{broker.place}".replace("password", "")
