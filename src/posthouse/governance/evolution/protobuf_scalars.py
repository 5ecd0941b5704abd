"""Which scalar types of Protobuf read which others."""

from __future__ import annotations

from enum import StrEnum


class Fit(StrEnum):
    """What a reader of one type makes of values of another."""

    ALL = "every value is the same"
    SOME = "some values become others"
    NO = "the bytes mean something else"


GROUPS = (
    ("int32", "int64", "uint32", "uint64", "bool", "enum"),
    ("sint32", "sint64"),
    ("fixed32", "sfixed32"),
    ("fixed64", "sfixed64"),
    ("string", "bytes"),
    ("float",),
    ("double",),
)
"""Types with the same encoding."""

_ALL = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
    "sint32": (-(2**31), 2**31 - 1),
    "sint64": (-(2**63), 2**63 - 1),
    "fixed32": (0, 2**32 - 1),
    "fixed64": (0, 2**64 - 1),
    "sfixed32": (-(2**31), 2**31 - 1),
    "sfixed64": (-(2**63), 2**63 - 1),
    "bool": (0, 1),
    "enum": (-(2**31), 2**31 - 1),
}
"""The numbers of each type, smallest and largest."""


def fit(writer: str, reader: str) -> Fit:
    """How well values of the writer's type arrive as the reader's."""
    if not any(writer in group and reader in group for group in GROUPS):
        return Fit.NO
    if writer in _ALL:
        (low, high), (least, most) = _ALL[writer], _ALL[reader]
        return Fit.ALL if least <= low and high <= most else Fit.SOME
    return Fit.SOME if (writer, reader) == ("bytes", "string") else Fit.ALL  # not all bytes are a text


def sample(type: str) -> object:
    """A value as JSON has it: for numbers the largest, which is the first that does not fit elsewhere."""
    if type in ("message", "group"):
        return {}
    if type == "bool":
        return True
    if type == "enum":
        return 1
    if type in _ALL:
        largest = _ALL[type][1]
        return str(largest) if type.endswith("64") else largest  # JSON has 64 bits as a text
    return {"string": "text", "bytes": "/w==", "float": 1.5, "double": 1.5}[type]
