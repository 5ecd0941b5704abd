"""The simplest value of an Avro type, for examples."""

from __future__ import annotations

from posthouse.governance.evolution.avro_types import Array, AvroType, Enum, Fixed, Map, Primitive, Record, Union

MOST_VALUES = 500
"""Parts of one example: larger ones help nobody."""


class NoSample(Exception):
    """The type has no small value, or none at all."""


def sample(kind: AvroType) -> object:
    """As JSON; bytes are a text. Raises NoSample."""
    return _Sampler().of(kind, ())


class _Sampler:
    def __init__(self) -> None:
        self._left = MOST_VALUES

    def of(self, kind: AvroType, above: tuple[AvroType, ...]) -> object:
        self._left -= 1
        if self._left < 0 or kind in above:
            raise NoSample
        match kind:
            case Primitive(name="null"):
                return None
            case Primitive(name="boolean"):
                return False
            case Primitive(name="string" | "bytes"):
                return ""
            case Primitive(name="int"):
                return 0
            case Primitive(name="long"):
                return 2**31  # more than an int holds: in a union it is clear which is meant
            case Primitive():
                return 0.5
            case Fixed(size=size) if size <= MOST_VALUES:
                return "\0" * size
            case Enum(symbols=[first, *_]):
                return first
            case Array():
                return []
            case Map():
                return {}
            case Union(branches=branches):
                return self._first(branches, above)
            case Record(fields=fields):
                return {f.name: self.of(f.type, (*above, kind)) for f in fields}
        raise NoSample

    def _first(self, branches: list[AvroType], above: tuple[AvroType, ...]) -> object:
        for branch in branches:
            try:
                return self.of(branch, above)
            except NoSample:
                continue
        raise NoSample
