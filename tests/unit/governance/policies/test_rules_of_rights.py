"""Rights that contradict what is declared, and those that keep nothing, are found before anything runs."""

from __future__ import annotations

import pytest

from tests.unit.governance.policies.conftest import Find

SHOP = """
from posthouse import App, Rights

@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str

@billing.event("invoice.issued.v1", key="order_id")
class InvoiceIssued(Payload):
    order_id: str

@billing.on(OrderPlaced)
async def invoice(event: Event[OrderPlaced], tx: Tx) -> None:
    tx.publish({said}(order_id="1"))

app = App(orders, billing, rights={rights})
"""


def shop(rights: str, said: str = "InvoiceIssued") -> str:
    return SHOP.format(rights=rights, said=said)


@pytest.mark.parametrize(
    ("rights", "where", "sentence"),
    [
        (
            'Rights(read={"shop.orders.*": ["ledger"]})',
            "billing",
            "shop.invoice reads shop.orders.order, and billing may not read shop.orders.order: it is kept for ledger",
        ),
        (
            'Rights(publish={"shop.orders.*": ["billing", "erp"]})',
            "shop.orders.order",
            "Rights(publish) lets billing publish to shop.orders.order, and a service says its own facts alone",
        ),
        (
            'Rights(read={"shop.billing.*": []}, replay={"shop.billing.*": ["orders"]})',
            "shop.billing.invoice",
            "Rights(replay) names orders for shop.billing.invoice, and it may not even read that",
        ),
        (
            'Rights(grants=True, approvers=["ada", "Ada (console)"])',
            "approvers",
            "grants are asked for, and ada alone approves them: what ada asks for nobody can approve",
        ),
        (
            "Rights(grants=True, approvers=[])",
            "approvers",
            "grants are asked for, and nobody approves them: whatever needs one is refused",
        ),
    ],
)
def test_a_contradiction_is_found_and_said(find: Find, rights: str, where: str, sentence: str) -> None:
    [found] = find("rights-contradict", shop(rights))
    assert found.where == where
    assert found.sentence.startswith(sentence)
    assert found.severity == "error"


def test_a_handler_that_says_the_fact_of_another_is_found_where_it_says_it(find: Find) -> None:
    [found] = find("rights-contradict", shop("Rights()", said="OrderPlaced"))
    assert found.where == "shop.invoice"
    assert (
        "shop.invoice publishes shop.orders.order.placed.v1, and shop.orders.order is not billing's" in found.sentence
    )
    assert found.line is not None


@pytest.mark.parametrize(
    "rights",
    [
        "None",
        "Rights()",
        'Rights(read={"shop.orders.*": ["shop.billing"]}, replay={"shop.orders.*": []})',
        'Rights(publish={"shop.orders.*": ["erp", "orders"]})',
        'Rights(replay={"*": ["*"]}, tenants={"*": ["eu-*"]})',
        'Rights(grants=True, approvers=["ada", "grace"])',
        'Rights(grants=True, approvers=["*@ops.example"])',
        'Rights(approvers=["ada"])',
    ],
)
def test_what_fits_is_left_alone(find: Find, rights: str) -> None:
    assert find("rights-contradict", shop(rights)) == []
    assert find("rights-keep-nothing", shop(rights)) == []


@pytest.mark.parametrize(
    ("rights", "where", "sentence"),
    [
        (
            'Rights(read={"shop.order.*": ["billing"]})',
            "shop.order.*",
            "Rights(read) names shop.order.*, and no topic is called so",
        ),
        (
            'Rights(publish={"shop.erp.*": ["erp"]})',
            "shop.erp.*",
            "Rights(publish) names shop.erp.*, and no topic is called so",
        ),
        (
            'Rights(replay={"shop.*": ["billing"], "shop.orders.*": []})',
            "shop.orders.*",
            "Rights(replay) names shop.orders.*, and patterns before it fit all its topics: it is never asked",
        ),
        (
            'Rights(read={"shop.orders.*": ["billing", "leger"]})',
            "leger",
            "Rights(read) lists leger for shop.orders.*, and no service is called so",
        ),
        (
            'Rights(tenants={"biling": ["eu-*"]})',
            "biling",
            "Rights(tenants) names biling, and no service is called so",
        ),
    ],
)
def test_what_matches_nothing_is_found_and_said(find: Find, rights: str, where: str, sentence: str) -> None:
    [found] = find("rights-keep-nothing", shop(rights))
    assert (found.where, found.sentence, found.severity) == (where, sentence, "warning")


def test_the_rights_of_one_app_are_asked_about_services_of_others(find: Find) -> None:
    rights = 'Rights(read={"shop.orders.*": ["ledger"]})'
    text = shop(rights).replace(f"App(orders, billing, rights={rights})", f"App(orders, rights={rights}); App(billing)")
    [found] = find("rights-contradict", text)
    assert found.where == "billing"
