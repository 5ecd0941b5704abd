"""CloudEvents 1.0, binary: attributes in `ce-` headers, the data alone in the body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, unquote

import msgspec

from posthouse.errors import DecodeError
from posthouse.events.codec import Encoded, check_metadata
from posthouse.events.codecs.attributes import Attributes, attributes_of, event_of, is_json, misfit, sequence_text
from posthouse.events.envelope import Event, Scalar
from posthouse.events.limits import HARD_LIMIT, guard

PREFIX = "ce-"
SCALARS = "posthouse-scalars"
"""A header with the names of extensions that were not text: CloudEvents headers know text only."""

_PLAIN = re.compile(r"[!#$&-~]*")
_SAFE = "".join(map(chr, range(0x21, 0x7F))).replace('"', "").replace("%", "")
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_ESCAPED = re.compile(r"\\(.)")


class BinaryCodec:
    """For readers that want the payload alone, and brokers that route by header."""

    name = "binary"
    content_type = None

    def encode(self, event: Event[bytes]) -> Encoded:
        wire = attributes_of(event)
        content_type = wire.pop("datacontenttype", None)
        headers = {} if content_type is None else {"content-type": _quote(str(content_type))}
        headers.update({PREFIX + name: _header(value) for name, value in wire.items()})
        scalars = [name for name, value in event.extensions.items() if not isinstance(value, str)]
        if scalars:
            headers[SCALARS] = " ".join(scalars)
        check_metadata(headers, b"", 0)
        return Encoded(headers, event.data)

    def decode(self, headers: Mapping[str, str], body: bytes) -> Event[bytes]:
        known: dict[str, object] = {
            name[3:]: _unquote(value) for name, value in headers.items() if name.startswith(PREFIX)
        }
        content_type = headers.get("content-type")
        known["datacontenttype"] = None if content_type is None else _unquote(content_type)
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


def _header(value: Scalar) -> str:
    if isinstance(value, str):
        return _quote(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quote(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else quote(text, safe=_SAFE)


def _unquote(value: str) -> str:
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
