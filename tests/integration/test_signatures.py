"""Signed facts on both stores: what is changed in a table or in the log is quarantined, and its neighbours are not."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import msgspec
import pytest
import pytest_asyncio

from posthouse import App, Service
from posthouse.errors import DeskError, EventError
from posthouse.events import decode_any
from posthouse.seam.seals import SEAL
from posthouse.store import HeldEvent
from posthouse.trust.signatures.keys import read_keys
from tests.kit.signed_shop import OrderPlaced, Shop, flipped
from tests.kit.waiting import eventually


@pytest_asyncio.fixture(params=["sqlite", "postgresql"])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    url = f"sqlite:///{tmp_path / 'shop.db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    shop = Shop(url, tmp_path)
    await shop.app.store.upgrade()
    yield shop
    await shop.app.aclose()


async def test_facts_are_signed_with_the_numbers_that_they_have_and_applied(shop: Shop) -> None:
    async with shop.app.running():
        await shop.place(("a", 1), ("b", 2), ("a", 3))
        await shop.place(("a", 4), idempotency_key="once")
        await shop.place(("a", 5), idempotency_key="once")
        await shop.settles(heard=4, held=0)
    assert [(row.key, row.sequence) for row in await shop.kept()] == [("a", 1), ("b", 1), ("a", 2), ("a", 3)]
    assert all(SEAL in decode_any(row.headers, row.body).extensions for row in await shop.kept())


async def test_a_byte_that_was_changed_in_the_outbox_is_quarantined_and_its_neighbours_go_on(shop: Shop) -> None:
    await shop.place(("a", 1), ("b", 2), ("c", 3))
    victim = (await shop.kept())[1]
    body = flipped(victim.body, b"2}")
    await shop.sql(
        "UPDATE posthouse_outbox SET body = ? WHERE id = ?", "UPDATE posthouse.outbox SET body = $1 WHERE id = $2",
        body, victim.id,
    )  # fmt: skip
    async with shop.app.running():
        (held,) = await shop.settles(heard=2, held=1)
        assert sorted(shop.heard) == [("a", 1), ("c", 3)]
        assert held.state == "quarantined"
        assert held.reason.startswith("forged")
        await shop.app.held.retry(held.id)
        await eventually(lambda: _again(shop, held), "an operator's retry proves it again")
    assert sorted(shop.heard) == [("a", 1), ("c", 3)]


async def test_a_body_that_is_no_json_any_more_is_quarantined_as_forged_and_its_neighbours_go_on(shop: Shop) -> None:
    await shop.place(("a", 1), ("b", 2), ("c", 3))
    victim = (await shop.kept())[1]
    await shop.sql(
        "UPDATE posthouse_outbox SET body = ? WHERE id = ?", "UPDATE posthouse.outbox SET body = $1 WHERE id = $2",
        flipped(victim.body, b"{"), victim.id,
    )  # fmt: skip
    async with shop.app.running():
        (held,) = await shop.settles(heard=2, held=1)
        refused = shop.app.opened.seam.counting.counter("signatures_refused_total", "shop", "forged", "require")
        assert refused.value == 1, "an alert looks at this figure"
    assert sorted(shop.heard) == [("a", 1), ("c", 3)]
    assert (held.state, held.reason[:6]) == ("quarantined", "forged")


@pytest.mark.parametrize("change", ["body = CAST(body AS TEXT)", "headers = '{'"])
async def test_a_row_that_no_frame_can_be_made_of_is_set_aside_and_its_neighbours_flow(shop: Shop, change: str) -> None:
    await shop.place(("a", 1), ("b", 2), ("c", 3))
    victim = (await shop.kept())[1]
    if "body" in change and not shop.url.startswith("sqlite"):
        change = "headers = 'text'"  # its columns have types
    await shop.sql(
        f"UPDATE posthouse_outbox SET {change} WHERE id = ?",
        f"UPDATE posthouse.outbox SET {change} WHERE id = $1",
        victim.id,
    )
    async with shop.app.running():
        await shop.settles(heard=2, held=0)
        await shop.place(("d", 4))
        await shop.settles(heard=3, held=0)
    (stuck,) = await shop.app.store.outbox.stuck()
    assert (stuck.row.id, stuck.state, stuck.attempts) == (victim.id, "quarantined", 1)
    assert stuck.error.startswith("no frame can be made of its row: ")
    assert "damaged" in stuck.error
    assert sorted(shop.heard) == [("a", 1), ("c", 3), ("d", 4)]


async def _again(shop: Shop, before: HeldEvent) -> bool:
    held = await shop.held()
    return [one.state for one in held] == ["quarantined"] and held[0].turn > before.turn


@pytest.mark.parametrize("column", ["sequence", "lineage"])
async def test_a_number_or_a_lineage_that_was_changed_in_the_outbox_is_forged(shop: Shop, column: str) -> None:
    await shop.place(("a", 1), ("b", 2))
    victim = (await shop.kept())[1]
    await shop.sql(
        f"UPDATE posthouse_outbox SET {column} = 9 WHERE id = ?",
        f"UPDATE posthouse.outbox SET {column} = 9 WHERE id = $1",
        victim.id,
    )
    async with shop.app.running():
        (held,) = await shop.settles(heard=1, held=1)
    assert held.reason.startswith("forged")


async def test_a_byte_that_was_changed_in_the_log_is_quarantined_and_its_neighbours_go_on(shop: Shop) -> None:
    async with shop.app.running(only=["relay"]):
        await shop.place(("a", 1), ("b", 2), ("c", 3))
        await eventually(lambda: shop.logged() == 3, "all three are in the log")
    with sqlite3.connect(shop.folder / "log.db") as log:
        bodies = [bytes(body) for (body,) in log.execute("SELECT body FROM frames")]
        (victim,) = [body for body in bodies if b'"order_id":"b"' in body]
        log.execute("UPDATE frames SET body = ? WHERE body = ?", (flipped(victim, b"2}"), victim))
    log.close()
    await shop.reopen("shop-1")
    async with shop.app.running(only=["consumers"]):
        (held,) = await shop.settles(heard=2, held=1)
    assert held.reason.startswith("forged")


@pytest.mark.parametrize("mark", [b"}", b"{"], ids=["another number", "no JSON any more"])
async def test_a_held_event_that_was_changed_by_hand_is_quarantined_and_its_neighbour_is_not(
    shop: Shop, mark: bytes
) -> None:
    shop.fails = True
    async with shop.app.running():
        await shop.place(("a", 1), ("b", 2))
        first, second = await shop.settles(heard=0, held=2)
        shop.fails = False
        await shop.sql(
            "UPDATE posthouse_held SET body = ? WHERE id = ?", "UPDATE posthouse.held SET body = $1 WHERE id = $2",
            flipped(first.body, mark if mark == b"{" else b"1}" if b"1}" in first.body else b"2}"), first.id,
        )  # fmt: skip
        for held in (first, second):
            await shop.app.held.retry(held.id)

        async def settled() -> bool:
            left = [(one.id, one.state) for one in await shop.held()]
            return len(shop.heard) == 1 and left == [(first.id, "quarantined")]

        await eventually(settled, "the one is applied and the other quarantined")
        assert (await shop.held())[0].reason.startswith("forged")
    assert shop.heard in ([("a", 1)], [("b", 2)])


@pytest.mark.parametrize(
    "change", ["tenant = 't2', sequence = NULL", "lineage = 5", "event_id = 'other', sequence = NULL"]
)
async def test_a_held_event_does_not_run_as_another_than_it_says_it_is(shop: Shop, change: str) -> None:
    shop.fails = True
    async with shop.app.running():
        await shop.place(("a", 1))
        (held,) = await shop.settles(heard=0, held=1)
        shop.fails = False
        await shop.sql(
            f"UPDATE posthouse_held SET {change} WHERE id = ?",
            f"UPDATE posthouse.held SET {change} WHERE id = $1",
            held.id,
        )
        await shop.app.held.retry(held.id)

        async def settled() -> bool:
            return [one.state for one in await shop.held()] == ["quarantined"]

        await eventually(settled, f"heard {shop.heard}")
        assert (await shop.held())[0].reason.startswith("forged")
    assert shop.heard == []


def accept(subject: str, data: bytes) -> None:
    """Whatever an operator writes."""


async def test_an_edited_event_needs_a_key_for_edits_and_is_then_applied(shop: Shop) -> None:
    shop.fails = True
    async with shop.app.running():
        await shop.place(("a", 1))
        (held,) = await shop.settles(heard=0, held=1)
        shop.fails = False
        edit = msgspec.json.encode({"order_id": "a", "number": 7})
        with pytest.raises(DeskError, match="no key for edits"):
            await shop.app.held.edit(held.id, edit, accept, by="ann")
        shop.keys.make("desk-1", use="edits")
        desk = App(Service("shop"), store=shop.url, broker=shop.broker, signing=shop.keys.signing("desk-1"))
        try:
            await desk.held.edit(held.id, edit, accept, by="ann")
            await eventually(lambda: shop.heard == [("a", 7)], "the consumer has seen the new key")
        finally:
            await desk.aclose()


async def test_a_timer_is_signed_anew_when_it_fires(shop: Shop) -> None:
    async with shop.app.running():
        await shop.place(("a", 1))
        await shop.place(("a", 2), after=0.05)
        await shop.place(("b", 3), after=0.05, timer="reminder")
        await shop.settles(heard=3, held=0)
    assert sorted(shop.heard) == [("a", 1), ("a", 2), ("b", 3)]
    assert [row.sequence for row in await shop.kept() if row.key == "a"] == [1, 2]


async def test_a_timer_that_was_changed_by_hand_is_not_signed_for(shop: Shop) -> None:
    await shop.place(("a", 1), after=0.01, timer="bad")
    await shop.place(("b", 2), after=0.01, timer="good")
    (timer,) = [timer for timer in await shop.app.store.timers.pending() if timer.name == "bad"]
    await shop.sql(
        "UPDATE posthouse_timer SET body = ? WHERE name = 'bad'", "UPDATE posthouse.timer SET body = $1 WHERE name = 'bad'",
        flipped(timer.row.body, b'1}'),
    )  # fmt: skip
    async with shop.app.running():
        (held,) = await shop.settles(heard=1, held=1)
    assert shop.heard == [("b", 2)]
    assert held.reason.startswith("forged")


@pytest.mark.parametrize(("column", "value"), [("key", "b"), ("tenant", "t2"), ("numbered", False)])
async def test_a_timer_is_not_signed_for_under_the_number_of_another_key(
    shop: Shop, column: str, value: object
) -> None:
    await shop.place(("b", 1))
    await shop.place(("a", 2), after=0.01, timer="moved")
    await shop.sql(
        f"UPDATE posthouse_timer SET {column} = ? WHERE name = 'moved'",
        f"UPDATE posthouse.timer SET {column} = $1 WHERE name = 'moved'", value,
    )  # fmt: skip
    async with shop.app.running():
        (held,) = await shop.settles(heard=1, held=1)
    assert shop.heard == [("b", 1)]
    assert held.reason.startswith("forged")


async def test_a_timer_without_a_key_waits_and_holds_no_other_one_up(shop: Shop) -> None:
    shop.keys.make("shop-1", tenants=("t1",))
    theirs = shop.keys.make("shop-2", tenants=("t2",))
    await shop.reopen("shop-1", "shop-2")
    async with shop.service.transaction("t2") as tx:
        tx.publish(OrderPlaced(order_id="b", number=1), after=0.01)
    shop.keys.change(msgspec.structs.replace(theirs, retired=1.0))
    await shop.reopen("shop-1", "shop-2")
    await shop.place(("a", 2), after=0.02)
    async with shop.app.running():
        await shop.settles(heard=1, held=0)
        (waiting,) = await shop.app.store.timers.pending()
        assert shop.heard == [("a", 2)]
        assert waiting.row.key == "b"
        shop.keys.change(theirs)
        async with shop.service.transaction("t2") as tx:
            assert await shop.app.store.timers.hasten(tx.transaction, "t2", waiting.name)
        await shop.settles(heard=2, held=0)
    assert [row.sequence for row in await shop.kept()] == [1, 1]


async def test_facts_of_an_aggregate_are_signed_and_its_stream_is_read_as_ever(shop: Shop) -> None:
    async with shop.app.running():
        for number in (1, 2):
            placed = [OrderPlaced(order_id="a", number=number)]
            await shop.order.execute("a", lambda _, placed=placed: placed, tenant="t1")  # type: ignore[misc]
        await shop.settles(heard=2, held=0)
    async with shop.service.transaction("t1") as tx:
        assert (await shop.order.load(tx, "a")).state == 3


async def test_a_joined_transaction_signs_too(shop: Shop) -> None:
    await shop.app.open()
    if shop.url.startswith("sqlite"):
        connection = sqlite3.connect(shop.folder / "shop.db")
        with connection, shop.service.outbox.joined(connection, "t1") as tx:
            tx.publish(OrderPlaced(order_id="a", number=1))
        with connection:
            shop.service.outbox.add_now(connection, OrderPlaced(order_id="a", number=2), tenant="t1")
        connection.close()
    else:
        server = await asyncpg.connect(shop.url)
        async with server.transaction():
            await shop.service.outbox.add(server, OrderPlaced(order_id="a", number=1), tenant="t1")
            await shop.service.outbox.add(server, OrderPlaced(order_id="a", number=2), tenant="t1")
        await server.close()
    async with shop.app.running():
        await shop.settles(heard=2, held=0)
    assert shop.heard == [("a", 1), ("a", 2)]


async def test_a_fact_that_nobody_can_sign_is_refused_before_the_commit(shop: Shop) -> None:
    key = shop.keys.make("shop-1")
    shop.keys.change(msgspec.structs.replace(key, retired=1.0))
    await shop.reopen("shop-1")
    with pytest.raises(EventError, match="no key is active for /shop"):
        await shop.place(("a", 1))
    assert await shop.kept() == []


async def test_a_fact_that_is_refused_leaves_no_gap_and_no_intent_where_they_commit_all_the_same(shop: Shop) -> None:
    await shop.app.open()
    await shop.place(("a", 1))
    key = read_keys(shop.keys.file)["shop-1"]
    shop.keys.change(msgspec.structs.replace(key, tenants=("t2",)))
    await shop.reopen("shop-1")
    await shop.app.open()
    placed = OrderPlaced(order_id="a", number=2)
    if shop.url.startswith("sqlite"):
        connection = sqlite3.connect(shop.folder / "shop.db")
        with connection, pytest.raises(EventError, match="no key is active"):
            shop.service.outbox.add_now(connection, placed, tenant="t1", idempotency_key="once")
        connection.close()
    else:
        server = await asyncpg.connect(shop.url)
        async with server.transaction():
            with pytest.raises(EventError, match="no key is active"):
                await shop.service.outbox.add(server, placed, tenant="t1", idempotency_key="once")
        await server.close()
    shop.keys.change(key)
    await shop.reopen("shop-1")
    async with shop.app.running():
        await shop.place(("a", 2), idempotency_key="once")
        await shop.settles(heard=2, held=0)
    assert shop.heard == [("a", 1), ("a", 2)]


async def test_keys_are_rotated_and_revoked_while_everything_runs(shop: Shop) -> None:
    """Two keys overlap and nothing is refused; what is revoked signs nothing more, within a moment."""
    await shop.reopen("shop-1")
    async with shop.app.running():
        await shop.place(("a", 1))
        await shop.settles(heard=1, held=0)
    new = shop.keys.make("shop-2", since=1.0)
    await shop.reopen("shop-1", "shop-2")
    async with shop.app.running():
        for number in range(2, 12):
            await shop.place(("a", number))
            if number == 6:
                shop.keys.change(msgspec.structs.replace(read_keys(shop.keys.file)["shop-1"], retired=1.0))
        await shop.settles(heard=11, held=0)
        shop.keys.change(msgspec.structs.replace(new, revoked=1.0))
        refused: list[EventError] = []

        async def revoked() -> bool:
            try:
                await shop.place(("b", 0))
            except EventError as error:
                refused.append(error)
            return bool(refused)

        await eventually(revoked, "nothing was restarted", pause=0.1)
    assert "no key is active" in str(refused[0])
