"""A schema URI is looked at once, and what contradicts the frozen schemas is held with a reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from posthouse import App, Event, Payload, Policy, Service
from posthouse.app import app_of
from posthouse.contracts import EventType, event_type_of
from posthouse.contracts.lock import Lock, Locked
from posthouse.errors import ConfigurationError, ContractError
from posthouse.governance.folder import read_folder, write_folder
from posthouse.governance.freezing import freeze
from posthouse.governance.listing import catalogue_of
from posthouse.seam import SchemaGuard
from posthouse.seam.schema_guard import LOOK_AGAIN, MAX_SEEN
from posthouse.testing import Harness

PLACE = "schemas://orders/order/placed/v1"


def order_placed() -> EventType[object]:
    service = Service("orders", namespace="shop")

    @service.event("order.placed.v1")
    class OrderPlaced(Payload):
        order_id: str

    return event_type_of(OrderPlaced)


def event(schema: str | None = None, content_type: str | None = "application/json") -> Event[bytes]:
    return Event(
        id="1",
        type="shop.orders.order.placed.v1",
        source="/",
        data=b"{}",
        time="",
        schema=schema,
        content_type=content_type,
    )


def lock(content_hash: str, *earlier: str, subject: str = "shop.orders.order.placed.v1") -> Lock:
    return Lock(schemas={"orders/order/placed/v1.json": Locked(subject=subject, hash=content_hash, earlier=earlier)})


class Reader:
    """Stands for a folder whose lock may change; counts how often it is read."""

    def __init__(self, *locks: Lock) -> None:
        self.locks = list(locks)
        self.count = 0

    def __call__(self) -> Lock:
        self.count += 1
        return self.locks.pop(0) if len(self.locks) > 1 else self.locks[0]


def clock(start: float = 0.0) -> tuple[list[float], Callable[[], float]]:
    moments = [start]
    return moments, lambda: moments[0]


@pytest.mark.parametrize(
    "schema", [None, "https://example.org/schema#1", PLACE, f"{PLACE}#sha256-new", "schemas:/odd", ""]
)
def test_without_frozen_schemas_the_decoder_judges(schema: str | None) -> None:
    SchemaGuard().check(order_placed(), event(schema))


def test_a_uri_of_another_subject_is_refused() -> None:
    with pytest.raises(ContractError, match="its schema URI names schemas://orders/order/placed/v2"):
        SchemaGuard().check(order_placed(), event("schemas://orders/order/placed/v2#sha256-new"))


def test_hashes_that_a_version_has_or_had_are_fine() -> None:
    sight = SchemaGuard(Reader(lock("sha256-now", "sha256-before")))
    sight.check(order_placed(), event(f"{PLACE}#sha256-now"))
    sight.check(order_placed(), event(f"{PLACE}#sha256-before"))


def test_a_hash_that_contradicts_the_frozen_one_is_refused_each_time() -> None:
    sight = SchemaGuard(Reader(lock("sha256-now")))
    for _ in range(2):
        with pytest.raises(ContractError, match=r"sha256-other is none that shop.orders.order.placed.v1 has or had"):
            sight.check(order_placed(), event(f"{PLACE}#sha256-other"))


def test_what_is_not_frozen_or_belongs_to_another_namespace_is_left_to_the_decoder() -> None:
    SchemaGuard(Reader(Lock())).check(order_placed(), event(f"{PLACE}#sha256-other"))
    other = lock("sha256-now", subject="depot.orders.order.placed.v1")
    SchemaGuard(Reader(other)).check(order_placed(), event(f"{PLACE}#sha256-other"))


def test_an_unknown_hash_is_looked_up_again_but_not_all_the_time() -> None:
    reader, (moments, now) = Reader(lock("sha256-now"), lock("sha256-new", "sha256-now")), clock(100.0)
    sight = SchemaGuard(reader, now)
    for moments[0] in (100.0, 100.0 + LOOK_AGAIN / 2):
        with pytest.raises(ContractError):
            sight.check(order_placed(), event(f"{PLACE}#sha256-new"))
    assert reader.count == 1
    moments[0] = 100.0 + LOOK_AGAIN
    sight.check(order_placed(), event(f"{PLACE}#sha256-new"))
    sight.check(order_placed(), event(f"{PLACE}#sha256-new"))
    assert reader.count == 2


def test_what_was_found_fine_is_not_looked_at_again() -> None:
    moments, now = clock()
    sight = SchemaGuard(Reader(lock("sha256-now"), lock("sha256-later")), now)
    sight.check(order_placed(), event(f"{PLACE}#sha256-now"))
    moments[0] = LOOK_AGAIN
    with pytest.raises(ContractError):
        sight.check(order_placed(), event(f"{PLACE}#sha256-other"))
    sight.check(order_placed(), event(f"{PLACE}#sha256-now"))


def test_a_lock_that_cannot_be_read_for_a_moment_leaves_what_was_known() -> None:
    known = [lock("sha256-now")]

    def read() -> Lock:
        if not known:
            raise ConfigurationError("half written")
        return known.pop()

    moments, now = clock()
    sight = SchemaGuard(read, now)
    sight.check(order_placed(), event(f"{PLACE}#sha256-now"))
    moments[0] = LOOK_AGAIN
    with pytest.raises(ContractError):
        sight.check(order_placed(), event(f"{PLACE}#sha256-other"))


def test_many_invented_uris_do_not_fill_the_memory() -> None:
    sight, event_type = SchemaGuard(), order_placed()
    for number in range(MAX_SEEN + 10):
        sight.check(event_type, event(f"{PLACE}#sha256-{number}"))
    assert len(sight._seen) <= MAX_SEEN


@pytest.mark.parametrize(
    "content_type", [None, "application/json; charset=utf-8", "text/json", "a/b+json", "text/plain"]
)
def test_json_and_whatever_says_nothing_certain_is_left_to_the_decoder(content_type: str | None) -> None:
    SchemaGuard().check(order_placed(), event(content_type=content_type))


@pytest.mark.parametrize("content_type", ["application/avro", "application/x-protobuf"])
def test_another_encoding_is_refused(content_type: str) -> None:
    with pytest.raises(ContractError, match=f"its data is {content_type}, but .* is declared here as json"):
        SchemaGuard().check(order_placed(), event(content_type=content_type))


# With a whole service.


def shop(folder: Path) -> tuple[Service, Service, type[Payload], list[str]]:
    producer, consumer = Service("orders", namespace="shop"), Service("billing", schemas=folder)
    heard: list[str] = []

    @producer.event("order.placed.v1", key="order_id")
    class OrderPlaced(Payload):
        order_id: str
        total_cents: int = 0

    @consumer.external("shop.orders.order.placed.v1", key="order_id")
    class Placed(Payload):
        order_id: str

    @consumer.on(Placed, policy=Policy(max_attempts=1))
    async def bill(event: Event[Placed]) -> None:
        heard.append(event.data.order_id)

    return producer, consumer, OrderPlaced, heard


def freeze_into(folder: Path, *services: Service) -> None:
    write_folder(folder, freeze(catalogue_of(services), read_folder(folder)).files)


async def test_an_event_whose_schema_is_frozen_is_applied(tmp_path: Path) -> None:
    producer, consumer, placed, heard = shop(tmp_path)
    freeze_into(tmp_path, producer, consumer)
    async with Harness(producer, consumer) as harness:
        await harness.publish(placed(order_id="o1"))
        await harness.settled()
    assert heard == ["o1"]


async def test_an_event_that_contradicts_the_frozen_schema_is_held_and_applied_once_it_is_frozen(
    tmp_path: Path,
) -> None:
    producer, consumer, placed, heard = shop(tmp_path)
    freeze_into(tmp_path, producer, consumer)
    good = (tmp_path / "catalogue.lock").read_bytes()
    frozen = msgspec.json.decode(good, type=Lock)
    (path,) = frozen.schemas
    other = msgspec.structs.replace(frozen.schemas[path], hash="sha256-other")
    (tmp_path / "catalogue.lock").write_bytes(
        msgspec.json.encode(msgspec.structs.replace(frozen, schemas={path: other}))
    )
    async with Harness(producer, consumer) as harness:
        await harness.publish(placed(order_id="o1"))
        await harness.settled()
        (held,) = await harness.held(consumer)
        assert held.state == "dead"
        assert "is none that shop.orders.order.placed.v1 has or had in the frozen schemas" in held.reason + held.error
        assert heard == []
        (tmp_path / "catalogue.lock").write_bytes(good)
        await harness.advance(LOOK_AGAIN)
        await consumer.held.retry(held.id)
        await harness.settled()
    assert heard == ["o1"]


async def test_a_service_does_not_start_with_an_event_that_is_not_frozen(tmp_path: Path) -> None:
    service = Service("orders", namespace="shop", schemas=tmp_path)
    App(service, store="sqlite://", broker="memory://")

    @service.event("order.placed.v1")
    class OrderPlaced(Payload):
        order_id: str

    with pytest.raises(ConfigurationError, match="holds no frozen catalogue"):
        await app_of(service).opened.prepare()
    freeze_into(tmp_path, service)
    await app_of(service).opened.prepare()
    await service.aclose()

    changed = Service("orders", namespace="shop", schemas=tmp_path)
    App(changed, store="sqlite://", broker="memory://")

    @changed.event("order.placed.v1")
    class OrderPlacedNow(Payload):
        order_id: int

    with pytest.raises(ConfigurationError, match=r"shop.orders.order.placed.v1 is not as frozen in"):
        await app_of(changed).opened.prepare()
    await changed.aclose()
