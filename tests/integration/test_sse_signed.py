"""What pages are told of is proved like what consumers hear, and one bad row ends nobody's feed."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from posthouse import App, Event
from posthouse.contracts import event_type_of
from posthouse.edges.sse import Facts
from tests.kit.signed_shop import OrderPlaced, PageSeen, Shop, flipped


def shown(event: Event[OrderPlaced]) -> object:
    return {"number": event.data.number}


class Pages:
    """Who listens to the orders of a shop that was given three."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.shop = Shop(f"sqlite:///{folder / 'shop.db'}", folder)
        signing = self.shop.keys.signing("shop-1", verify={"*": mode}) if mode else None
        self.shop.app = App(self.shop.service, store=self.shop.url, broker=self.shop.broker, signing=signing)
        kinds = [event_type_of(kind) for kind in (OrderPlaced, PageSeen)]
        self.facts = Facts(self.shop.service, {kind.name: kind for kind in kinds}, shown, 10_000)
        self.start = ""

    async def open(self) -> None:
        await self.shop.app.store.upgrade()
        self.start = (await self.facts.read("", {"t1", "t2"})).position
        async with self.shop.app.running():
            await self.shop.place(("a", 1), ("b", 2), ("c", 3))
            await self.shop.settles(heard=3, held=0)

    async def hear(self) -> Sequence[int]:
        page = await self.facts.read(self.start, {"t1", "t2"})
        return [msgspec.json.decode(item.data)["data"]["number"] for item in page.items]

    def change(self, column: str, value: object) -> None:
        with sqlite3.connect(self.shop.folder / "shop.db") as connection:
            sql = f"UPDATE posthouse_outbox SET {column} = ? WHERE key = 'b'"
            assert connection.execute(sql, (value,)).rowcount == 1
        connection.close()

    def counted(self, name: str, *labels: str) -> float:
        return self.shop.app.opened.seam.counting.counter(name, "shop", *labels).value


@pytest.mark.parametrize("column", ["body", "tenant", "event_id", "sequence"])
async def test_a_row_that_was_changed_is_told_to_no_page_where_signatures_are_required(
    tmp_path: Path, column: str
) -> None:
    pages = Pages(tmp_path, "require")
    await pages.open()
    assert await pages.hear() == [1, 2, 3]
    row = next(row for row in await pages.shop.kept() if row.key == "b")
    changed = {"body": flipped(row.body, b"2}"), "tenant": "t2", "event_id": "other", "sequence": 9}
    pages.change(column, changed[column])
    assert await pages.hear() == [1, 3]
    assert pages.counted("signatures_refused_total", "forged", "require") == 1
    assert pages.counted("schema_failures_total", "sse", "forged") == 1
    await pages.shop.app.aclose()


@pytest.mark.parametrize(("mode", "reason"), [("", "utf8"), ("warn", "utf8"), ("require", "forged")])
async def test_a_row_that_cannot_be_read_is_passed_over_and_counted(tmp_path: Path, mode: str, reason: str) -> None:
    pages = Pages(tmp_path, mode)
    await pages.open()
    row = next(row for row in await pages.shop.kept() if row.key == "b")
    pages.change("body", row.body[:20] + b"\xff" + row.body[21:])
    assert await pages.hear() == [1, 3]
    assert pages.counted("schema_failures_total", "sse", reason) == 1
    await pages.shop.app.aclose()
