"""W3C trace context on events, and the bridge between correlation ids and trace ids."""

from __future__ import annotations

import re
import uuid

import msgspec

SAMPLED = 0x01
RANDOM = 0x02
"""Trace flags that a version 00 writer may set."""

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LOOKS_LIKE = str.maketrans("ILO", "110")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_CURRENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")  # almost all
_LATER = re.compile(r"(-[ -~]*)?")
_UUID = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
_MEMBER = re.compile(
    r"(?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
    r"=[ -+\--<>-~]{0,255}[!-+\--<>-~]"
)


class TraceContext(msgspec.Struct, frozen=True, kw_only=True):
    """One span's place in a trace: 32 and 16 lower-case hex digits, never all zero, and the 8 flag bits."""

    trace_id: str
    span_id: str
    flags: int = SAMPLED
    tracestate: str | None = None

    @classmethod
    def parse(cls, traceparent: str | None, tracestate: str | None = None) -> TraceContext | None:
        """What came over the wire, or None when there is no usable `traceparent`: then a new trace begins.

        A later version is read as far as version 00 goes. A bad `tracestate` is dropped alone.
        """
        if traceparent is None or not is_traceparent(traceparent):
            return None
        trace_id, span_id, flags = traceparent[3:35], traceparent[36:52], int(traceparent[53:55], 16)
        state = tracestate if tracestate is not None and is_tracestate(tracestate) else None
        return cls(trace_id=trace_id, span_id=span_id, flags=flags, tracestate=state)

    @classmethod
    def start(cls, fresh: str, correlation: str | None = None) -> TraceContext:
        """A new trace; its id is the correlation id where that can be one, so that both find the same story.

        `fresh` is a new UUIDv7 (`clock.new_id`): the source of whatever has to be new.
        """
        trace_id = None if correlation is None else correlation_to_trace_id(correlation)
        return cls(trace_id=trace_id or uuid.UUID(fresh).hex, span_id=span_id_of(fresh))

    @property
    def traceparent(self) -> str:
        """The header value, version 00: flags that this version does not know are not passed on."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags & (SAMPLED | RANDOM):02x}"

    @property
    def sampled(self) -> bool:
        return bool(self.flags & SAMPLED)

    def child(self, fresh: str) -> TraceContext:
        """A span inside this one: same trace, same flags, same state. `fresh` is a new UUIDv7 (`clock.new_id`)."""
        return msgspec.structs.replace(self, span_id=span_id_of(fresh))


def is_traceparent(text: str) -> bool:
    """True when the W3C rules let a reader use this `traceparent`."""
    if _CURRENT.fullmatch(text):
        return True
    if text[:2] in ("00", "ff") or not _TRACEPARENT.match(text) or text[3:35] == _NO_TRACE or text[36:52] == _NO_SPAN:
        return False
    return _LATER.fullmatch(text, 55) is not None


def same_trace(one: str | None, other: str | None) -> bool:
    """Whether two usable `traceparent` are of one trace."""
    return one is not None and other is not None and one[3:35] == other[3:35]


def is_tracestate(text: str) -> bool:
    """True for at most 32 well-formed members with distinct keys, in at most 512 characters."""
    if len(text) > 512:
        return False
    members = [member for part in text.split(",") if (member := part.strip(" \t"))]
    keys = {member.partition("=")[0] for member in members}
    return 1 <= len(members) == len(keys) <= 32 and all(map(_MEMBER.fullmatch, members))


def span_id_of(fresh: str) -> str:
    """The tail of a UUIDv7: 16 hex digits, 62 of their bits random, never all zero."""
    return uuid.UUID(fresh).hex[16:]


def correlation_to_trace_id(correlation: str) -> str | None:
    """The 32 hex digits in a ULID, a UUID or a trace id; None for any other text, and for zero, which is no trace."""
    number = trace_number(correlation)
    return f"{number:032x}" if number else None


def trace_number(correlation: str) -> int:
    """The same as a number; 0 where there is none."""
    return (_ulid_number(correlation) if len(correlation) == 26 else _uuid_number(correlation)) or 0


def trace_id_to_ulid(trace_id: str) -> str:
    """The same 128 bits as 26 characters of Crockford's base 32."""
    number = int(trace_id, 16)
    return "".join(_CROCKFORD[(number >> shift) & 31] for shift in range(125, -1, -5))


def trace_id_to_uuid(trace_id: str) -> str:
    """The same 128 bits as UUID text."""
    return str(uuid.UUID(trace_id))


def ulid_to_uuid(ulid: str) -> str:
    """The same 128 bits as UUID text; ValueError for text that is no ULID."""
    number = _ulid_number(ulid)
    if number is None:
        raise ValueError(f"{ulid!r} is not a ULID")
    return str(uuid.UUID(int=number))


def uuid_to_ulid(text: str) -> str:
    """The same 128 bits as ULID text; ValueError for text that is no UUID."""
    return trace_id_to_ulid(uuid.UUID(text).hex)


def _ulid_number(text: str) -> int | None:
    number = 0
    for letter in text.upper().translate(_LOOKS_LIKE):
        digit = _CROCKFORD.find(letter)
        if digit < 0:
            return None
        number = number << 5 | digit
    return number if len(text) == 26 and number < 1 << 128 else None


def _uuid_number(text: str) -> int | None:
    if not _UUID.fullmatch(text):
        return None
    return int(text.replace("-", ""), 16)
