"""Timers lie in a database that somebody else may write to: what they say is proved when they fire, and said once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec.structs import replace

from posthouse.clock import SystemClock, new_id
from posthouse.events import codec_of, decode_any
from posthouse.store import OutboxRow, Timer
from posthouse.trust.signatures.covering import TOPIC
from posthouse.trust.signatures.drafts import FactDraft
from tests.kit.signed_shop import Shop
from tests.kit.waiting import eventually


@pytest_asyncio.fixture(params=["sqlite", "postgresql"])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    url = f"sqlite:///{tmp_path / 'shop.db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    shop = Shop(url, tmp_path)
    await shop.app.store.upgrade()
    yield shop
    await shop.app.aclose()


async def put(shop: Shop, row: OutboxRow, name: str) -> None:
    """A row that somebody writes beside the library, due at once."""
    async with shop.app.store.begin() as tx:
        await shop.app.store.timers.set(tx, Timer(name=name, due_at=0.0, after=0.0, row=row))


@pytest.mark.parametrize("term", ["revoked", "until"])
async def test_a_timer_that_is_sealed_by_a_revoked_key_is_not_signed_for(shop: Shop, term: str) -> None:
    stolen = shop.keys.make("shop-0")
    ended = SystemClock().now() - 86_400.0
    gone = replace(stolen, revoked=ended) if term == "revoked" else replace(stolen, retired=ended - 1.0, until=ended)
    shop.keys.change(gone)
    await shop.place(("a", 1), after=600.0)
    (timer,) = await shop.app.store.timers.pending()
    event = decode_any(timer.row.headers, timer.row.body)
    lie = replace(event, id=new_id(), data=event.data.replace(b"1", b"9"), extensions={})
    sealed = FactDraft(stolen, shop.keys.secrets["shop-0"], {TOPIC: f"timer {timer.row.topic}"}, lie).whole()
    encoded = codec_of(timer.row.headers, timer.row.body).encode(sealed)
    await put(shop, replace(timer.row, event_id=lie.id, headers=encoded.headers, body=encoded.body), "stolen")
    await shop.place(("b", 2), after=0.01)
    async with shop.app.running():
        (held,) = await shop.settles(heard=1, held=1)
    assert shop.heard == [("b", 2)]
    assert (held.state, held.reason[:7]) == ("quarantined", "forged:")


async def test_a_timer_of_a_key_that_was_only_retired_is_signed_for(shop: Shop) -> None:
    old = shop.keys.make("shop-0", since=SystemClock().now())
    await shop.reopen("shop-0")
    await shop.place(("a", 1), after=0.01)
    shop.keys.change(replace(old, retired=SystemClock().now()))
    await shop.reopen("shop-1")
    async with shop.app.running():
        await shop.settles(heard=1, held=0)
    assert shop.heard == [("a", 1)]


async def test_a_timer_that_fired_and_was_put_back_says_nothing_new(shop: Shop) -> None:
    await shop.place(("a", 1), after=0.01, timer="once")
    (timer,) = await shop.app.store.timers.pending()
    async with shop.app.running():
        await shop.settles(heard=1, held=0)
        for name in ("once", "twice"):
            await put(shop, timer.row, name)

        async def fired() -> bool:
            return not await shop.app.store.timers.pending()

        await eventually(fired, "all of them fired")
        await shop.place(("a", 2))  # behind them in the key
        await eventually(lambda: ("a", 2) in shop.heard, "the key goes on")
        assert shop.heard == [("a", 1), ("a", 2)]
        assert [row.sequence for row in await shop.kept()] == [1, 2, 3, 4]
    assert await shop.held() == []


async def test_a_timer_of_the_same_name_is_another_one_each_time(shop: Shop) -> None:
    async with shop.app.running():
        for number in (1, 2, 3):
            await shop.place(("a", number), after=0.01, timer="daily")
            await shop.settles(heard=number, held=0)
    assert shop.heard == [("a", 1), ("a", 2), ("a", 3)]
