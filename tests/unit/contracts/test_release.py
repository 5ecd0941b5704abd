"""The contracts of a release as one file: the same everywhere, and nothing else under its name."""

from __future__ import annotations

import pytest

from posthouse.contracts.lock import LOCK
from posthouse.contracts.release import Pointer, hash_of, lock_of, packed, pointer_file, pointer_in, unpacked
from posthouse.errors import ConfigurationError

FILES = {LOCK: b'{"version":1,"schemas":{}}', "orders/order/placed/v1.json": '{"title":"Grüße"}'.encode()}


def test_the_same_files_are_the_same_bytes_in_whatever_order_they_are_found() -> None:
    data = packed(FILES)
    assert packed(dict(reversed(FILES.items()))) == data
    assert unpacked(data, hash_of(data)) == FILES
    assert lock_of(unpacked(data, hash_of(data))).schemas == {}
    assert hash_of(packed({**FILES, LOCK: b'{"version":1}'})) != hash_of(data)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:-2], "was changed, or is damaged"),
        (lambda data: data.replace(b"placed", b"paidxx"), "was changed, or is damaged"),
        (lambda data: b"", "was changed, or is damaged"),
    ],
)
def test_another_file_under_its_name_is_refused(change: object, words: str) -> None:
    data = packed(FILES)
    with pytest.raises(ConfigurationError, match=words):
        unpacked(change(data), hash_of(data))  # type: ignore[operator]


@pytest.mark.parametrize("data", [b"{}", b"[]", b"\xff", b'{"kind":"other/2","files":{}}', b'{"kind":1}'])
def test_a_file_that_is_no_bundle_is_refused_though_its_hash_is_right(data: bytes) -> None:
    with pytest.raises(ConfigurationError, match=r"is no bundle of contracts|is of the kind"):
        unpacked(data, hash_of(data))


def test_what_is_no_text_and_what_has_no_lock_is_not_bundled() -> None:
    with pytest.raises(ConfigurationError, match="run `posthouse catalog freeze` first"):
        packed({"topics.json": b"{}"})
    with pytest.raises(ConfigurationError, match="is no text"):
        packed({LOCK: b"\xff\xfe"})


def test_a_pointer_is_read_as_it_was_written_and_names_nothing_but_a_bundle() -> None:
    pointer = Pointer(bundle="sha256-" + "a" * 64, size=12, at=5, key="k", signature="c2ln")
    assert pointer_in(pointer_file(pointer)) == pointer
    assert pointer.path == f"sha256-{'a' * 64}.json"
    for wrong in ("../../etc/passwd", "sha256-" + "A" * 64, "sha256-short", ""):
        with pytest.raises(ConfigurationError, match="names no bundle"):
            pointer_in(pointer_file(Pointer(bundle=wrong, size=12, at=5)))
    with pytest.raises(ConfigurationError, match="names no bundle"):
        pointer_in(pointer_file(Pointer(bundle="sha256-" + "a" * 64, size=10**12, at=5)))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        pointer_in(b"<html>")
