"""What follows the `?` of a broker's URL: every problem of it in words, all at once. Each adapter has a `url` of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar
from urllib.parse import SplitResult, parse_qsl

import msgspec

from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.options import said_twice, too_long

Options = TypeVar("Options", bound=msgspec.Struct)


def said_in(parts: SplitResult) -> dict[str, str]:
    """What the URL says, by name. ConfigurationError for what it says twice."""
    if problems := said_twice(parts.query):
        raise ConfigurationError(*problems)
    return dict(parse_qsl(parts.query, keep_blank_values=True))


def options_of(
    scheme: str, said: dict[str, str], default: Options, problems: list[str], also: Iterable[str] = ()
) -> Options:
    """The options as said, or the default when a problem was found. `also`: what else the URL may say."""
    known: tuple[str, ...] = default.__struct_fields__
    problems += [
        f"the {scheme} broker has no option {name!r}.{did_you_mean(name, (*known, *also))}"
        for name in said
        if name not in known
    ]
    try:
        options = msgspec.convert(said, type(default), strict=False)
    except msgspec.ValidationError as error:
        problems.append(f"an option of the {scheme} broker's URL does not fit: {error}")
        return default
    problems += [f"the {scheme} broker: {problem}" for problem in too_long(options)]
    return options
