"""`posthouse contract`: a consumer writes what it expects, and a producer elsewhere is held to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import SHOP, Project

WEB = """
from posthouse import Event, Payload, Service

web = Service("web", namespace="shop")


@web.external("shop.orders.order.placed.v1", key="order_id")
class Order(Payload):
    order_id: str
    total_cents: int
    state: str = "OPEN"


@web.on(Order, reads=["order_id", "total_cents"])
async def show(event: Event[Order]) -> None: ...
"""

SAMPLES = "event-schemas/samples/orders/order/placed/v1"


@pytest.fixture
def frozen(project: Project) -> Project:
    project.run("catalog", "freeze", "shop")
    project.write("web.py", WEB)
    return project


def sample(project: Project, message: object, place: str = SAMPLES) -> Path:
    folder = project.folder / place
    folder.mkdir(parents=True, exist_ok=True)
    return project.write(f"{place}/one.json", json.dumps(message))


def test_a_repository_whose_parts_get_along_says_what_was_looked_at(frozen: Project) -> None:
    sample(frozen, {"order_id": "o1", "total_cents": 1200})
    result = frozen.run("contract", "verify", "shop")
    assert result.exit_code == 0, result.output
    assert result.stdout == "all agree: 1 sample, 1 decoder, 1 expectation\n"


def test_pacts_go_from_the_consumers_repository_to_the_producers(frozen: Project) -> None:
    written = frozen.run("contract", "write", "pacts", "web")
    assert "pacts/web-orders.json" in written.stdout
    assert "1 pact, 1 file changed" in written.stdout
    assert frozen.json("contract", "write", "pacts", "web") == {"files": ["web-orders.json"], "touched": []}
    assert frozen.run("contract", "verify", "--pacts", "pacts").stdout.startswith("all agree: 0 samples, 0 decoders, 1")
    frozen.write("shop.py", SHOP.replace("total_cents", "total"))
    frozen.run("catalog", "freeze", "shop")
    broken = frozen.run("contract", "verify", "--pacts", "pacts")
    assert broken.exit_code == 1
    for said in (
        "✗ web.show (web)  shop.orders.order.placed.v1  consumer",
        "where    /total_cents",
        "It needs this field, and the producer may leave it out.",
        'example  {"order_id":"a","total":0}',
        "1 disagreement; 0 samples, 0 decoders, 1 expectation",
    ):
        assert said in broken.stdout


def test_a_consumer_is_checked_against_frozen_schemas_in_its_own_repository(frozen: Project) -> None:
    frozen.write("web.py", WEB.replace("total_cents: int", "total_cents: str"))
    result = frozen.run("contract", "verify", "web", "--json")
    assert result.exit_code == 1
    said = json.loads(result.stdout)
    assert said["agree"] is False
    assert [(one["kind"], one["path"]) for one in said["breaches"]] == [("consumer", "/total_cents")]
    assert isinstance(said["breaches"][0]["example"]["total_cents"], int)


def test_a_service_has_no_pact_with_itself(frozen: Project) -> None:
    assert frozen.json("contract", "write", "pacts", "shop") == {"files": [], "touched": []}


def test_a_sample_that_does_not_fit_is_named(frozen: Project) -> None:
    sample(frozen, {"order_id": "o1"})
    result = frozen.run("contract", "verify")
    assert result.exit_code == 1
    assert f"✗ {SAMPLES}/one.json  shop.orders.order.placed.v1  sample" in result.stdout
    assert "total_cents" in result.stdout


def test_code_that_no_longer_reads_a_sample_is_found(frozen: Project) -> None:
    sample(frozen, {"order_id": "o1", "total_cents": 1200})
    frozen.write("shop.py", SHOP.replace("total_cents", "total"))
    assert frozen.run("contract", "verify").exit_code == 0, "the frozen schema still takes it"
    assert frozen.run("contract", "verify", "shop").exit_code == 1


def test_an_event_that_a_known_producer_does_not_have_is_a_disagreement_and_others_are_told(frozen: Project) -> None:
    frozen.write("web.py", WEB.replace("placed.v1", "placed.v9"))
    result = frozen.run("contract", "verify", "web")
    assert result.exit_code == 1
    assert "orders has no such event. Did you mean 'shop.orders.order.placed.v1'?" in result.stdout
    frozen.write("web.py", WEB.replace("shop.orders.order", "shop.parcels.parcel"))
    elsewhere = frozen.run("contract", "verify", "web")
    assert elsewhere.exit_code == 0
    assert "web.show (web) reads shop.parcels.parcel.placed.v1: not checked, its schema is not here" in elsewhere.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--dir", "nowhere"), "there is nothing to verify"),
        (("--samples", "nowhere"), "there is no folder nowhere"),
        (("--pacts", "nowhere"), "there is no folder nowhere"),
        (("--pacts", "event-schemas/orders"), "is not a pact"),
    ],
)
def test_what_cannot_be_looked_at_ends_with_2(frozen: Project, options: tuple[str, ...], said: str) -> None:
    result = frozen.run("contract", "verify", *options)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_sample_at_no_place_is_refused_with_a_suggestion(frozen: Project) -> None:
    sample(frozen, {}, "event-schemas/samples/orders/order/place/v1")
    result = frozen.run("contract", "verify")
    assert result.exit_code == 2
    assert "Did you mean 'orders/order/placed/v1'?" in result.stderr


def test_a_consumer_must_read_the_samples_of_its_producer(frozen: Project) -> None:
    sample(frozen, {"order_id": "o1", "total_cents": 1200})
    frozen.write("web.py", WEB.replace("total_cents: int", "total_cents: str"))
    said = json.loads(frozen.run("contract", "verify", "web", "--json").stdout)
    (found,) = [one for one in said["breaches"] if one["kind"] == "sample"]
    assert "not a valid Order" in found["sentence"]


def test_code_that_refuses_what_its_schema_allows_is_found_by_examples(frozen: Project) -> None:
    stricter = """    note: str = ""

    def __post_init__(self) -> None:
        if self.total_cents < 0:
            raise ValueError("a negative total")
"""
    frozen.write("shop.py", SHOP.replace('    note: str = ""\n', stricter))
    result = frozen.run("contract", "verify", "shop")
    assert result.exit_code == 1
    assert "✗ OrderPlaced  shop.orders.order.placed.v1  decoder" in result.stdout
    assert "a negative total" in result.stdout
