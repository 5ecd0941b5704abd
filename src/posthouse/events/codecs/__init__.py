"""The wire formats, one file each, and the choice between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from posthouse import plugins
from posthouse.errors import ConfigurationError, DecodeError
from posthouse.events.codec import Codec
from posthouse.events.codecs.binary import BinaryCodec
from posthouse.events.codecs.structured import StructuredCodec
from posthouse.events.envelope import Event

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

STRUCTURED: Codec = StructuredCodec()
BINARY: Codec = BinaryCodec()


class Codecs(Mapping[str, Codec]):
    """By the word that configuration uses: our own, and those that other distributions plug in (`posthouse.envelopes`).

    One of another distribution is imported when it is asked for; ConfigurationError when it cannot be used.
    """

    def __init__(self, *own: Codec) -> None:
        self._loaded: dict[str, Codec] = {}
        self._announced: dict[str, Codec] = {}
        self.unusable: list[str] = []
        """What is wrong with those that were asked for a media type, and cannot be used."""
        for codec in own:
            self._add(codec)

    def __getitem__(self, name: str) -> Codec:
        if name not in self._loaded:
            entry = self._installed[name]
            codec = plugins.load(entry)
            if not isinstance(codec, Codec) or codec.name != name:
                raise ConfigurationError(f"{entry.value} is not a codec whose name is {name!r}")
            self._add(codec)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._loaded, *self._installed)))

    def __len__(self) -> int:
        return len(self._loaded.keys() | self._installed.keys())

    def announced_by(self, content_type: str) -> Codec | None:
        """The one whose media type this is; None for what no codec announces."""
        return self._announced.get(content_type) or self._all_announced.get(
            content_type.partition(";")[0].strip().lower()
        )

    @cached_property
    def _all_announced(self) -> Mapping[str, Codec]:
        for name in self:
            try:
                self[name]
            except ConfigurationError as error:
                self.unusable += error.problems
        return self._announced

    @cached_property
    def _installed(self) -> Mapping[str, EntryPoint]:
        return plugins.installed(plugins.ENVELOPES)

    def _add(self, codec: Codec) -> None:
        self._loaded[codec.name] = codec
        if codec.content_type:
            self._announced.setdefault(codec.content_type, codec)


CODECS = Codecs(STRUCTURED, BINARY)


def codec_of(headers: Mapping[str, str], body: bytes) -> Codec:
    """The codec that wrote these: by `content-type`, then by `ce-` headers; without either, a JSON object is structured.

    Raises DecodeError for anything else.
    """
    content_type = headers.get("content-type")
    codec = CODECS.announced_by(content_type) if content_type else None
    if codec is not None:
        return codec
    if "ce-specversion" in headers:
        return BINARY
    if content_type is None and body.startswith(b"{"):
        return STRUCTURED
    raise DecodeError(
        "content_type",
        "; ".join((f"{content_type!r:.80} is no event, and there are no ce- headers", *CODECS.unusable)),
    )


def decode_any(headers: Mapping[str, str], body: bytes) -> Event[bytes]:
    """Read one event in whichever format it came; DecodeError and nothing else when it cannot be read safely."""
    return codec_of(headers, body).decode(headers, body)


__all__ = ["BINARY", "CODECS", "STRUCTURED", "BinaryCodec", "Codecs", "StructuredCodec", "codec_of", "decode_any"]
