"""CloudEvents 1.0, binary: attributes in `ce-` headers, the data alone in the body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, unquote

import msgspec

from posthouse.errors import DecodeError, EventError
from posthouse.events.codec import Encoded, check_metadata, header_size
from posthouse.events.codecs.attributes import (
    NAMES,
    Attributes,
    attributes_of,
    check_data,
    check_extensions,
    check_texts,
    event_of,
    is_json,
    misfit,
    sequence_text,
)
from posthouse.events.envelope import Event, Scalar
from posthouse.events.limits import HARD_LIMIT, guard

PREFIX = "ce-"
SCALARS = "posthouse-scalars"
"""A header with the names of extensions that were not text: CloudEvents headers know text only."""

CONTENT_TYPE = "content-type"

_PLAIN = re.compile(r"[!#$&-~]*")
_SAFE = "".join(map(chr, range(0x21, 0x7F))).replace('"', "").replace("%", "")
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_ESCAPED = re.compile(r"\\(.)")


class _Headers(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return PREFIX + name


class _Names(dict[str, str]):
    def __missing__(self, header: str) -> str:
        return header[len(PREFIX) :]


_HEADERS = _Headers({name: PREFIX + name for name in NAMES} | {"datacontenttype": CONTENT_TYPE})
_NAMES = _Names({header: name for name, header in _HEADERS.items()})


class BinaryCodec:
    """For readers that want the payload alone, and brokers that route by header."""

    name = "binary"
    content_type = None

    def encode(self, event: Event[bytes]) -> Encoded:
        check_data(event)
        check_extensions(event)
        written = attributes_of(event)
        check_texts(written)
        wire: dict[str, Scalar] = {**msgspec.to_builtins(written), **event.extensions}
        values = [value if isinstance(value, str) else _literal(value) for value in wire.values()]
        if not _PLAIN.fullmatch("".join(values)):
            values = list(map(_quote, values))
        headers = dict(zip(map(_HEADERS.__getitem__, wire), values, strict=True))
        if event.content_type is not None:
            headers[CONTENT_TYPE] = _media_type(event.content_type)
        scalars = [name for name, value in event.extensions.items() if not isinstance(value, str)]
        if scalars:
            headers[SCALARS] = " ".join(scalars)
        check_metadata(header_size(headers))
        return Encoded(headers, event.data)

    def decode(self, headers: Mapping[str, str], body: bytes) -> Event[bytes]:
        known: dict[str, object] = {
            _NAMES[name]: value for name, value in headers.items() if name == CONTENT_TYPE or name.startswith(PREFIX)
        }
        if not _PLAIN.fullmatch("".join(headers.values())):
            known = {name: _unquote(name, str(value)) for name, value in known.items()}
        for name in headers.get(SCALARS, "").split():
            if name in known:
                known[name] = _scalar(name, str(known[name]))
        try:
            wire = msgspec.convert(known, Attributes)
        except msgspec.ValidationError as error:
            raise misfit(error) from None
        if len(body) > HARD_LIMIT:
            raise DecodeError("too_large", f"{len(body):,} bytes, at most {HARD_LIMIT:,} are read")
        if body and is_json(wire.datacontenttype):
            guard(body)
        return event_of(wire, known, body)

    def stamp(
        self,
        headers: Mapping[str, str],
        body: bytes,
        sequence: int | None,
        lineage: int = 1,
        outbox_id: str | None = None,
    ) -> Encoded:
        stamped = dict(headers)
        if sequence is not None:
            stamped["ce-sequence"] = sequence_text(sequence)
        if lineage != 1:
            stamped["ce-lineage"] = str(lineage)
        if outbox_id is not None:
            stamped["ce-outboxid"] = _quote(outbox_id)
        return Encoded(stamped, body)


def _literal(value: int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quote(text: str) -> str:
    if "\x00" in text:
        raise EventError("an event's text holds a NUL character, which databases and readers refuse")
    try:
        return quote(text, safe=_SAFE)
    except UnicodeEncodeError:
        raise EventError("an event's text holds half a surrogate pair, which is no character") from None


def _media_type(text: str) -> str:
    if not (text.isascii() and text.isprintable()):
        raise EventError(f"the content type {text!r} cannot be a header")
    return text


def _unquote(name: str, value: str) -> str:
    if name == "datacontenttype":
        return value
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = _ESCAPED.sub(r"\1", value[1:-1])
    if "%" in value:
        try:
            value = unquote(value, errors="strict")
        except UnicodeDecodeError as error:
            raise DecodeError("utf8", f"a header is not UTF-8: {error.reason}") from None
    if not value.isascii() or "\x00" in value:
        _check_text(value)
    return value


def _check_text(value: str) -> None:
    if "\x00" in value:
        raise DecodeError("nul", "a NUL character in a header")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DecodeError("surrogate", "a lone surrogate in a header") from None


def _scalar(name: str, text: str) -> Scalar:
    if text in ("true", "false"):
        return text == "true"
    if not _INTEGER.fullmatch(text):
        raise DecodeError("extension", f"{name[:40]!r} is neither integer nor boolean")
    return int(text)
