"""What follows the `?` of a store's URL: every problem of it in words, all at once."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import SplitResult, parse_qsl

import msgspec

from posthouse.errors import did_you_mean
from posthouse.options import said_twice, too_long

Options = TypeVar("Options", bound=msgspec.Struct)


def options_of(
    parts: SplitResult, kind: type[Options], store: str, problems: list[str], *, also: tuple[str, ...] = ()
) -> Options:
    """What follows the `?`; sentences on what does not fit are added to `problems`."""
    problems += said_twice(parts.query)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = (*kind.__struct_fields__, *also)
    problems += [
        f"the {store} store has no option {name!r}.{did_you_mean(name, known)}" for name in given if name not in known
    ]
    try:
        options = msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        why, _, field = str(error).partition(" - at `$.")
        name = field.rstrip("`")
        problems.append(f"the {store} store: {name}={given.get(name, '')} does not fit: {why}")
        return kind()
    problems += [f"the {store} store: {problem}" for problem in too_long(options)]
    return options
