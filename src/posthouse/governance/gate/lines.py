"""Lines: where in a schema file a place of the payload is declared, for remarks beside the text."""

from __future__ import annotations

import re


def line_of(text: str, path: str | None) -> int:
    """The line of the declaration that a JSON Pointer means, as well as that can be told from the text; 1 where it cannot.

    The names on the way are looked for one after the other, so that of two fields with one name the inner is found.
    """
    position = 0
    for step in (path or "").split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if name in ("", "*"):
            continue
        found = _declared(text, name, position) or _declared(text, name, 0)
        if found is None:
            break
        position = found.start()
    return text.count("\n", 0, position) + 1


def _declared(text: str, name: str, start: int) -> re.Match[str] | None:
    """A member of that name, a name as Avro says it, or a field as Protobuf does."""
    word = re.escape(name)
    pattern = rf'"{word}"\s*:|"name"\s*:\s*"{word}"|\b{word}\s*=\s*\d+'
    return re.compile(pattern).search(text, start)
