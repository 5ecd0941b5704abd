"""JSON values as schemas speak of them: their one text, their type, and a schema of exactly some of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable


def canonical(value: object) -> str:
    """One text per JSON value: sorted names, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def sha256(text: str) -> str:
    """`sha256-…` of a text."""
    return f"sha256-{hashlib.sha256(text.encode()).hexdigest()}"


def type_of(value: object) -> str:
    """The JSON type of a value; a number without a fraction is an integer."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if float(value).is_integer() else "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def plain(value: object) -> object:
    """The value with `1` for `1.0`, which is the same number."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return value


def distinct(values: Iterable[object]) -> list[object]:
    """Each value once. Python takes True for 1; JSON does not."""
    return list({canonical(value): value for value in values}.values())


def exactly(values: Iterable[object]) -> dict[str, object]:
    """A schema that accepts these values and no others."""
    ordered = sorted(distinct(values), key=lambda value: (type_of(value), canonical(value)))
    texts = [canonical(value) for value in ordered]
    if texts == ["null"]:
        return {"type": "null"}
    return {"type": "boolean"} if texts == ["false", "true"] else {"enum": ordered}
