"""Front matter: YAML at the top of a page. Every text is quoted, so that none of it is anything else than text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

Value = str | bool | int | Sequence["Value"] | Mapping[str, "Value"]

_ODD = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


def front_matter(fields: Mapping[str, Value]) -> str:
    """What is empty is left out."""
    return "\n".join(["---", *_mapping(fields, ""), "---"]) + "\n"


def quoted(text: str) -> str:
    """JSON's strings are YAML's, but for signs that YAML takes as ends of lines or does not take at all."""
    return _ODD.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def _mapping(fields: Mapping[str, Value], indent: str) -> Iterator[str]:
    for name, value in fields.items():
        if value != "" and value != [] and value != {}:
            yield from _item(f"{indent}{name}:", value, f"{indent}  ")


def _item(head: str, value: Value, indent: str) -> Iterator[str]:
    if isinstance(value, bool | int):
        yield f"{head} {json.dumps(value)}"
    elif isinstance(value, str):
        yield f"{head} {quoted(value)}"
    elif isinstance(value, Mapping):
        yield head
        yield from _mapping(value, indent)
    else:
        yield head
        for one in value:
            yield from _entry(one, indent)


def _entry(value: Value, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        first, *rest = _mapping(value, f"{indent}  ")
        yield f"{indent}- {first.lstrip()}"
        yield from rest
    else:
        yield from _item(f"{indent}-", value, f"{indent}  ")
