"""A catalogue is frozen into files, and every disagreement between the two is a sentence."""

from __future__ import annotations

import json
from datetime import date

import msgspec
import pytest

from posthouse import Payload, Service
from posthouse.contracts import json_schema
from posthouse.contracts.lock import LOCK
from posthouse.errors import ConfigurationError
from posthouse.governance.agreement import disagreements
from posthouse.governance.bundle import CONSUMERS, TOPICS, Bundle, Files, is_part, place_of, read_bundle
from posthouse.governance.document import Document, from_json, to_json
from posthouse.governance.freezing import freeze
from posthouse.governance.listing import catalogue_of
from posthouse.governance.schema_files import file_of, schema_in


class Placed(Payload):
    order_id: str


class PlacedWithNote(Payload):
    order_id: str
    note: str = ""


class Uploaded(Payload):
    name: str


class Issued(Payload):
    order_id: str


def orders(payload: type = Placed, *, version: int = 1) -> Service:
    service = Service("orders", namespace="shop", owner="sales")
    service.event(f"order.placed.v{version}", key="order_id")(payload)
    service.event("uploaded.v1", deprecated=date(2027, 1, 31))(Uploaded)
    return service


def billing(payload: type = Placed) -> Service:
    service = Service("billing", namespace="shop")
    service.event("invoice.issued.v1")(Issued)

    @service.on(payload)
    async def invoice(event: object) -> None: ...

    @service.on(payload, consumer="mail")
    async def mail(event: object) -> None: ...

    return service


def frozen_files(*documents: Document) -> Files:
    files: Files = {}
    for document in documents:
        files = {**files, **freeze(document, read_bundle(files)).files}
    return files


def both() -> Document:
    return catalogue_of([orders(), billing()])


def test_schemas_lie_where_their_subject_says() -> None:
    files = frozen_files(both())
    assert sorted(files) == [
        "billing/invoice/issued/v1.json",
        LOCK,
        CONSUMERS,
        "envelopes/cloudevents.v1.json",
        "orders/order/placed/v1.json",
        "orders/uploaded/v1.json",
        TOPICS,
    ]
    assert all(is_part(path) for path in files)
    assert not is_part("README.md")
    assert not is_part("orders/order/placed/v1.txt")
    assert not is_part("orders/order/placed/v01.json")


def test_a_frozen_schema_reads_back_to_the_hash_in_the_envelope() -> None:
    document = both()
    bundle = read_bundle(frozen_files(document))
    for entry in document.events:
        frozen = bundle.schemas[place_of(entry)]
        assert (frozen.service, frozen.aggregate, frozen.verb) == (entry.service, entry.aggregate, entry.verb)
        assert entry.schema_uri.endswith(f"#{frozen.schema.hash}")


def test_freezing_twice_gives_the_same_bytes_in_any_order_of_services() -> None:
    files = frozen_files(both())
    assert frozen_files(catalogue_of([billing(), orders()])) == files
    assert frozen_files(both(), both()) == files


def test_what_was_just_frozen_agrees() -> None:
    assert disagreements(both(), read_bundle(frozen_files(both()))) == []


def test_an_event_that_is_not_frozen_is_missing() -> None:
    found = disagreements(both(), Bundle())
    assert {one.kind for one in found} == {"missing", "topics", "consumers"}
    assert any(
        "shop.orders.order.placed.v1 is not frozen: run `posthouse catalog freeze`" in one.sentence for one in found
    )


def test_a_change_under_the_same_version_is_said_with_the_way_out() -> None:
    bundle = read_bundle(frozen_files(both()))
    (found,) = disagreements(catalogue_of([orders(PlacedWithNote)]), bundle)
    assert (found.kind, found.path) == ("changed", "orders/order/placed/v1.json")
    assert "shop.orders.order.placed.v1 changed without a new version" in found.sentence
    assert "declare v2" in found.sentence


def test_the_hash_before_a_change_is_remembered_in_the_lock() -> None:
    first, second = catalogue_of([orders()]), catalogue_of([orders(PlacedWithNote)])
    lock = read_bundle(frozen_files(first, second)).lock.schemas["orders/order/placed/v1.json"]
    assert [lock.hash, *lock.earlier] == [second.events[0].hash, first.events[0].hash]
    back = read_bundle(frozen_files(first, second, first)).lock.schemas["orders/order/placed/v1.json"]
    assert [back.hash, *back.earlier] == [first.events[0].hash, second.events[0].hash]


def test_a_frozen_event_that_nobody_declares_is_stale_until_it_is_pruned() -> None:
    files = frozen_files(both())
    newer = catalogue_of([orders(version=2)])
    after = {**files, **freeze(newer, read_bundle(files)).files}
    (found,) = [one for one in disagreements(newer, read_bundle(after)) if one.kind == "stale"]
    assert found.path == "orders/order/placed/v1.json"
    assert "--prune" in found.sentence
    made = freeze(newer, read_bundle(after), prune=True)
    assert made.stale == ["orders/order/placed/v1.json"]
    pruned = {path: data for path, data in {**after, **made.files}.items() if path not in made.stale}
    assert [one.kind for one in disagreements(newer, read_bundle(pruned))] == []
    left = read_bundle(pruned).lock.schemas
    assert "orders/order/placed/v1.json" not in left
    assert "billing/invoice/issued/v1.json" in left, "it belongs to a service that was not named"


def test_a_file_or_a_lock_that_was_edited_by_hand_is_found() -> None:
    path = "orders/order/placed/v1.json"
    files = dict(frozen_files(both()))
    schema = json.loads(files[path])
    schema["properties"]["order_id"]["maxLength"] = 5
    edited = {**files, path: json.dumps(schema).encode()}
    assert {one.kind for one in disagreements(both(), read_bundle(edited))} == {"changed", "edited"}

    lock = json.loads(files[LOCK])
    lock["schemas"][path]["hash"] = "sha256-0"
    (found,) = disagreements(both(), read_bundle({**files, LOCK: json.dumps(lock).encode()}))
    assert (found.kind, found.path) == ("edited", path)

    other = {**json.loads(files[LOCK]), "topics": "sha256-0"}
    (found,) = disagreements(both(), read_bundle({**files, LOCK: json.dumps(other).encode()}))
    assert (found.kind, found.path) == ("edited", TOPICS)

    del lock["schemas"][path]
    (found,) = disagreements(both(), read_bundle({**files, LOCK: json.dumps(lock).encode()}))
    assert f"is not in {LOCK}" in found.sentence


def test_prose_and_layout_of_a_frozen_file_may_differ() -> None:
    path = "orders/order/placed/v1.json"
    files = dict(frozen_files(both()))
    told = {**json.loads(files[path]), "description": "other words"}
    assert disagreements(both(), read_bundle({**files, path: json.dumps(told).encode()})) == []


def test_a_schema_in_the_lock_without_its_file_is_found() -> None:
    files = dict(frozen_files(both()))
    del files["orders/uploaded/v1.json"]
    only_placed = Service("orders", namespace="shop", owner="sales")
    only_placed.event("order.placed.v1", key="order_id")(Placed)
    found = disagreements(catalogue_of([only_placed]), read_bundle(files))
    assert ("edited", "orders/uploaded/v1.json") in [(one.kind, one.path) for one in found]


def test_topics_say_what_differs() -> None:
    bundle = read_bundle(frozen_files(both()))
    other = Service("orders", namespace="shop", owner="finance")
    other.event("order.placed.v1")(Placed)
    other.event("uploaded.v1")(Uploaded)
    found = disagreements(catalogue_of([other]), bundle)
    whole, aggregate = [one.sentence for one in found if one.kind == "topics"]
    assert whole.startswith("the topic shop.orders has finance as owner, not sales: run")
    assert (
        "shop.orders.order has finance as owner, not sales; has nothing as ordering, not order_id; has un" in aggregate
    )


def test_the_lock_keeps_the_terms_of_an_event_and_says_what_differs() -> None:
    bundle = read_bundle(frozen_files(both()))
    placed = bundle.lock.schemas["orders/order/placed/v1.json"]
    assert (placed.topic, placed.key, placed.owner, placed.retention) == (
        "shop.orders.order",
        "order_id",
        "sales",
        "hot",
    )
    other = Service("orders", namespace="shop", owner="sales")
    other.event("order.placed.v1", retention="cold")(Placed)
    other.event("uploaded.v1")(Uploaded)
    (said,) = [one.sentence for one in disagreements(catalogue_of([other]), bundle) if one.kind == "terms"]
    assert "order.placed.v1 has nothing as key, not order_id; has cold as retention, not hot: run" in said


def test_what_handlers_read_is_frozen_and_compared() -> None:
    bundle = read_bundle(frozen_files(both()))
    assert [(one.consumer, one.reads[0].fields) for one in bundle.consumers] == [
        ("billing", None),
        ("billing.mail", None),
    ]
    quiet = Service("billing", namespace="shop")
    quiet.event("invoice.issued.v1")(Issued)
    found = [one.sentence for one in disagreements(catalogue_of([quiet]), bundle) if one.kind == "consumers"]
    assert len(found) == 2
    assert "of the consumer billing.mail does not read what consumers.json says" in found[1]
    assert b"mail" not in freeze(catalogue_of([quiet]), bundle).files[CONSUMERS]


def test_one_service_alone_leaves_the_files_of_others_as_they_are() -> None:
    files = frozen_files(both())
    alone = freeze(catalogue_of([orders()]), read_bundle(files)).files
    assert "billing/invoice/issued/v1.json" not in alone
    assert {path: files[path] for path in alone} == dict(alone)
    assert disagreements(catalogue_of([billing()]), read_bundle(files)) == []


def test_services_frozen_one_after_the_other_give_the_same_bundle_as_together() -> None:
    assert frozen_files(catalogue_of([billing()]), catalogue_of([orders()])) == frozen_files(both())
    assert frozen_files(catalogue_of([orders()]), catalogue_of([billing()])) == frozen_files(both())


def test_a_consumer_that_is_gone_leaves_the_topic() -> None:
    files = frozen_files(both())
    silent = Service("billing", namespace="shop")
    silent.event("invoice.issued.v1")(Issued)
    after = read_bundle({**files, **freeze(catalogue_of([silent]), read_bundle(files)).files})
    assert [topic.consumers for topic in after.topics if topic.name == "shop.orders.order"] == [()]


def test_a_foreign_topic_that_nobody_reads_any_more_is_gone() -> None:
    reader = Service("billing", namespace="shop")

    @reader.external("depot.stock.item.counted.v1")
    class ItemCounted(Payload):
        item: str

    @reader.on(ItemCounted)
    async def count(event: object) -> None: ...

    files = frozen_files(catalogue_of([reader]))
    assert [topic.name for topic in read_bundle(files).topics] == ["depot.stock.item"]
    assert read_bundle(frozen_files(catalogue_of([reader]), catalogue_of([Service("billing")]))).topics == ()


def test_a_schema_whose_references_cannot_be_followed_is_written_as_it_is() -> None:
    schema = json_schema({"$anchor": "top", "properties": {"a": {"$ref": "#top"}}})
    data = file_of(schema, place="schemas://a/b/v1", subject="a.b.v1", description="")
    assert schema_in("a/b/v1.json", data) == schema


def test_two_namespaces_cannot_share_a_file() -> None:
    one, two = Service("orders", namespace="shop"), Service("orders", namespace="depot")
    one.event("order.placed.v1")(Placed)
    two.event("order.placed.v1")(PlacedWithNote)
    with pytest.raises(ConfigurationError, match=r"would share orders/order/placed/v1\.json"):
        freeze(catalogue_of([one, two]), Bundle())


def test_every_unreadable_file_is_named_at_once() -> None:
    files = {"orders/order/placed/v1.json": b"{", TOPICS: b"<<<<<<< HEAD", LOCK: b"\xff", "notes.txt": b"\xff"}
    with pytest.raises(ConfigurationError) as caught:
        read_bundle(files)
    assert [problem.split()[0] for problem in caught.value.problems] == [TOPICS, LOCK, "orders/order/placed/v1.json"]


def test_a_document_survives_json() -> None:
    document = both()
    assert from_json(to_json(document)) == document
    assert msgspec.json.decode(to_json(document))["events"][2]["deprecated"] == "2027-01-31"
    with pytest.raises(ConfigurationError, match="not a catalogue"):
        from_json(b'{"events": 3}')
