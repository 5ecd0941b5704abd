"""The API of Confluent's registry, on both stores."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from posthouse.governance.envelopes import envelope_files
from posthouse.governance.registry.ledgers import open_ledger
from tests.integration.registry.client import (
    ORDER,
    ORDER_WITH_NOTE,
    ORDER_WITH_TOTAL,
    Client,
    schema_body,
    served,
)

KIND = {"content-type": "application/vnd.schemaregistry.v1+json"}
PAYMENT = {"type": "enum", "name": "Payment", "symbols": ["CARD", "CASH"]}


async def test_a_new_registry_has_no_subjects_and_the_usual_settings(registry: Client) -> None:
    assert await registry.get("/") == {}
    assert await registry.get("/subjects") == []
    assert await registry.get("/schemas/types") == ["AVRO", "JSON", "PROTOBUF"]
    assert await registry.get("/config") == {"compatibilityLevel": "BACKWARD"}
    assert await registry.get("/mode") == {"mode": "READWRITE"}
    assert await registry.get("/contexts") == ["."]


async def test_a_schema_is_given_back_by_id_and_by_version(registry: Client) -> None:
    answer = await registry.ask("POST", "/subjects/orders-value/versions", schema_body(ORDER))
    assert answer.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
    text = schema_body(ORDER)["schema"]
    assert answer.json() == {"id": 1}
    assert await registry.get("/schemas/ids/1") == {"schema": text}
    assert await registry.get("/schemas/ids/1", fetchMaxId=True) == {"schema": text, "maxId": 1}
    shown = {"subject": "orders-value", "version": 1, "id": 1, "schema": text}
    assert await registry.get("/subjects/orders-value/versions/1") == shown
    assert await registry.get("/subjects/orders-value/versions/latest") == shown
    assert await registry.get("/subjects/orders-value/versions/-1") == shown
    assert await registry.get("/schemas") == [shown]
    assert (await registry.ask("GET", "/schemas/ids/1/schema")).text == text
    assert (await registry.ask("GET", "/subjects/orders-value/versions/1/schema")).text == text
    assert await registry.get("/schemas/ids/1/subjects") == ["orders-value"]
    assert await registry.get("/schemas/ids/1/versions") == [{"subject": "orders-value", "version": 1}]


async def test_the_same_schema_has_the_same_id_everywhere(registry: Client) -> None:
    assert await registry.register("a", ORDER) == 1
    assert await registry.register("b", PAYMENT) == 2
    assert await registry.register("b2", ORDER) == 1
    assert await registry.register("a", ORDER) == 1
    assert await registry.get("/subjects/a/versions") == [1]
    assert await registry.get("/schemas/ids/1/subjects") == ["a", "b2"]
    rearranged = '{"fields": [{"type": {"type": "string"}, "name": "id"}],\n "name": "Order", "type": "record"}'
    assert await registry.register("a", rearranged) == 1


async def test_ids_are_dense_though_registrations_fail_in_between(registry: Client) -> None:
    assert await registry.register("a", ORDER) == 1
    for bad in (ORDER_WITH_TOTAL, "not a schema", {"type": "record"}):
        assert (await registry.ask("POST", "/subjects/a/versions", schema_body(bad))).status_code in (409, 422)
    assert await registry.register("a", ORDER_WITH_NOTE) == 2


async def test_a_version_is_looked_up_by_its_schema(registry: Client) -> None:
    await registry.register("a", ORDER)
    answer = await registry.ask("POST", "/subjects/a", schema_body(ORDER))
    assert answer.json() == {"subject": "a", "version": 1, "id": 1, "schema": schema_body(ORDER)["schema"]}
    assert await registry.refused("POST", "/subjects/a", schema_body(PAYMENT)) == (404, 40403)
    assert await registry.refused("POST", "/subjects/b", schema_body(ORDER)) == (404, 40401)


async def test_an_incompatible_schema_is_refused_with_the_reason(registry: Client) -> None:
    await registry.register("a", ORDER)
    assert await registry.refused("POST", "/subjects/a/versions", schema_body(ORDER_WITH_TOTAL)) == (409, 409)
    answer = await registry.ask("POST", "/subjects/a/versions", schema_body(ORDER_WITH_TOTAL))
    assert "give 'total' a default" in answer.json()["message"]
    assert await registry.get("/subjects/a/versions") == [1]


async def test_compatibility_is_asked_for_without_registering(registry: Client) -> None:
    await registry.register("a", ORDER)
    await registry.register("a", ORDER_WITH_NOTE)
    good, bad = schema_body(ORDER), schema_body(ORDER_WITH_TOTAL)
    for path in ("/versions/latest", "/versions/1", "/versions"):
        where = f"/compatibility/subjects/a{path}"
        assert (await registry.ask("POST", where, good)).json() == {"is_compatible": True}
        assert (await registry.ask("POST", where, bad)).json() == {"is_compatible": False}
        verbose = (await registry.ask("POST", where, bad, verbose=True)).json()
        assert verbose["is_compatible"] is False
        assert any("total" in message for message in verbose["messages"])
        assert (await registry.ask("POST", where, good, verbose=True)).json() == {
            "is_compatible": True,
            "messages": [],
        }
    assert await registry.refused("POST", "/compatibility/subjects/a/versions/9", good) == (404, 40402)
    assert (await registry.ask("POST", "/compatibility/subjects/new/versions", bad)).json() == {"is_compatible": True}
    assert await registry.refused("POST", "/compatibility/subjects/a/versions/1", schema_body("{")) == (422, 42201)
    unreadable = await registry.ask("POST", "/compatibility/subjects/a/versions/1", schema_body("{"), verbose=True)
    assert unreadable.json()["is_compatible"] is False


async def test_transitive_levels_count_every_version(registry: Client) -> None:
    with_default = {**ORDER, "fields": [{"name": "total", "type": "long", "default": 0}]}
    without_default = {**ORDER, "fields": [{"name": "total", "type": "long"}]}
    await registry.register("a", ORDER)
    await registry.register("a", with_default)
    await registry.ask("PUT", "/config/a", {"compatibility": "BACKWARD_TRANSITIVE"})
    assert await registry.refused("POST", "/subjects/a/versions", schema_body(without_default)) == (409, 409)
    await registry.ask("PUT", "/config/a", {"compatibility": "backward"})
    assert await registry.register("a", without_default) == 3


async def test_levels_are_set_for_all_and_for_one(registry: Client) -> None:
    assert await registry.refused("GET", "/config/a") == (404, 40408)
    assert await registry.get("/config/a", defaultToGlobal=True) == {"compatibilityLevel": "BACKWARD"}
    answer = await registry.ask("PUT", "/config", {"compatibility": "FULL"})
    assert answer.json() == {"compatibility": "FULL"}
    await registry.ask("PUT", "/config/a", {"compatibility": "NONE"})
    assert await registry.get("/config") == {"compatibilityLevel": "FULL"}
    assert await registry.get("/config/a") == {"compatibilityLevel": "NONE"}
    await registry.register("a", ORDER)
    await registry.register("a", PAYMENT)
    assert (await registry.ask("DELETE", "/config/a")).json() == {"compatibilityLevel": "NONE"}
    assert await registry.refused("DELETE", "/config/a") == (404, 40401)
    assert await registry.get("/config/a", defaultToGlobal=True) == {"compatibilityLevel": "FULL"}
    assert (await registry.ask("DELETE", "/config")).json() == {"compatibilityLevel": "FULL"}
    assert await registry.get("/config") == {"compatibilityLevel": "BACKWARD"}
    assert await registry.refused("PUT", "/config", {"compatibility": "SIDEWAYS"}) == (422, 42203)
    assert await registry.refused("PUT", "/config", {"compatibility": 7}) == (422, 42203)
    assert await registry.refused("PUT", "/config", {"compatibility": "FULL", "alias": "b"}) == (422, 42210)


async def test_a_subject_that_is_read_only_takes_nothing(registry: Client) -> None:
    await registry.register("a", ORDER)
    assert await registry.refused("GET", "/mode/a") == (404, 40409)
    assert (await registry.ask("PUT", "/mode/a", {"mode": "READONLY"})).json() == {"mode": "READONLY"}
    assert await registry.get("/mode/a") == {"mode": "READONLY"}
    assert await registry.refused("POST", "/subjects/a/versions", schema_body(ORDER_WITH_NOTE)) == (422, 42205)
    assert await registry.refused("DELETE", "/subjects/a") == (422, 42205)
    assert await registry.refused("PUT", "/config/a", {"compatibility": "NONE"}) == (422, 42205)
    assert await registry.register("a", ORDER) == 1
    assert await registry.register("b", PAYMENT) == 2
    assert (await registry.ask("DELETE", "/mode/a")).json() == {"mode": "READONLY"}
    assert await registry.register("a", ORDER_WITH_NOTE) == 3
    assert await registry.refused("PUT", "/mode", {"mode": "SLEEPING"}) == (422, 42204)


async def test_ids_are_chosen_in_import_mode_only_and_never_given_twice(registry: Client) -> None:
    chosen = schema_body(ORDER, id=40, version=7)
    assert await registry.refused("POST", "/subjects/a/versions", chosen) == (422, 42205)
    await registry.ask("PUT", "/mode/a", {"mode": "IMPORT"})
    assert await registry.refused("POST", "/subjects/a/versions", schema_body(ORDER)) == (422, 42205)
    assert (await registry.ask("POST", "/subjects/a/versions", chosen)).json() == {"id": 40}
    assert await registry.get("/subjects/a/versions") == [7]
    other = schema_body(PAYMENT, id=40)
    assert await registry.refused("POST", "/subjects/a/versions", other) == (422, 42207)
    elsewhere = schema_body(ORDER, id=41)
    assert await registry.refused("POST", "/subjects/a/versions", elsewhere) == (422, 42207)
    assert await registry.refused("PUT", "/mode", {"mode": "IMPORT"}) == (422, 42205)
    assert (await registry.ask("PUT", "/mode", {"mode": "IMPORT"}, force=True)).status_code == 200
    await registry.ask("PUT", "/mode", {"mode": "READWRITE"})
    assert await registry.register("b", PAYMENT) == 41


async def test_a_version_is_hidden_first_and_erased_then(registry: Client) -> None:
    await registry.register("a", ORDER)
    await registry.register("a", ORDER_WITH_NOTE)
    assert await registry.refused("DELETE", "/subjects/a/versions/1", permanent=True) == (404, 40407)
    assert (await registry.ask("DELETE", "/subjects/a/versions/1")).json() == 1
    assert await registry.refused("DELETE", "/subjects/a/versions/1") == (404, 40406)
    assert await registry.get("/subjects/a/versions") == [2]
    assert await registry.get("/subjects/a/versions", deleted=True) == [1, 2]
    assert await registry.get("/subjects/a/versions", deletedOnly=True) == [1]
    assert await registry.refused("GET", "/subjects/a/versions/1") == (404, 40402)
    shown = await registry.get("/subjects/a/versions/1", deleted=True)
    assert shown == {"subject": "a", "version": 1, "id": 1, "schema": schema_body(ORDER)["schema"]}
    assert await registry.get("/schemas/ids/1") == {"schema": schema_body(ORDER)["schema"]}
    assert await registry.refused("POST", "/subjects/a", schema_body(ORDER)) == (404, 40403)
    assert (await registry.ask("POST", "/subjects/a", schema_body(ORDER), deleted=True)).json()["version"] == 1
    assert (await registry.ask("DELETE", "/subjects/a/versions/1", permanent=True)).json() == 1
    assert await registry.refused("GET", "/subjects/a/versions/1", deleted=True) == (404, 40402)
    assert await registry.refused("GET", "/schemas/ids/1") == (404, 40403)
    assert await registry.register("b", ORDER) == 3


async def test_the_number_of_an_erased_version_is_not_given_again_while_the_subject_lives(registry: Client) -> None:
    await registry.register("a", ORDER)
    await registry.register("a", ORDER_WITH_NOTE)
    await registry.ask("DELETE", "/subjects/a/versions/latest")
    await registry.ask("DELETE", "/subjects/a/versions/2", permanent=True)
    await registry.register("a", ORDER_WITH_NOTE)
    assert await registry.get("/subjects/a/versions") == [1, 3]


async def test_a_hidden_schema_comes_back_as_a_new_version_with_its_old_id(registry: Client) -> None:
    await registry.register("a", ORDER)
    await registry.ask("DELETE", "/subjects/a/versions/1")
    assert await registry.register("a", ORDER) == 1
    assert await registry.get("/subjects/a/versions", deleted=True) == [1, 2]


async def test_a_subject_is_hidden_first_and_erased_then(registry: Client) -> None:
    await registry.register("a", ORDER)
    await registry.register("a", ORDER_WITH_NOTE)
    await registry.ask("PUT", "/config/a", {"compatibility": "FULL"})
    assert await registry.refused("DELETE", "/subjects/b") == (404, 40401)
    assert await registry.refused("DELETE", "/subjects/a", permanent=True) == (404, 40405)
    assert (await registry.ask("DELETE", "/subjects/a")).json() == [1, 2]
    assert await registry.refused("DELETE", "/subjects/a") == (404, 40404)
    assert await registry.refused("GET", "/subjects/a/versions") == (404, 40401)
    assert await registry.refused("GET", "/config/a") == (404, 40408)
    assert await registry.get("/subjects") == []
    assert await registry.get("/subjects", deleted=True) == ["a"]
    assert await registry.get("/subjects", deletedOnly=True) == ["a"]
    assert (await registry.ask("DELETE", "/subjects/a", permanent=True)).json() == [1, 2]
    assert await registry.get("/subjects", deleted=True) == []
    assert await registry.register("a", PAYMENT) == 3
    assert await registry.get("/subjects/a/versions") == [1]


async def test_what_others_refer_to_stays(registry: Client) -> None:
    await registry.register("payment", PAYMENT)
    link = {"name": "Payment", "subject": "payment", "version": 1}
    order = {"type": "record", "name": "Order", "fields": [{"name": "paid", "type": "Payment"}]}
    assert await registry.register("order", order, references=[link]) == 2
    assert await registry.get("/schemas/ids/2") == {"schema": schema_body(order)["schema"], "references": [link]}
    assert await registry.get("/subjects/payment/versions/1/referencedby") == [2]
    assert await registry.refused("DELETE", "/subjects/payment") == (422, 42206)
    assert await registry.refused("DELETE", "/subjects/payment/versions/1") == (422, 42206)
    await registry.ask("DELETE", "/subjects/order")
    assert await registry.get("/subjects/payment/versions/1/referencedby") == []
    assert await registry.get("/subjects/payment/versions/1/referencedby", deleted=True) == [2]
    assert (await registry.ask("DELETE", "/subjects/payment")).json() == [1]
    assert await registry.refused("DELETE", "/subjects/payment", permanent=True) == (422, 42206)
    await registry.ask("DELETE", "/subjects/order", permanent=True)
    assert (await registry.ask("DELETE", "/subjects/payment", permanent=True)).json() == [1]


async def test_references_lead_to_a_version_that_is_there(registry: Client) -> None:
    order = {"type": "record", "name": "Order", "fields": [{"name": "paid", "type": "Payment"}]}
    link = {"name": "Payment", "subject": "payment", "version": 1}
    body = schema_body(order, references=[link])
    assert await registry.refused("POST", "/subjects/order/versions", body) == (422, 42201)
    await registry.register("payment", {"type": "object"}, "JSON")
    assert await registry.refused("POST", "/subjects/order/versions", body) == (422, 42201)
    await registry.ask("PUT", "/config", {"compatibility": "NONE"})
    await registry.register("payment", PAYMENT)
    await registry.register("order", order, references=[link | {"version": -1}])
    shown = await registry.get("/subjects/order/versions/1")
    assert isinstance(shown, dict)
    assert shown["references"] == [link | {"version": 2}]


CHAINS = {
    "AVRO": (
        '{"type": "enum", "name": "Colour", "symbols": ["RED"]}',
        '{"type": "record", "name": "Paint", "fields": [{"name": "colour", "type": "Colour"}]}',
        '{"type": "record", "name": "Wall", "fields": [{"name": "paint", "type": "Paint"}]}',
    ),
    "JSON": (
        '{"enum": ["RED"]}',
        '{"type": "object", "properties": {"colour": {"$ref": "Colour"}}}',
        '{"type": "object", "properties": {"paint": {"$ref": "Paint"}}}',
    ),
    "PROTOBUF": (
        'syntax = "proto3"; enum Colour { RED = 0; }',
        'syntax = "proto3"; import "Colour"; message Paint { Colour colour = 1; }',
        'syntax = "proto3"; import "Paint"; message Wall { Paint paint = 1; }',
    ),
}


@pytest.mark.parametrize("type", list(CHAINS))
async def test_what_a_reference_refers_to_is_found_too(registry: Client, type: str) -> None:
    colour, paint, wall = CHAINS[type]
    await registry.register("colour", colour, type)
    await registry.register("paint", paint, type, references=[{"name": "Colour", "subject": "colour", "version": 1}])
    link = {"name": "Paint", "subject": "paint", "version": 1}
    assert await registry.register("wall", wall, type, references=[link]) == 3
    body = schema_body(wall, type, references=[link])
    assert (await registry.ask("POST", "/compatibility/subjects/wall/versions", body)).json()["is_compatible"]
    alone = schema_body(wall, type)
    assert await registry.refused("POST", "/subjects/wall/versions", alone) == (422, 42201)


async def test_a_subject_may_have_any_name_that_a_url_can_carry(registry: Client) -> None:
    for name in ("a/b", "ä ö", "with%percent", "a?b#c", "x" * 500):
        await registry.register(quote(name, safe=""), ORDER)
        assert await registry.get(f"/subjects/{quote(name, safe='')}/versions") == [1]
        assert name in str(await registry.get("/subjects", subjectPrefix=name))


@pytest.mark.parametrize("name", ["__GLOBAL", ":.other:a", "a%0Ab", "x" * 1_001])
async def test_other_names_are_refused(quick: Client, name: str) -> None:
    assert await quick.refused("POST", f"/subjects/{name}/versions", schema_body(ORDER)) == (422, 42208)
    assert await quick.refused("PUT", f"/config/{name}", {"compatibility": "FULL"}) == (422, 42208)


async def test_lists_are_given_in_pages_and_by_prefix(registry: Client) -> None:
    for name in ("b1", "b2", "a1", "c1"):
        await registry.register(name, ORDER)
    assert await registry.get("/subjects") == ["a1", "b1", "b2", "c1"]
    assert await registry.get("/subjects", subjectPrefix="b") == ["b1", "b2"]
    assert await registry.get("/subjects", subjectPrefix=":*:b") == ["b1", "b2"]
    assert await registry.get("/subjects", offset=1, limit=2) == ["b1", "b2"]
    latest = await registry.get("/schemas", latestOnly=True, subjectPrefix="a")
    assert isinstance(latest, list)
    assert [shown["subject"] for shown in latest] == ["a1"]
    assert await registry.refused("GET", "/subjects", offset="x") == (400, 400)


@pytest.mark.parametrize("version", ["0", "-2", "first", "99999999999", "1.0", "٣"])
async def test_what_is_no_version_is_said_so(quick: Client, version: str) -> None:
    await quick.register("a", ORDER)
    assert await quick.refused("GET", f"/subjects/a/versions/{version}") == (422, 42202)


async def test_what_is_not_there_is_said_so(quick: Client) -> None:
    await quick.register("a", ORDER)
    assert await quick.refused("GET", "/subjects/a/versions/2") == (404, 40402)
    assert await quick.refused("GET", "/subjects/b/versions/1") == (404, 40401)
    assert await quick.refused("GET", "/subjects/b/versions") == (404, 40401)
    for id in ("2", "0", "x", "99999999999999"):
        assert await quick.refused("GET", f"/schemas/ids/{id}") == (404, 40403)
    assert await quick.refused("GET", "/schemas/ids/2/versions") == (404, 40403)
    assert await quick.refused("GET", "/nowhere") == (404, 404)
    assert await quick.refused("PATCH", "/subjects") == (405, 405)


async def test_a_body_that_is_none_is_said_so(quick: Client) -> None:
    bodies: tuple[object, ...] = ([], {"schema": 1}, {"schema": "string", "references": [{"name": "a"}]})
    for body in bodies:
        assert await quick.refused("POST", "/subjects/a/versions", body) == (400, 400)
    answer = await quick.http.post("/subjects/a/versions", content=b"\xff{", headers=KIND)
    assert (answer.status_code, answer.json()["error_code"]) == (400, 400)
    unknown = schema_body("x", "XML")
    assert await quick.refused("POST", "/subjects/a/versions", unknown) == (422, 42201)
    assert await quick.refused("POST", "/subjects/a/versions", schema_body(" ")) == (422, 42201)


async def test_rules_that_would_not_be_kept_are_refused(quick: Client) -> None:
    for more in ({"metadata": {"tags": {"a": ["PII"]}}}, {"ruleSet": {"domainRules": [{"name": "x"}]}}):
        assert await quick.refused("POST", "/subjects/a/versions", schema_body(ORDER, **more)) == (422, 42210)
    assert await quick.register("a", ORDER, metadata=None, ruleSet=None) == 1


async def test_normalize_finds_what_differs_in_order_only(registry: Client) -> None:
    one = {**ORDER, "y": 2, "x": 1}
    other = {**ORDER, "x": 1, "y": 2}
    await registry.register("a", one)
    assert await registry.refused("POST", "/subjects/a", schema_body(other)) == (404, 40403)
    found = await registry.ask("POST", "/subjects/a", schema_body(other), normalize="True")
    assert found.json()["id"] == 1
    same = await registry.ask("POST", "/subjects/a/versions", schema_body(other), normalize=True)
    assert same.json()["id"] == 1
    normal = await registry.ask("POST", "/subjects/b/versions", schema_body(other), normalize=True)
    again = await registry.ask("POST", "/subjects/c/versions", schema_body(one), normalize=True)
    assert normal.json()["id"] == again.json()["id"] == 2


async def test_a_body_beyond_the_limit_is_refused() -> None:
    async with served("sqlite://", most_bytes=1_000) as client:
        large = schema_body({**ORDER, "doc": "x" * 1_000})
        assert await client.refused("POST", "/subjects/a/versions", large) == (413, 413)

        async def pieces() -> object:  # no Content-Length
            for _ in range(20):
                yield b" " * 100

        stream = pieces()
        answer = await client.http.post("/subjects/a/versions", content=stream, headers=KIND)  # type: ignore[arg-type]
        assert answer.status_code == 413
        assert await client.register("a", ORDER) == 1


async def test_a_request_that_takes_too_long_is_given_up_and_the_next_one_works(store_url: str) -> None:
    async with served(store_url, patience=1.0) as client:
        other = open_ledger(store_url)
        await other.open()
        async with other.writing():  # as long as another one writes
            assert await client.refused("POST", "/subjects/a/versions", schema_body(ORDER)) == (500, 50002)
        await other.aclose()
        assert await client.get("/subjects") == []
        assert await client.register("a", ORDER) == 1


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("[" * 90_000, "AVRO"),
        ('{"type":"array","items":' * 3_000 + '"int"' + "}" * 3_000, "AVRO"),
        ('{"items":' * 8_000 + "{}" + "}" * 8_000, "JSON"),
        ('{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}', "JSON"),
        ('syntax = "proto3"; ' + "message A { " * 5_000 + "}" * 5_000, "PROTOBUF"),
        ('{"maximum": ' + "9" * 90_000 + "}", "JSON"),
    ],
    ids=["open", "deep-avro", "deep-json", "circle", "deep-protobuf", "digits"],
)
async def test_a_hostile_schema_is_refused_with_words(quick: Client, text: str, type: str) -> None:
    body = schema_body(text, type)
    await quick.register("a", {"type": "object"}, "JSON")
    assert (await quick.ask("POST", "/subjects/a/versions", body)).status_code in (409, 422)
    assert await quick.get("/subjects/a/versions") == [1]


async def test_a_registry_is_the_same_after_a_restart(store_url: str) -> None:
    async with served(store_url) as client:
        await client.register("a", ORDER)
        await client.register("a", ORDER_WITH_NOTE)
        await client.register("proto", 'syntax = "proto3"; message A { string a = 1; }', "PROTOBUF")
        await client.ask("DELETE", "/subjects/a/versions/1")
        await client.ask("DELETE", "/subjects/a/versions/1", permanent=True)
        await client.ask("PUT", "/config/a", {"compatibility": "FULL"})
        await client.ask("PUT", "/mode/proto", {"mode": "READONLY"})
        before = await client.get("/schemas")
    async with served(store_url) as client:
        assert await client.get("/schemas") == before
        assert await client.get("/config/a") == {"compatibilityLevel": "FULL"}
        assert await client.get("/mode/proto") == {"mode": "READONLY"}
        assert await client.register("new", PAYMENT) == 4


@pytest.mark.parametrize("path", ["/subjects/a/versions", "/subjects/a", "/compatibility/subjects/a/versions/latest"])
@pytest.mark.parametrize("body", [{}, {"schemaType": "JSON"}, {"schema": None}, {"schema": ""}])
async def test_a_schema_that_is_missing_is_an_invalid_one(quick: Client, path: str, body: dict[str, object]) -> None:
    await quick.register("a", ORDER)
    assert await quick.refused("POST", path, body) == (422, 42201)


@pytest.mark.parametrize(
    ("accept", "given"),
    [
        ("application/json", "application/json"),
        ("application/vnd.schemaregistry+json, application/json; q=0.5", "application/vnd.schemaregistry+json"),
        ("application/vnd.schemaregistry.v1+json; q=0.2, application/json", "application/json"),
        ("*/*", "application/vnd.schemaregistry.v1+json"),
        ("text/html, */*;q=0.1", "application/vnd.schemaregistry.v1+json"),
    ],
)
async def test_an_answer_is_of_the_kind_that_is_asked_for(quick: Client, accept: str, given: str) -> None:
    for path, status in (("/subjects", 200), ("/subjects/none/versions", 404)):
        answer = await quick.http.get(path, headers={"accept": accept})
        assert (answer.status_code, answer.headers["content-type"]) == (status, given)


async def test_an_answer_of_no_kind_that_is_asked_for_is_refused(quick: Client) -> None:
    assert (await quick.http.get("/subjects", headers={"accept": "text/html"})).status_code == 406


async def test_the_registry_says_what_it_is(quick: Client) -> None:
    clusters = {"kafka-cluster": "", "schema-registry-cluster": "posthouse"}
    assert await quick.get("/v1/metadata/id") == {"scope": {"path": [], "clusters": clusters}, "id": ""}
    said = await quick.get("/v1/metadata/version")
    assert isinstance(said, dict)
    assert said["version"]


async def test_the_schemas_of_envelopes_are_served_as_they_are_frozen(quick: Client) -> None:
    listed = await quick.get("/envelopes")
    assert isinstance(listed, list)
    assert "cloudevents.v1.json" in listed
    assert await quick.get("/envelopes/cloudevents.v1.json") == json.loads(
        envelope_files({"structured"})["envelopes/cloudevents.v1.json"]
    )
    assert await quick.refused("GET", "/envelopes/cloudevents.v99.json") == (404, 40403)


async def test_the_latest_version_is_found_by_metadata_that_no_schema_has(quick: Client) -> None:
    await quick.register("a", ORDER)
    shown = {"subject": "a", "version": 1, "id": 1, "schema": schema_body(ORDER)["schema"]}
    assert await quick.get("/subjects/a/metadata") == shown
    assert await quick.refused("GET", "/subjects/a/metadata", key="owner", value="me") == (404, 40403)
    assert await quick.refused("GET", "/subjects/none/metadata") == (404, 40401)
