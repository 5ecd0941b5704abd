"""What a fact is: its envelope, its name, its forms on the wire and the limits that they keep. Pure: no I/O."""

from posthouse.events.codec import DUAL_OF, METADATA_LIMIT, Codec, Encoded, check_size
from posthouse.events.codecs import BINARY, CODECS, STRUCTURED, codec_of, decode_any
from posthouse.events.envelope import (
    DEFAULT_TENANT,
    PLATFORM,
    UNNAMED,
    Actor,
    Event,
    Metadata,
    Producer,
    Scalar,
    Unnamed,
    moment,
    timestamp,
)
from posthouse.events.limits import HARD_LIMIT, PUBLISH_LIMIT, guard
from posthouse.events.subject import Subject
from posthouse.events.trace import TraceContext

__all__ = [
    "BINARY",
    "CODECS",
    "DEFAULT_TENANT",
    "DUAL_OF",
    "HARD_LIMIT",
    "METADATA_LIMIT",
    "PLATFORM",
    "PUBLISH_LIMIT",
    "STRUCTURED",
    "UNNAMED",
    "Actor",
    "Codec",
    "Encoded",
    "Event",
    "Metadata",
    "Producer",
    "Scalar",
    "Subject",
    "TraceContext",
    "Unnamed",
    "check_size",
    "codec_of",
    "decode_any",
    "guard",
    "moment",
    "timestamp",
]
