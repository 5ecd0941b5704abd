"""The catalogue as a page of Markdown: what it says, and that foreign text is nothing but text."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec.structs import replace

from posthouse.governance.exports import export
from posthouse.governance.exports.flows import flows
from posthouse.governance.exports.mermaid import label
from posthouse.governance.exports.prose import code, paragraphs, table, text
from tests.unit.governance.exports.catalogues import HOSTILE, POISONED, SHOP

PAGE = export(SHOP, "markdown")["catalogue.md"]

GENTLE = [
    HOSTILE,
    "a | b",
    "\\|",
    "\\",
    "`",
    "``a`",
    "<b>",
    "&lt;",
    "*a* _b_ ~~c~~",
    "1. one",
    "- a",
    "+ a",
    "=== ",
    "import x",
    "{x}",
    "[a](b)",
]


def inline(tokens: list[Token]) -> list[Token]:
    return [token for token in tokens if token.type == "inline"]


def cells(page: str) -> list[str]:
    """The text that a reader sees in each cell of a table; anything that is not plain text or code fails."""
    parser = MarkdownIt("commonmark").enable("table")
    seen = []
    for token in inline(parser.parse(page)):
        children = token.children or []
        assert {child.type for child in children} <= {"text", "text_special", "code_inline"}, children
        seen.append("".join(child.content for child in children))
    return seen


def plain(said: str) -> str:
    return " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]", " ", said).split())


def diagrams(page: str) -> list[str]:
    tokens = MarkdownIt("commonmark").parse(page)
    return [token.content for token in tokens if token.type == "fence" and token.info == "mermaid"]


def test_an_event_is_a_row_with_owner_key_retention_and_who_hears_it() -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| `shop.orders.order.placed.v2`"))
    assert row == (
        "| `shop.orders.order.placed.v2` | A customer has placed an order. | team checkout | `order_id` | warm | eu-west "
        "| `shop.orders.order` | `orders` | `billing` |"
    )


def test_a_deprecated_event_says_from_when_and_what_instead() -> None:
    assert "Deprecated from 2027-01-31, see shop.orders.order.placed.v2. A customer" in PAGE


def test_a_topic_states_order_parallelism_delivery_and_dead_letters() -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| `shop.orders.order` |"))
    assert row == (
        "| `shop.orders.order` | team checkout | per tenant and `order_id` | one of a key | at least once; applied once per "
        "consumer | `shop.orders.order.dlq` | `orders` | `billing`, `hotel` |"
    )


def test_a_consumer_states_its_policy_and_its_back_pressure() -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| `billing` |"))
    assert "| per key | 7, pauses of 10 to 600 s | at most 30 s | its key waits for an operator |" in row
    assert row.endswith("| takes no more while 50 are in flight |")


def test_a_diagram_shows_who_hears_whom() -> None:
    talk = diagrams(PAGE)[0]
    assert 's2["orders"]' in talk
    assert 's2 -->|"order.placed.v2"| s0' in talk
    assert 's4["shop.stock, not listed"]' in talk
    assert 's4 -->|"item.counted.v1"| s3' in talk


def test_a_flow_follows_what_handlers_say() -> None:
    (flow,) = flows(SHOP.document)
    assert flow.start == "shop.orders.order.placed.v2"
    assert [step.name.rpartition(".")[2] for step in flow.steps] == ["invoice", "pack"]
    assert flow.subjects[1:] == ["shop.billing.invoice.issued.v1", "shop.parcels.parcel.sent.v1"]
    assert "h0 --> e1" in diagrams(PAGE)[1]


def test_a_flow_that_leads_back_to_itself_ends() -> None:
    handlers = tuple(
        replace(handler, publishes=("shop.orders.order.placed.v2",)) if handler.name.endswith("pack") else handler
        for handler in SHOP.document.handlers
    )
    (flow,) = flows(replace(SHOP.document, handlers=handlers))
    assert flow.start == "shop.billing.invoice.issued.v1"
    assert len(flow.steps) == 2


def test_a_handler_that_joins_two_flows_is_in_both() -> None:
    invoice = next(handler for handler in SHOP.document.handlers if handler.name.endswith("invoice"))
    both = replace(invoice, reads=(*invoice.reads, replace(invoice.reads[0], subject="shop.orders.order.placed.v1")))
    found = flows(replace(SHOP.document, handlers=(both,)))
    assert [flow.start for flow in found] == ["shop.orders.order.placed.v1", "shop.orders.order.placed.v2"]
    assert all(flow.steps == (both,) for flow in found)


def test_a_handler_that_is_reached_in_two_ways_is_one_step() -> None:
    invoice, pack = (next(h for h in SHOP.document.handlers if h.name.endswith(name)) for name in ("invoice", "pack"))
    extra = "shop.billing.invoice.sent.v1"
    split = replace(invoice, publishes=(*invoice.publishes, extra))
    joined = replace(pack, reads=(*pack.reads, replace(pack.reads[0], subject=extra)))
    (flow,) = flows(replace(SHOP.document, handlers=(split, joined)))
    assert flow.steps == (split, joined)


@pytest.mark.parametrize("said", GENTLE)
def test_text_in_a_cell_is_shown_as_it_was_said(said: str) -> None:
    assert cells(table(["A", "B"], [[text(said), "end"]]))[2:] == [plain(said), "end"]
    assert cells(table(["A", "B"], [["start", code(said)]]))[2:] == ["start", plain(said)]


@pytest.mark.parametrize("said", GENTLE)
def test_a_paragraph_is_shown_as_it_was_said_and_is_nothing_else(said: str) -> None:
    made = paragraphs(said)
    tokens = MarkdownIt("commonmark").enable("table").parse(made)
    assert {token.type for token in tokens} <= {"paragraph_open", "paragraph_close", "inline"}
    assert " ".join(cells(made)) == plain(said)
    assert not re.search(r"(?<!\\)[{}<]", made)
    assert not re.search(r"^(import|export)\b", made, re.MULTILINE)


def test_a_hostile_catalogue_keeps_the_shape_of_the_page() -> None:
    made = export(POISONED, "markdown")["catalogue.md"]
    kinds = ["heading_open", "fence", "table_open", "tr_open"]
    parser = MarkdownIt("commonmark").enable("table")

    def shape(page: str) -> list[int]:
        types = [token.type for token in parser.parse(page)]
        return [types.count(kind) for kind in kinds]

    assert shape(made) == shape(PAGE)
    assert cells(made)


def test_a_label_has_no_sign_that_a_diagram_could_read() -> None:
    made = label(HOSTILE)
    assert not set('"`<>{}[]()|\n\\&%$') & set(made)
    assert re.sub(r"#(\d+);", lambda found: chr(int(found[1])), made) == HOSTILE
