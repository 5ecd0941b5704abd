"""Beside the version in its name a schema has a minor and a patch number: freezing raises them, the gate looks that it did."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from posthouse import Payload
from posthouse.contracts import avro
from posthouse.contracts.lock import LOCK, read_lock
from posthouse.errors import ConfigurationError
from posthouse.governance.bundle import Bundle, lock_file
from posthouse.governance.document import Document
from posthouse.governance.exports import export, thawed
from posthouse.governance.freezing import freeze
from posthouse.governance.gate import Severity
from posthouse.governance.semver import with_semver
from tests.unit.governance.gate.shop import (
    PLACED,
    SUBJECT,
    Placed,
    PlacedWithoutTotal,
    PlacedWithVoucher,
    frozen,
    only,
    orders,
    placed,
    report,
)

WORDS = "A customer has placed an order."


def described(payload: type = Placed) -> Document:
    return orders(placed(type(payload.__name__, (payload,), {"__doc__": WORDS, "__module__": __name__})))


def semver(bundle: Bundle) -> str:
    (locked,) = bundle.lock.schemas.values()
    return locked.semver


def with_version(bundle: Bundle, text: str) -> Bundle:
    schemas = {path: replace(locked, semver=text) for path, locked in bundle.lock.schemas.items()}
    return replace(bundle, lock=replace(bundle.lock, schemas=schemas))


def test_a_first_version_has_the_number_of_its_name() -> None:
    assert semver(frozen(orders())) == "1.0.0"
    newer = orders(lambda service: service.event("order.placed.v3", key="order_id")(Placed))
    assert semver(frozen(newer)) == "3.0.0"


def test_another_schema_raises_the_minor_number_other_words_the_patch_and_nothing_else_any() -> None:
    voucher = orders(placed(PlacedWithVoucher))
    assert semver(frozen(orders(), orders())) == "1.0.0"
    assert semver(frozen(orders(), described())) == "1.0.1"
    assert semver(frozen(orders(), described(), voucher)) == "1.1.0"
    assert semver(frozen(orders(), voucher, described(PlacedWithVoucher), described(PlacedWithVoucher))) == "1.1.1"
    assert semver(frozen(orders(), orders(owner="sales"))) == "1.0.0"


def test_words_that_a_format_has_no_room_for_raise_nothing() -> None:
    def made(words: str) -> Document:
        @avro
        class Sent(Payload):
            __doc__ = words
            order_id: str

        return orders(placed(Sent))

    assert semver(frozen(made("Sent."), made("Sent."), made("It was sent."))) == "1.0.0"


def test_a_lock_of_an_older_release_begins_with_the_first_version() -> None:
    before = with_version(frozen(orders()), "")
    files = freeze(orders(placed(PlacedWithVoucher)), before).files
    assert read_lock(files[LOCK]).schemas[PLACED].semver == "1.1.0"
    assert read_lock(freeze(orders(), before).files[LOCK]).schemas[PLACED].semver == "1.0.0"


def test_a_change_whose_version_was_not_raised_is_an_error_that_says_the_number() -> None:
    before, after = frozen(orders()), frozen(orders(placed(PlacedWithVoucher)))
    (one,) = report(before, after).standing
    assert (one.rule, one.severity, one.file) == ("version-not-raised", Severity.ERROR, PLACED)
    assert "is 1.0.0 and was 1.0.0; with this change it is 1.1.0" in one.sentence
    assert f"Set its semver in {LOCK} to 1.1.0" in one.way_out
    assert report(before, with_version(after, "1.1.0")).passes, "the way out leads out"
    assert report(before, with_version(after, "1.2.0")).passes


def test_words_count_and_no_number_goes_back() -> None:
    before = with_version(frozen(orders()), "1.4.0")
    assert only(report(before, with_version(frozen(described()), "1.4.0"))).rule == "version-not-raised"
    assert report(before, with_version(frozen(described()), "1.4.1")).passes
    assert only(report(before, frozen(orders()))).rule == "version-not-raised"
    assert only(report(before, with_version(frozen(orders()), "2.0.0"))).rule == "version-not-raised"


def test_what_may_not_pass_is_told_once() -> None:
    assert only(report(frozen(orders()), frozen(orders(placed(PlacedWithoutTotal))))).rule == "field-removed"


def test_a_lock_with_a_version_that_is_none_is_not_read() -> None:
    with pytest.raises(ConfigurationError, match="semver"):
        read_lock(lock_file(with_version(frozen(orders()), "1.x").lock))


def test_documents_and_exports_tell_the_version_of_what_is_as_frozen() -> None:
    bundle = frozen(orders(), described())
    assert [entry.semver for entry in with_semver(described(), bundle.lock).events] == ["1.0.1"]
    assert [entry.semver for entry in with_semver(orders(placed(PlacedWithVoucher)), bundle.lock).events] == [""]
    source = thawed(bundle)
    assert f"`{SUBJECT}` 1.0.1" in export(source, "markdown")["catalogue.md"]
    assert any('version: "1.0.1"' in text for text in export(source, "eventcatalog").values())
    assert any("version:1.0.1" in text for text in export(source, "asyncapi").values())
