"""What an account at a broker may do, beside what the catalogue says that it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from posthouse import App, Event, Payload, Rights, Service
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.survey import NOBODYS, Wish, strangers
from posthouse.watch.examining import examine
from posthouse.watch.permissions import NOBODY, compared, permission_checks

SAY, HEAR, OTHERS, ANY = Wish("publish", "a.own"), Wish("read", "b.heard"), Wish("publish", "b.heard"), Wish("publish")


def app(folder: Path, rights: Rights | None) -> App:
    shop = Service("shop")

    @shop.event("order.placed.v1", key="order_id")
    class OrderPlaced(Payload):
        order_id: str

    @shop.on(OrderPlaced)
    async def bill(event: Event[OrderPlaced]) -> None: ...

    return App(shop, store=f"sqlite:///{folder}/a.db", broker=MemoryBroker(clock=SystemClock()), rights=rights)


async def test_without_rights_nothing_is_compared(tmp_path: Path) -> None:
    assert await permission_checks(app(tmp_path, None)) == []


async def test_doctor_says_so_where_there_are_no_accounts(tmp_path: Path) -> None:
    examined = app(tmp_path, Rights())
    try:
        found = [check for part in await examine(examined) for check in part.checks if check.name == "account"]
    finally:
        await examined.aclose()
    assert [check.found for check in found] == ["memory has no accounts: whoever runs here may do everything"]


@pytest.mark.parametrize(
    ("url", "name", "who"),
    [
        ("sqs://eu-central-1", "sqs", "simulate-principal-policy"),
        ("postgresql://127.0.0.1:1/x", "postgres", "may write to its schema"),
    ],
)
async def test_a_broker_that_cannot_be_asked_is_named_and_never_called_right(
    tmp_path: Path, url: str, name: str, who: str
) -> None:
    made = App(Service("shop"), store=f"sqlite:///{tmp_path}/a.db", broker=url, rights=Rights())
    [check] = await permission_checks(made)
    assert (check.judgement, check.name) == ("warn", "account")
    assert check.found == f"{NOBODY}: {name} does not tell us"
    assert who in check.fix


def test_what_is_lacking_and_what_is_too_much_are_told_apart() -> None:
    narrow, wide = compared([SAY, HEAR], [OTHERS, ANY], {SAY: True, HEAR: False, OTHERS: True, ANY: True})
    assert (narrow.judgement, narrow.found) == ("warn", "it may not read b.heard")
    assert (wide.judgement, wide.found) == ("warn", "it may publish to b.heard, any other topic too")


def test_what_nobody_could_tell_is_not_called_right() -> None:
    *judged, untold = compared([SAY, HEAR], [OTHERS], {SAY: True, HEAR: None, OTHERS: False})
    assert [check.judgement for check in judged] == ["ok", "ok"]
    assert untold.found == "whether it may read b.heard"


def test_a_name_that_nobody_has_is_asked_for_in_each_namespace() -> None:
    wishes = [Wish("publish", "town.orders.order"), Wish("read", "shop.order"), Wish("read")]
    assert strangers(wishes) == [NOBODYS, f"town.{NOBODYS}"]
