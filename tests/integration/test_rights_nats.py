"""What `doctor` says of accounts of NATS that somebody wrote by hand, on the real server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from posthouse import App, Event, Payload, Rights, Service, Tx
from posthouse.watch.permissions import permission_checks
from tests.kit.servers import nats as nats_kit
from tests.kit.servers.process import folder_of, started

OWN = (
    "$JS.API.STREAM.INFO.>",
    "$JS.API.CONSUMER.CREATE.town_orders_order.>",
    "$JS.API.CONSUMER.MSG.NEXT.town_orders_order.*",
    "posthouse-groups.>",
    "town.orders.order.dlq.*",
)
WHO, INVOICE = "$SYS.REQ.USER.INFO", "town.billing.invoice.*"


def user(*more: str, deny: Sequence[str] = (), hears: Sequence[str] = ()) -> str:
    """Permissions as the configuration has them."""
    said = {
        "publish": {"allow": [*OWN, *more], "deny": list(deny)},
        "subscribe": {"allow": ["_INBOX_mine.>", *hears]},
    }
    return json.dumps(said)


USERS = {
    "fits": user(WHO, INVOICE),
    "unheard": user(INVOICE),
    "deaf": user(WHO, INVOICE, deny=["$JS.API.CONSUMER.MSG.NEXT.>"]),
    "half": user(WHO, "town.billing.invoice.0"),
    "mute": user(WHO, "town.billing.note.*"),
    "namespace": user(WHO, INVOICE, "town.>"),
    "carved": user(WHO, INVOICE, "town.>", deny=["town.>"]),
    "streams": user(WHO, INVOICE, "$JS.API.>"),
    "direct": user(WHO, INVOICE, "$JS.API.DIRECT.GET.town_secret_letter"),
    "listener": user(WHO, INVOICE, hears=["town.secret.letter"]),
    "queued": user(WHO, INVOICE, hears=["town.secret.letter workers"]),
    "shared": user(WHO, INVOICE, hears=["_INBOX.>"]),
    "denied": json.dumps({"publish": {"deny": ["secret.>"]}, "subscribe": {"deny": ["secret.>"]}}),
}


class ByHand(nats_kit.NatsServer):
    def _command(self) -> list[str]:
        users = "\n".join(f"{{ user: {name}, password: {name}, permissions: {said} }}" for name, said in USERS.items())
        file = self._folder / "nats.conf"
        file.write_text(
            f'listen: 127.0.0.1:{self.port}\njetstream {{ store_dir: "{self._folder}/data" }}\n'
            f"accounts {{ TOWN {{ jetstream: enabled\n users: [ {{ user: all, password: all }}\n{users} ] }} }}\n"
        )
        return [str(self._program), "-c", str(file)]


@pytest.fixture(scope="module")
def server() -> Iterator[nats_kit.NatsServer]:
    with folder_of("nats") as folder, started(ByHand(nats_kit.program(), folder)) as running:
        yield running


def billing() -> Service:
    orders, made = Service("orders", namespace="town"), Service("billing", namespace="town")

    @orders.event("order.placed.v1", key="order_id")
    class OrderPlaced(Payload):
        order_id: str

    @made.event("invoice.issued.v1", key="order_id")
    class InvoiceIssued(Payload):
        order_id: str

    @made.on(OrderPlaced)
    async def invoice(event: Event[OrderPlaced], tx: Tx) -> None: ...

    return made


async def judged(server: nats_kit.NatsServer, user: str, folder: Path) -> dict[str, tuple[str, str]]:
    url = f"{server.url_of(user)}?partitions=2&inbox=_INBOX_mine"
    app = App(billing(), store=f"sqlite:///{folder}/billing.db", broker=url, rights=Rights())
    try:
        return {check.name: (check.judgement, check.found) for check in await permission_checks(app)}
    finally:
        await app.aclose()


async def test_an_account_that_fits_is_said_to_fit(server: nats_kit.NatsServer, tmp_path: Path) -> None:
    found = await judged(server, "fits", tmp_path)
    assert {name: judgement for name, (judgement, _) in found.items()} == {
        "account, too narrow": "ok",
        "account, too wide": "ok",
    }


async def test_what_is_denied_again_is_neither_there_nor_too_much(server: nats_kit.NatsServer, tmp_path: Path) -> None:
    found = await judged(server, "carved", tmp_path)
    assert found["account, too wide"][0] == "ok"
    assert "town.billing.invoice" in found["account, too narrow"][1]


@pytest.mark.parametrize(
    ("account", "lacks"),
    [("deaf", "read town.orders.order"), ("mute", "publish to town.billing.invoice")],
)
async def test_what_an_account_lacks_is_named(
    server: nats_kit.NatsServer, tmp_path: Path, account: str, lacks: str
) -> None:
    found = await judged(server, account, tmp_path)
    assert found["account, too narrow"] == ("warn", f"it may not {lacks}")


@pytest.mark.parametrize(
    ("account", "much"),
    [
        ("namespace", "publish to town.orders.order, any other topic"),
        ("mute", "publish to any other topic"),
        ("streams", "read any other topic"),
        ("direct", "read any other topic"),
        ("listener", "read any other topic"),
        ("queued", "read any other topic"),
        ("shared", "read any other topic"),
        ("denied", "publish to town.orders.order, any other topic; read any other topic"),
        ("all", "publish to town.orders.order, any other topic; read any other topic"),
    ],
)
async def test_what_an_account_may_beyond_the_catalogue_is_named(
    server: nats_kit.NatsServer, tmp_path: Path, account: str, much: str
) -> None:
    assert (await judged(server, account, tmp_path))["account, too wide"] == ("warn", f"it may {much} too")


async def test_a_right_to_some_partitions_is_neither_fit_nor_lacking(
    server: nats_kit.NatsServer, tmp_path: Path
) -> None:
    found = await judged(server, "half", tmp_path)
    assert found["account, not told"] == ("ok", "whether it may publish to town.billing.invoice")
    assert found["account, too narrow"][0] == "ok"


async def test_an_account_that_may_not_ask_is_not_called_fit(server: nats_kit.NatsServer, tmp_path: Path) -> None:
    judgement, found = (await judged(server, "unheard", tmp_path))["account"]
    assert judgement == "warn"
    assert found.startswith("not compared: NATS")
    assert "$SYS.REQ.USER.INFO" in found
