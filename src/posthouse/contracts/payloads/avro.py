"""Dataclasses and msgspec Structs, as Avro in its single-object encoding: marker, fingerprint, data."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, TypeVar, cast

import fastavro
import msgspec
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

from posthouse.contracts.avro import GENERATED, MARK
from posthouse.contracts.avro_schema import avro_schema
from posthouse.contracts.kept import changed
from posthouse.contracts.payload import PayloadType, misfit
from posthouse.contracts.payloads.avro_types import avro_of
from posthouse.errors import ConfigurationError, ContractError

T = TypeVar("T")

MARKER = b"\xc3\x01"
HEAD = len(MARKER) + 8

WORDS = 500
"""Characters of a decoder's complaint that are kept: it may print whole schemas."""

_NATIVE = (datetime.datetime, datetime.date, datetime.time, uuid.UUID, bytes)


def payload(cls: type[T]) -> PayloadType[T]:
    """The codec of a class that was marked with @avro."""
    try:
        return _AvroPayload(cls)
    except (TypeError, ValueError, KeyError) as error:  # what fastavro says about a schema
        raise ConfigurationError(f"{cls.__name__} cannot travel as Avro: {error!r}") from error


class _AvroPayload(Generic[T]):
    content_type = "application/avro"
    plain = None

    def __init__(self, cls: type[T]) -> None:
        self.cls = cls
        document = _document(cls)
        self.schema = avro_schema(document)
        self.fields: Sequence[str] = _field_names(cls, document)
        self._parsed = _parse(self.schema.text)
        self._head = MARKER + _print_of(self._parsed)
        self._writers: dict[bytes, tuple[object, object]] = {self._head: (self._parsed, self._parsed)}
        """By their head: the schema that the bytes were written with, and the one to read them with."""
        self._moments = '"timestamp-' in self.schema.text and '"local-timestamp-' not in self.schema.text
        exact = '"logicalType":"decimal"' in self.schema.text
        self._native = (*_NATIVE, decimal.Decimal) if exact else _NATIVE

    def encode(self, value: T) -> bytes:
        try:
            plain = msgspec.to_builtins(value, builtin_types=self._native)
            msgspec.convert(plain, self.cls, builtin_types=self._native)
            if self._moments:
                _refuse_times_without_zone(plain, "$")
            data = self._written(plain)
            heard = self.decode(data)
            again = self._written(msgspec.to_builtins(heard, builtin_types=self._native))
            other = changed(value, heard, again == data)
        except ContractError:
            raise
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError, AttributeError) as error:
            raise misfit(self.cls, error) from error
        if other:
            raise misfit(self.cls, other)
        return data

    def _written(self, plain: object) -> bytes:
        file = io.BytesIO(self._head)
        file.seek(HEAD)
        fastavro.schemaless_writer(file, cast("dict[str, object]", self._parsed), plain)
        return file.getvalue()

    def decode(self, data: bytes) -> T:
        known = self._writers.get(data[:HEAD])
        if known is None:
            raise misfit(self.cls, self._why_unknown(data))
        writer, reader = known
        file = io.BytesIO(data)
        file.seek(HEAD)
        try:
            plain = fastavro.schemaless_reader(
                file, cast("dict[str, object]", writer), cast("dict[str, object]", reader)
            )
            value = msgspec.convert(plain, self.cls, builtin_types=self._native)
        except Exception as error:  # bytes from the wire: whatever the decoder stumbles upon is their fault
            raise misfit(self.cls, str(error)[:WORDS] or type(error).__name__) from error
        if file.tell() != len(data):
            raise misfit(self.cls, f"{len(data) - file.tell()} bytes are left over after its last field")
        return value

    def learn(self, writers: Iterable[str]) -> None:
        for text in writers:
            parsed = _parse(text)
            head = MARKER + _print_of(parsed)
            if head not in self._writers:
                self._writers[head] = (parsed, _parse(_called(self.schema.text, text)))

    def _why_unknown(self, data: bytes) -> str:
        if data[: len(MARKER)] != MARKER:
            return "its bytes are not in Avro's single-object encoding, which begins with C3 01"
        return (
            f"it was written with a schema that is not known here (fingerprint {data[len(MARKER) : HEAD].hex()}): freeze the "
            "producer's schemas and give the service their folder, as in Service(…, schemas='event-schemas')"
        )


def _document(cls: type) -> object:
    given = getattr(cls, MARK)
    if given is GENERATED:
        return avro_of(cls)
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except ValueError as error:
        raise ConfigurationError(f"the Avro schema of {cls.__name__} is not JSON: {error}") from error


def _field_names(cls: type, document: object) -> Sequence[str]:
    if not isinstance(document, Mapping) or document.get("type") != "record":
        raise ConfigurationError(f"the Avro schema of {cls.__name__} must be a record")
    names = tuple(str(field["name"]) for field in document["fields"])
    known = {field.encode_name for field in msgspec.inspect.type_info(cls).fields}  # type: ignore[attr-defined]  # a class with fields, by now
    problems = [
        f"{cls.__name__} has the field {name!r}, its Avro schema has not" for name in sorted(known - set(names))
    ]
    problems += [
        f"the Avro schema of {cls.__name__} has {name!r}, the class has not" for name in sorted(set(names) - known)
    ]
    if problems:
        raise ConfigurationError(*problems)
    return names


def _parse(text: str) -> object:
    return parse_schema(json.loads(text))


def _called(reader: str, writer: str) -> str:
    """The reader's schema, answering to the name of the writer's: they are of one subject, whatever the classes are called.
    Names further inside must fit, as Avro wants it."""
    document, name = json.loads(reader), json.loads(writer)["name"]
    return json.dumps({**document, "aliases": [*document.get("aliases", ()), name]})


def _print_of(parsed: object) -> bytes:
    """The CRC-64-AVRO of the Parsing Canonical Form, as it stands in the head."""
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(cast("dict[str, object]", parsed)), "CRC-64-AVRO"))


def _refuse_times_without_zone(value: object, where: str) -> None:
    """Avro's timestamps are moments. fastavro would take the machine's own zone."""
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        raise ContractError(f"{where}: Avro needs a time with its zone, not {value.isoformat()}")
    if isinstance(value, dict):
        for name, inner in value.items():
            _refuse_times_without_zone(inner, f"{where}.{name}")
    elif isinstance(value, list | tuple):
        for inner in value:
            _refuse_times_without_zone(inner, f"{where}[…]")
