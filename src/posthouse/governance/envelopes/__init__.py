"""Envelopes: the schema of what is around every payload, in versions of its own. It is no service's: it changes for all at once.

Within a version it only grows: what readers of the last release accept, those of this one say. Anything else is another version,
another file beside this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Protocol, runtime_checkable

from posthouse.events import BINARY, CODECS, STRUCTURED
from posthouse.governance.document import Document

FOLDER = "envelopes"
"""Where they are in a frozen folder."""
OURS = "cloudevents.v1.json"


@runtime_checkable
class Versioned(Protocol):
    """A codec with an envelope of its own, and the schema of that."""

    @property
    def name(self) -> str:
        """The word for it in configuration."""
        ...

    @property
    def envelope_version(self) -> int:
        """Grows when readers of the last one cannot read what it writes."""
        ...

    @property
    def envelope_schema(self) -> bytes:
        """JSON Schema of the body, as it lies in the codec's package."""
        ...


def envelope_files(names: set[str]) -> Mapping[str, bytes]:
    """Files of a frozen folder for the envelopes of these names; none for a codec that publishes no schema."""
    found: dict[str, bytes] = {}
    for name in sorted(names):
        codec = CODECS.get(name)
        if codec in (STRUCTURED, BINARY):
            found[f"{FOLDER}/{OURS}"] = files(__name__).joinpath(OURS).read_bytes()
        elif isinstance(codec, Versioned):
            found[f"{FOLDER}/{codec.name}.v{codec.envelope_version}.json"] = codec.envelope_schema
    return found


def envelopes_of(document: Document) -> Mapping[str, bytes]:
    """Those that the events of some services travel in."""
    return envelope_files({entry.envelope for entry in document.events})


def is_envelope(path: str) -> bool:
    """Whether a file of a frozen folder is one."""
    folder, _, name = path.rpartition("/")
    return folder == FOLDER and name.endswith(".json")
