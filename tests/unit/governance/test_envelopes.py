"""The envelope has a schema of its own: every codec keeps it, the frozen folder holds it, and the gate guards its versions."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings

from melmastoon.envelope import ENVELOPE as MELMASTOON
from posthouse import Payload, Service
from posthouse.events import BINARY, STRUCTURED, Codec, Event
from posthouse.events.codecs.attributes import NAMES
from posthouse.events.limits import MAX_BYTES
from posthouse.governance.agreement import disagreements
from posthouse.governance.bundle import Bundle, read_bundle
from posthouse.governance.comparing import compare_schemas
from posthouse.governance.document import Document
from posthouse.governance.envelopes import envelope_files
from posthouse.governance.evolution import Mode
from posthouse.governance.freezing import freeze
from posthouse.governance.gate.examining import examine
from posthouse.governance.listing import catalogue_of
from tests.unit.events.strategies import an_event, events

OURS, THEIRS = "envelopes/cloudevents.v1.json", "envelopes/melmastoon.v1.json"


class Placed(Payload):
    order_id: str


def schema_of(codec: Codec) -> Any:
    (text,) = envelope_files({codec.name}).values()
    return json.loads(text)


@pytest.mark.parametrize("codec", [STRUCTURED, MELMASTOON], ids=["structured", "melmastoon"])
@settings(max_examples=150, deadline=None)
@given(event=events())
def test_whatever_a_codec_writes_keeps_the_schema_of_its_envelope(codec: Codec, event: Event[bytes]) -> None:
    validator = jsonschema_rs.validator_for(schema_of(codec))
    body = codec.encode(event).body
    assert [error.message for error in validator.iter_errors(json.loads(body))] == []
    if event.sequence is None and event.metadata.outbox_id is None and "sequence" not in event.extensions:
        plain = msgspec.structs.replace(event, lineage=1)
        stamped = codec.stamp(*codec.encode(plain), 7, 3, "41").body
        assert [error.message for error in validator.iter_errors(json.loads(stamped))] == []


@settings(max_examples=100, deadline=None)
@given(event=events())
def test_attributes_in_headers_are_those_of_the_schema(event: Event[bytes]) -> None:
    known = schema_of(BINARY)
    names = {name.removeprefix("ce-") for name in BINARY.encode(event).headers if name.startswith("ce-")}
    assert names - set(event.extensions) <= known["properties"].keys()


@pytest.mark.parametrize(
    ("codec", "spoilt"),
    [
        (STRUCTURED, {"id": ""}),
        (STRUCTURED, {"id": "x" * 257}),
        (STRUCTURED, {"specversion": "0.3"}),
        (STRUCTURED, {"idempotencykey": "x" * 513}),
        (STRUCTURED, {"retentionclass": "lukewarm"}),
        (STRUCTURED, {"Upper-Case": "x"}),
        (STRUCTURED, {"data_base64": "eA=="}),
        (MELMASTOON, {"eventVersion": "1"}),
        (MELMASTOON, {"tenantId": ""}),
        (MELMASTOON, {"metadata": {"retentionClass": "hot", "fromOfflineReplay": "yes"}}),
    ],
)
def test_what_no_reader_would_take_does_not_keep_it(codec: Codec, spoilt: dict[str, object]) -> None:
    body = json.loads(codec.encode(an_event()).body)
    validator = jsonschema_rs.validator_for(schema_of(codec))
    assert validator.is_valid(body)
    assert not validator.is_valid({**body, **spoilt})


def test_the_schema_names_every_attribute_and_the_lengths_that_are_kept() -> None:
    known = schema_of(STRUCTURED)["properties"]
    assert known.keys() == NAMES | {"data", "data_base64"}
    spelt = {"subject": "key", "tenantid": "tenant", "correlationid": "correlation", "causationid": "causation"}
    spelt |= {"idempotencykey": "idempotency_key", "actorkind": "actor", "actorid": "actor"}
    for name in ("id", "type", "source", *spelt):
        assert known[name]["maxLength"] == MAX_BYTES[spelt.get(name, name)], name


def frozen(envelope: str = "structured") -> tuple[Document, Bundle, dict[str, bytes]]:
    shop = Service("shop", envelope=envelope)
    shop.event("order.placed.v1", key="order_id")(Placed)
    document = catalogue_of([shop])
    files = dict(freeze(document, Bundle()).files)
    return document, read_bundle(files), files


@pytest.mark.parametrize(("envelope", "path"), [("structured", OURS), ("binary", OURS), ("melmastoon", THEIRS)])
def test_freezing_writes_the_envelope_that_the_events_travel_in(envelope: str, path: str) -> None:
    document, bundle, files = frozen(envelope)
    assert [name for name in files if name.startswith("envelopes/")] == [path] == list(bundle.envelopes)
    assert disagreements(document, bundle) == []
    spoilt = read_bundle({**files, path: files[path].replace(b"version 1", b"version one")})
    (found,) = disagreements(document, spoilt)
    assert (found.kind, found.path) == ("edited", path)


def judged(change: dict[str, Any]) -> list[tuple[str, str]]:
    """What the gate says to a changed envelope: rule and severity."""
    _, before, files = frozen()
    schema = json.loads(files[OURS])
    schema["properties"] |= change
    after = read_bundle({**files, OURS: json.dumps(schema).encode()})
    report = examine(before, after, Mode.ADDITIVE, compare_schemas)
    assert all(one.file == OURS for one in report.objections)
    return [(one.rule, one.severity.value) for one in report.objections]


def test_the_gate_refuses_an_envelope_that_readers_of_the_last_release_would_not_read() -> None:
    assert ("error" in {severity for _, severity in judged({"tenantid": {"type": "integer"}})}) is True
    assert "error" in {severity for _, severity in judged({"id": {"type": ["string", "null"]}})}


def test_an_envelope_that_says_the_same_in_other_words_passes() -> None:
    _, before, files = frozen()
    after = read_bundle({**files, OURS: json.dumps(json.loads(files[OURS])).encode()})
    assert examine(before, after, Mode.ADDITIVE, compare_schemas).objections == ()


def test_an_envelope_that_is_gone_is_an_error() -> None:
    _, before, files = frozen()
    del files[OURS]
    (found,) = examine(before, read_bundle(files), Mode.ADDITIVE, compare_schemas).objections
    assert (found.rule, found.severity.value, found.file) == ("envelope-removed", "error", OURS)
