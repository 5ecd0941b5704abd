"""HCL: values as Terraform's language writes them, laid out as `terraform fmt` would."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Value = str | Sequence[str] | Mapping[str, "Value"]

_SIGNS = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED = re.compile(r"[\\\"\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]|[$%](?=\{)")


def quoted(text: str) -> str:
    """A string that means itself: neither `${` nor `%{` begins anything in it."""
    return f'"{_ESCAPED.sub(_escape, text)}"'


def assignment(name: str, value: Value, indent: str = "") -> str:
    """`name = value`, on lines of its own."""
    return f"{indent}{name} = {_written(value, indent)}"


def _written(value: Value, indent: str) -> str:
    if isinstance(value, str):
        return quoted(value)
    if not isinstance(value, Mapping):
        return f"[{', '.join(map(quoted, value))}]"
    if not value:
        return "{}"
    inner = f"{indent}  "
    items = [(quoted(name), _written(inside, inner)) for name, inside in value.items()]
    return "\n".join(["{", *_aligned(items, inner), f"{indent}}}"])


def _aligned(items: Sequence[tuple[str, str]], indent: str) -> list[str]:
    """Neighbours on one line each have their signs below each other."""
    made: list[str] = []
    run: list[tuple[str, str]] = []
    for name, value in items:
        run.append((name, value))
        if "\n" in value:
            made += _run(run[:-1], indent)
            made.append(f"{indent}{name} = {value}")
            run = []
    return [*made, *_run(run, indent)]


def _run(items: Sequence[tuple[str, str]], indent: str) -> list[str]:
    width = max((len(name) for name, _ in items), default=0)
    return [f"{indent}{name.ljust(width)} = {value}" for name, value in items]


def _escape(found: re.Match[str]) -> str:
    sign = found[0]
    return _SIGNS.get(sign) or f"\\u{ord(sign):04x}"
