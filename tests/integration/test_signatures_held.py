"""Held events in a database that somebody else writes to: their bytes are signed, the columns beside them are not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec.structs import replace

from posthouse import App, Policy, Service
from posthouse.errors import DeskError
from posthouse.store import HeldEvent
from tests.kit.signed_shop import OrderPlaced, PageSeen, Shop
from tests.kit.waiting import eventually

COPIED = (
    "consumer, topic, tenant, key, lineage, digest, time, type, headers, body, first_at, last_at, reason, "
    "error, stack, fingerprint, correlation, turn"
)


@pytest_asyncio.fixture(params=["sqlite", "postgresql"])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    url = f"sqlite:///{tmp_path / 'shop.db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    shop = Shop(url, tmp_path)
    await shop.app.store.upgrade()
    yield shop
    await shop.app.aclose()


async def change(shop: Shop, held: HeldEvent, columns: str) -> None:
    await shop.sql(
        f"UPDATE posthouse_held SET {columns} WHERE id = ?",
        f"UPDATE posthouse.held SET {columns} WHERE id = $1",
        held.id,
    )


async def copy(shop: Shop, held: HeldEvent, name: str, number: str = "NULL") -> None:
    """Another row of the same event, due now."""
    await shop.sql(*(
        f"INSERT INTO {table} ({COPIED}, event_id, sequence, state, attempts, next_at) "
        f"SELECT {COPIED}, '{name}', {number}, 'retrying', 0, 0 FROM {table} WHERE id = {held.id}"
        for table in ("posthouse_held", "posthouse.held")
    ))  # fmt: skip


async def held_in(shop: Shop, *states: str) -> list[HeldEvent]:
    """What is held, once it is in these states, by its number in the list."""

    async def look() -> bool:
        return sorted(one.state for one in await shop.held()) == sorted(states)

    await eventually(look, f"{[(one.state, one.reason) for one in await shop.held()]}, heard {shop.heard}")
    return await shop.held()


def refused(shop: Shop) -> int:
    counted = shop.app.opened.seam.counting.counter("signatures_refused_total", "shop", "forged", "require")
    return int(counted.value)


async def three_held(shop: Shop) -> list[HeldEvent]:
    """Of one key: the first is dead, and two are blocked behind it."""
    shop.fails = True
    await shop.place(("a", 1), ("a", 2), ("a", 3))
    held = await held_in(shop, "dead", "blocked", "blocked")
    shop.fails = False
    return sorted(held, key=lambda one: one.entry.sequence or 0)


@pytest.mark.parametrize("number", ["NULL", "1", "9"])
async def test_a_row_whose_number_was_changed_never_runs_out_of_its_turn(shop: Shop, number: str) -> None:
    async with shop.app.running():
        first, second, _ = await three_held(shop)
        if number == "1":
            await shop.app.held.skip(first.id)  # and its number is free
            await held_in(shop, "skipped")
            assert shop.heard == [("a", 2), ("a", 3)]
            shop.heard.clear()
            await change(shop, first, "sequence = 4, state = 'retrying', next_at = 0")
            await held_in(shop, "quarantined")
            assert shop.heard == []
            return
        await change(shop, second, f"sequence = {number}, state = 'retrying', next_at = 0")
        held = await held_in(shop, "dead", "quarantined", "blocked")
        (aside,) = [one for one in held if one.state == "quarantined"]
        assert aside.reason.startswith("forged: its row ")
        assert aside.fingerprint == "forged"
        assert refused(shop) > 0, "an alert looks at this figure"
        assert shop.heard == []
        await shop.app.held.retry(first.id)
        await held_in(shop, "quarantined", "gap")  # the last one waits for the number, and says so
        assert shop.heard == [("a", 1)]


@pytest.mark.parametrize(
    "name", ["{id}", "{id}#x", "{id}#{digest}", "{id}#0196f0a0-0000-7000-8000-000000000000#waited"]
)
async def test_a_copy_of_a_row_runs_its_event_neither_before_its_turn_nor_again(shop: Shop, name: str) -> None:
    async with shop.app.running():
        first, second, _ = await three_held(shop)
        for one in (first, second):
            await copy(shop, one, name.format(id=one.entry.event_id, digest=one.entry.digest.hex()))
        held = await held_in(shop, "dead", "blocked", "blocked", "quarantined", "quarantined")
        assert shop.heard == []
        assert {one.reason[:6] for one in held if one.state == "quarantined"} == {"forged"}
        await shop.app.held.retry(first.id)
        await held_in(shop, "quarantined", "quarantined")
    assert shop.heard == [("a", 1), ("a", 2), ("a", 3)]


@pytest.mark.parametrize("name", ["{id}#x", "{id}#{digest}", "{id}#0196f0a0-0000-7000-8000-000000000000#waited"])
async def test_a_copy_of_an_event_without_a_key_does_not_run_it_twice(shop: Shop, name: str) -> None:
    shop.fails = True
    async with shop.app.running():
        async with shop.service.transaction("t1") as tx:
            tx.publish(PageSeen(number=1))
        (held,) = await held_in(shop, "dead")
        shop.fails = False
        await copy(shop, held, name.format(id=held.entry.event_id, digest=held.entry.digest.hex()))

        async def dealt_with() -> bool:
            return all(one.state != "retrying" for one in await shop.held())

        await eventually(dealt_with, "the copy is dropped, or set aside")
        assert shop.heard == []
        await shop.app.held.retry(held.id)
        await eventually(lambda: shop.heard == [("page", 1)], "the true one runs")
        await eventually(dealt_with, "nothing runs any more")
    assert shop.heard == [("page", 1)]


async def test_a_digest_that_was_changed_lets_no_copy_run_beside_the_event(shop: Shop) -> None:
    shop.fails = True
    async with shop.app.running():
        async with shop.service.transaction("t1") as tx:
            tx.publish(PageSeen(number=1))
        (held,) = await held_in(shop, "dead")
        shop.fails = False
        await copy(shop, held, f"{held.entry.event_id}#{'00' * 16}")
        (other,) = [one for one in await shop.held() if one.id != held.id]
        digest = "x'" if shop.url.startswith("sqlite") else "'\\x"
        await change(shop, other, f"digest = {digest}{'00' * 16}'")
        await held_in(shop, "dead", "quarantined")
    assert shop.heard == []


async def test_a_row_that_was_moved_into_the_turn_of_another_key_takes_no_number_of_it(shop: Shop) -> None:
    async with shop.app.running():
        await shop.place(("b", 1))
        await shop.settles(heard=1, held=0)
        first, *_ = await three_held(shop)
        await change(shop, first, "key = 'b', sequence = 2, state = 'retrying', next_at = 0")
        held = await held_in(shop, "quarantined", "gap", "blocked")  # its own key waits for what was moved away
        assert [one.entry.sequence for one in held if one.state == "gap"] == [2]
        await shop.place(("b", 2))
        await eventually(lambda: ("b", 2) in shop.heard, f"heard {shop.heard}")
    assert shop.heard == [("b", 1), ("b", 2)]


async def test_a_row_whose_id_is_that_of_an_applied_event_is_set_aside_and_not_dropped_as_known(shop: Shop) -> None:
    async with shop.app.running():
        for number in (1, 2):
            shop.fails = number == 2
            async with shop.service.transaction("t1") as tx:
                tx.publish(PageSeen(number=number))
            await shop.settles(heard=1, held=number - 1)
        shop.fails = False
        applied, (held,) = (await shop.kept())[0], await shop.held()
        await change(shop, held, f"event_id = '{applied.event_id}', state = 'retrying', next_at = 0")
        (aside,) = await held_in(shop, "quarantined")
        assert aside.reason.startswith("forged: its row is of another id")


@pytest.mark.parametrize("on_dead", ["stop", "skip"])
async def test_the_key_of_a_forged_row_waits_or_goes_on_as_the_policy_says(shop: Shop, on_dead: str) -> None:
    shop.service = Service("shop")
    shop.service.event("order.placed.v1", key="order_id")(OrderPlaced)
    shop.service.on(OrderPlaced, policy=Policy(max_attempts=2, first_delay=3600.0, last_delay=3600.0, on_dead=on_dead))(  # type: ignore[arg-type]
        shop.hear
    )
    await shop.reopen("shop-1")
    shop.fails = True
    async with shop.app.running():
        await shop.place(("a", 1), ("a", 2))
        first, _ = sorted(await held_in(shop, "retrying", "blocked"), key=lambda one: one.entry.sequence or 0)
        shop.fails = False
        body = first.body.replace(b'"number":1', b'"number":7')
        value = f"x'{body.hex()}'" if shop.url.startswith("sqlite") else f"'\\x{body.hex()}'"
        await change(shop, first, f"body = {value}, next_at = 0, attempts = 99")
        if on_dead == "stop":
            await held_in(shop, "quarantined", "gap")
            assert shop.heard == []
        else:
            await held_in(shop, "quarantined")
            assert shop.heard == [("a", 2)]


async def test_running_an_event_out_of_its_turn_takes_the_signature_of_an_operator_and_works_once(shop: Shop) -> None:
    async with shop.app.running():
        first, *_ = await three_held(shop)
        await shop.app.held.skip(first.id)
        await held_in(shop, "skipped")
        with pytest.raises(DeskError, match="no key for edits"):
            await shop.app.held.retry(first.id, force=True)
        shop.keys.make("desk-1", use="edits")
        desk = App(Service("shop"), store=shop.url, broker=shop.broker, signing=shop.keys.signing("desk-1"))
        try:
            again = await desk.held.retry(first.id, force=True, by="ann")
        finally:
            await desk.aclose()
        await eventually(lambda: shop.heard == [("a", 2), ("a", 3), ("a", 1)], f"heard {shop.heard}")
        (sealed,) = [row for row in [again] if row.entry.sequence is None]
        async with shop.app.store.begin() as tx:  # somebody puts the row back that he has seen, under another name
            entry = sealed.entry
            named = f"{entry.event_id}#{entry.digest.hex()}"
            await shop.app.store.held.hold(tx, _as(sealed, named))
            await shop.app.store.held.hold(tx, _as(sealed, entry.event_id))
        (aside,) = await held_in(shop, "quarantined")
        assert aside.reason == "forged: an operator signed it for another row of what is held"
    assert shop.heard == [("a", 2), ("a", 3), ("a", 1)]


def _as(held: HeldEvent, name: str) -> HeldEvent:
    return replace(held, id=0, turn=0, entry=replace(held.entry, event_id=name), state="retrying", after=0.0)


async def test_an_operator_does_not_sign_for_what_somebody_else_has_changed(shop: Shop) -> None:
    shop.keys.make("desk-1", use="edits")
    await shop.reopen("shop-1", "desk-1")
    async with shop.app.running():
        first, *_ = await three_held(shop)
        await change(shop, first, "lineage = 5")
        with pytest.raises(DeskError, match="not as it was signed"):
            await shop.app.held.edit(first.id, b'{"order_id":"a","number":7}', lambda subject, data: None, by="ann")
    assert shop.heard == []
