"""The wire formats, one file each, and the choice between them."""

from __future__ import annotations

from collections.abc import Mapping

from posthouse.errors import DecodeError
from posthouse.events.codec import Codec
from posthouse.events.codecs.binary import BinaryCodec
from posthouse.events.codecs.melmastoon import MelmastoonCodec
from posthouse.events.codecs.structured import StructuredCodec
from posthouse.events.envelope import Event

STRUCTURED: Codec = StructuredCodec()
BINARY: Codec = BinaryCodec()
MELMASTOON: Codec = MelmastoonCodec()

CODECS: Mapping[str, Codec] = {codec.name: codec for codec in (STRUCTURED, BINARY, MELMASTOON)}
"""By the word that configuration uses."""

_BY_CONTENT_TYPE = {codec.content_type: codec for codec in (STRUCTURED, MELMASTOON)}


def codec_of(headers: Mapping[str, str], body: bytes) -> Codec:
    """The codec that wrote these: by `content-type`, then by `ce-` headers; without either, a JSON object is structured.

    Raises DecodeError for anything else.
    """
    content_type = headers.get("content-type")
    codec = _BY_CONTENT_TYPE.get(content_type) if content_type else None
    if codec is None and content_type:
        codec = _BY_CONTENT_TYPE.get(content_type.partition(";")[0].strip().lower())
    if codec is not None:
        return codec
    if "ce-specversion" in headers:
        return BINARY
    if content_type is None and body.startswith(b"{"):
        return STRUCTURED
    raise DecodeError("content_type", f"{content_type!r:.80} is no event, and there are no ce- headers")


def decode_any(headers: Mapping[str, str], body: bytes) -> Event[bytes]:
    """Read one event in whichever format it came; DecodeError and nothing else when it cannot be read safely."""
    return codec_of(headers, body).decode(headers, body)


__all__ = [
    "BINARY",
    "CODECS",
    "MELMASTOON",
    "STRUCTURED",
    "BinaryCodec",
    "MelmastoonCodec",
    "StructuredCodec",
    "codec_of",
    "decode_any",
]
