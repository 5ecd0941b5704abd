"""The checks find what is wrong: each is shown a defect, and the same books without it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from melmastoon.demo.books import Books, Row
from melmastoon.demo.checks import audit, money, outcomes
from melmastoon.demo.checks.conservation import conservation
from melmastoon.demo.checks.keys import lingering
from melmastoon.demo.checks.rooms import oversold
from melmastoon.vendors.ledger import Ledger
from posthouse import Event, Payload, Policy, Service, Tx


class Shelf:
    """Books that were made up: facts, what was applied, and rows of tables by a word of their query."""

    def __init__(self, **tables: Sequence[Row]) -> None:
        self._tables = tables
        self.said: dict[str, list[Row]] = {}
        self.applied: dict[str, list[Row]] = {}

    def say(self, subject: str, /, key: str | None = "bk-1", sequence: int = 1, **data: Any) -> str:
        service = subject.split(".")[0]
        rows = self.said.setdefault(service, [])
        name, _, version = f"melmastoon.{subject}".rpartition(".v")
        id = f"{service}-{len(rows) + 1}"
        at = data.pop("at", "2027-03-15T10:00:00Z")
        body = {"eventType": name, "eventVersion": int(version), "occurredAt": at, "payload": data}
        topic = ".".join(name.split(".")[:3])
        rows.append((len(rows) + 1, topic, "serena", key, sequence, id, json.dumps(body).encode()))
        return id

    def apply(self, consumer: str, id: str, key: str | None = "bk-1", sequence: int = 1) -> None:
        rows = self.applied.setdefault(consumer.split(".")[0], [])
        rows.append((len(rows) + 1, consumer, id, key, sequence, "serena"))

    def rows(self, service: str, sql: str) -> Sequence[Row]:
        if "witness_said" in sql:
            return self.said.get(service, [])
        if "witness_applied" in sql:
            return self.applied.get(service, [])
        return next((rows for word, rows in self._tables.items() if word in sql), [])

    def tables(self, name: str) -> str:
        return f"posthouse_{name}"


def books(shelf: Shelf) -> Books:
    return Books(shelf, ["inventory", "reservation", "payment", "billing", "audit", "shop"])


# Nothing lost, nothing twice, nothing out of order.


@pytest.fixture
def shop() -> Service:
    shop = Service("shop", namespace="melmastoon")

    @shop.event("order.placed.v1", key="order_id")
    class Placed(Payload):
        order_id: str

    @shop.on(Placed)
    async def keep(event: Event[Placed], tx: Tx) -> None: ...

    @shop.on(Placed, consumer="loose", policy=Policy(order="none"))
    async def count(event: Event[Placed], tx: Tx) -> None: ...

    return shop


def told(shop: Service, shelf: Shelf) -> tuple[int, int, int, int]:
    found = conservation(books(shelf), [shop])
    assert bool(found.findings) == any((found.lost, found.duplicated, found.out_of_order, found.held))
    return found.lost, found.duplicated, found.out_of_order, found.held


def test_what_every_consumer_applied_once_adds_up(shop: Service) -> None:
    shelf = Shelf()
    for number in (1, 2):
        id = shelf.say("shop.order.placed.v1", "o1", number)
        shelf.apply("shop", id, "o1", number)
        shelf.apply("shop.loose", id, "o1", number)
    assert told(shop, shelf) == (0, 0, 0, 0)


def test_a_fact_that_one_of_two_consumers_never_applied_is_lost(shop: Service) -> None:
    shelf = Shelf()
    shelf.apply("shop", shelf.say("shop.order.placed.v1"))
    assert told(shop, shelf) == (1, 0, 0, 0)


def test_a_fact_that_is_held_is_not_lost(shop: Service) -> None:
    shelf = Shelf(posthouse_held=[("shop.loose", "shop-1", "dead", "no")])
    shelf.apply("shop", shelf.say("shop.order.placed.v1"))
    found = conservation(Books(shelf, ["shop"]), [shop])
    assert (found.lost, found.held) == (0, 1)


def test_a_fact_that_was_applied_twice_or_never_said_is_a_duplicate(shop: Service) -> None:
    shelf = Shelf()
    id = shelf.say("shop.order.placed.v1")
    for consumer in ("shop", "shop", "shop.loose"):
        shelf.apply(consumer, id)
    assert told(shop, shelf) == (0, 1, 0, 0)
    shelf.apply("shop", "nobody said this", "o9")
    assert told(shop, shelf) == (0, 2, 0, 0)


def test_an_earlier_number_after_a_later_one_is_out_of_order_where_order_is_wanted(shop: Service) -> None:
    shelf = Shelf()
    ids = [shelf.say("shop.order.placed.v1", "o1", number) for number in (1, 2)]
    for consumer in ("shop", "shop.loose"):
        shelf.apply(consumer, ids[1], "o1", 2)
        shelf.apply(consumer, ids[0], "o1", 1)
    assert told(shop, shelf) == (0, 0, 1, 0)


def test_a_fact_that_is_not_one_entry_of_the_chain_is_found() -> None:
    shelf = Shelf(audit_entry=[("serena", "reservation-1"), ("serena", "reservation-1")])
    shelf.say("reservation.booking.held.v1")
    shelf.say("reservation.booking.held.v1")
    assert len(audit.missing(books(shelf), frozenset(("melmastoon.reservation.booking.held.v1",)))) == 2
    once = Shelf(audit_entry=[("serena", "reservation-1")])
    once.say("reservation.booking.held.v1")
    assert audit.missing(books(once), frozenset(("melmastoon.reservation.booking.held.v1",))) == []


# Rooms.

WINDOW: dict[str, Any] = {"room_id": "r1", "check_in": "2027-03-16", "check_out": "2027-03-18"}


def test_a_night_that_is_given_away_while_somebody_has_it_is_oversold() -> None:
    shelf = Shelf()
    shelf.say("inventory.allocation.committed.v1", booking_id="bk-1", **WINDOW)
    shelf.say("inventory.allocation.committed.v1", booking_id="bk-2", **WINDOW | {"check_in": "2027-03-17"})
    assert len(oversold(books(shelf))) == 1


def test_a_night_may_be_sold_again_after_it_was_released_or_swapped() -> None:
    shelf = Shelf()
    shelf.say("inventory.allocation.committed.v1", booking_id="bk-1", **WINDOW)
    shelf.say("inventory.allocation.released.v1", booking_id="bk-1", reason="cancelled")
    shelf.say("inventory.allocation.committed.v1", booking_id="bk-2", **WINDOW)
    later = {"check_in": "2027-03-20", "check_out": "2027-03-21"}
    shelf.say("inventory.allocation.reallocated.v1", booking_id="bk-2", **WINDOW | later)
    shelf.say("inventory.allocation.committed.v1", booking_id="bk-3", **WINDOW)
    assert oversold(books(shelf)) == []


def test_who_leaves_early_keeps_the_nights_that_were_slept() -> None:
    shelf = Shelf()
    shelf.say("inventory.allocation.committed.v1", booking_id="bk-1", **WINDOW)
    early: dict[str, Any] = {"booking_id": "bk-1", "reason": "checked_out_early", "at": "2027-03-17T09:00:00Z"}
    shelf.say("inventory.allocation.released.v1", **early)
    shelf.say("inventory.allocation.committed.v1", booking_id="bk-2", **WINDOW | {"check_in": "2027-03-17"})
    assert oversold(books(shelf)) == []
    shelf.say("inventory.allocation.committed.v1", booking_id="bk-3", **WINDOW | {"check_out": "2027-03-17"})
    assert len(oversold(books(shelf))) == 1


def test_two_bookings_of_one_room_and_night_are_found_whatever_inventory_says() -> None:
    rows = [("serena", f"bk-{number}", "r1", "2027-03-16", "2027-03-18") for number in (1, 2)]
    assert len(oversold(books(Shelf(bookings=rows)))) == 2
    assert oversold(books(Shelf(bookings=rows[:1]))) == []


# Keys.


@pytest.mark.parametrize(
    ("status", "found"), [("checked_out", 1), ("cancelled", 1), ("checked_in", 0), ("confirmed", 0)]
)
def test_a_key_that_opens_a_door_after_the_stay_lingers(tmp_path: Path, status: str, found: int) -> None:
    ledger = Ledger(tmp_path / "vendors.db")
    with ledger.writing() as vendor:
        row = ("serena:key-bk-1", "salto", "serena", "bk-1", "r1", "2027-03-16", "2027-03-18", "active", 0)
        vendor.execute("INSERT INTO credentials VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    ledger.close()
    shelf = Shelf(bookings=[("serena", "bk-1", status)])
    assert len(lingering(books(shelf), tmp_path / "vendors.db")) == found
    with closing(sqlite3.connect(tmp_path / "vendors.db")) as connection:
        connection.execute("UPDATE credentials SET blocked = 1")
        connection.commit()
    assert lingering(books(shelf), tmp_path / "vendors.db") == []


# Money.


@pytest.fixture
def vendors(tmp_path: Path) -> Path:
    """Two captures of one booking, 180 and 18, and a refund of 20."""
    ledger = Ledger(tmp_path / "vendors.db")
    with ledger.writing() as vendor:
        for key, cents in (("stay", 180), ("balance", 18)):
            charge = (key, "card", "serena", "bk-1", cents, "captured", 1)
            vendor.execute("INSERT INTO charges VALUES (?, ?, ?, ?, ?, ?, ?)", charge)
        vendor.execute("INSERT INTO refunds VALUES ('back', 'stay', 'serena', 'bk-1', 20, 'refunded', 1)")
    ledger.close()
    return tmp_path / "vendors.db"


def folio(*, charged: Sequence[int], credited: Sequence[int] = ()) -> Shelf:
    shelf = Shelf()
    for cents in charged:
        shelf.say("billing.folio.charge_posted.v1", booking_id="bk-1", amount_cents=cents)
    for cents in credited:
        shelf.say("billing.folio.refund_posted.v1", booking_id="bk-1", amount_cents=cents)
    return shelf


def test_folio_lines_that_are_what_the_vendors_moved_add_up(vendors: Path) -> None:
    accounts = money.accounts(books(folio(charged=(180, 18), credited=(20,))), vendors)
    assert money.unbalanced(accounts) == []
    [sums] = money.tenants(accounts).values()
    assert sums.balanced
    assert (sums.captured, sums.refunded, sums.charged, sums.credited) == (198, 20, 198, 20)


@pytest.mark.parametrize(("charged", "credited"), [((180,), (20,)), ((180, 18), ()), ((180, 18, 18), (20,))])
def test_a_line_that_is_missing_or_too_many_does_not_add_up(
    vendors: Path, charged: Sequence[int], credited: Sequence[int]
) -> None:
    assert len(money.unbalanced(money.accounts(books(folio(charged=charged, credited=credited)), vendors))) == 1


def test_what_the_last_invoice_says_is_open_belongs_to_the_sum(vendors: Path) -> None:
    shelf = folio(charged=(180, 18, 30), credited=(20,))
    assert money.unbalanced(money.accounts(books(shelf), vendors))
    shelf.say("billing.invoice.issued.v1", booking_id="bk-1", balance_cents=30)
    assert money.unbalanced(money.accounts(books(shelf), vendors)) == []
    shelf.say("billing.folio.closed.v1", booking_id="bk-1")
    assert money.unbalanced(money.accounts(books(shelf), vendors))


def test_cash_counts_once_it_was_counted_and_until_it_goes_back(vendors: Path) -> None:
    shelf = folio(charged=(180, 18, 50), credited=(20,))
    shelf.say("payment.cash.reconciled.v1", booking_id="bk-1", intent_id="int-cash", amount_cents=50)
    assert money.unbalanced(money.accounts(books(shelf), vendors)) == []
    shelf.say("payment.intent.refunded.v1", booking_id="bk-1", intent_id="int-cash", amount_cents=50)
    assert money.unbalanced(money.accounts(books(shelf), vendors))


# Outcomes.


def test_bookings_and_sagas_are_counted_by_how_they_ended() -> None:
    shelf = Shelf(bookings=[("checked_out", ""), ("cancelled", "no_room"), ("cancelled", "no_room")])
    assert outcomes.bookings(books(shelf)) == {"cancelled: no_room": 2, "checked_out": 1}
    sagas = outcomes.sagas(books(Shelf(posthouse_saga=[("booking", "completed"), ("booking", "running")])))
    assert sagas == {"booking": {"completed": 1, "running": 1}}
    assert outcomes.unfinished(sagas) == 1
    turns = [
        ("check_in", 1, b'{"status": "partial"}'),
        ("check_in", 1, b'{"status": "partial"}'),
        ("booking", 2, b"{}"),
    ]
    assert outcomes.partials(books(Shelf(saga_turn=turns))) == {"check_in": 1}
    assert outcomes.unfinished({"check_in": {"partial": 3, "completed": 2}}) == 0
