"""Placeholders: `:name` with a mapping is one style for every store; what the driver itself takes works beside it."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from posthouse.errors import StoreError, did_you_mean
from posthouse.store.transaction import Parameters
from posthouse.store.wording import PART, end_of_remark


class Style(NamedTuple):
    """How a driver writes the parameters of a statement."""

    write: str
    """One of them, by the `number` of its name, from 1 on, or by the `name` itself."""
    own: str
    """What it reads as a parameter of its own, as a pattern."""
    by_name: bool = False
    """Its parameters can be a mapping."""
    each: bool = False
    """A name that stands twice is two parameters."""
    nested: bool = True
    """Remarks are, as PostgreSQL has them."""
    quotes: str = "(?!)"
    """What else is quoted, as a pattern."""

    @property
    def escaped(self) -> bool:
        """A percent sign is written twice, so that nothing of the statement is read as a parameter by mistake."""
        return "%" in self.write


DOLLAR = Style("${number}", r"\$\d+")
"""asyncpg."""
QUESTION = Style("?{number}", r"\?\d*|[@$][^\W\d]\w*", by_name=True, nested=False, quotes=r"`(?:[^`]|``)*`|\[[^]]*\]")
"""sqlite3."""
PYFORMAT = Style("%({name})s", r"%\(\w+\)", by_name=True)
"""psycopg, psycopg2 and Django."""
FORMAT = Style("%s", r"%s", each=True)
"""pg8000, and Django on SQLite."""

STYLES = {"numeric_dollar": DOLLAR, "qmark": QUESTION, "pyformat": PYFORMAT, "format": FORMAT}
"""By the names that drivers and SQLAlchemy have for them."""

MIXED = "the parameters are a mapping, so each is written :name, and none in the driver's own style"


class Translated(NamedTuple):
    """A statement in the style of a driver."""

    text: str
    names: tuple[str, ...]
    """In the order of its parameters."""
    own: bool
    """It has parameters in the driver's own style as well."""


def bound(sql: str, parameters: Parameters, style: Style) -> tuple[str, Parameters]:
    """A statement and its parameters as the driver takes them. A sequence is in the driver's own style already. StoreError
    when the names of a mapping are not those of the statement."""
    if not isinstance(parameters, Mapping):
        return sql, parameters
    found = _translated(sql, style)
    if found.own and style.by_name and parameters.keys().isdisjoint(found.names):
        return sql, parameters
    mixed = found.own and not style.escaped
    if mixed or parameters.keys() != set(found.names):
        raise StoreError(MIXED if mixed else _refusal(found.names, parameters))
    if not found.names:
        return sql, ()
    if style is PYFORMAT:
        return found.text, parameters
    return found.text, [parameters[name] for name in found.names]


@functools.lru_cache(maxsize=1024)
def _translated(sql: str, style: Style) -> Translated:
    names: list[str] = []
    own = False
    words: list[str] = []
    token, place = _token(style), 0

    def keep(text: str) -> None:
        words.append(text.replace("%", "%%") if style.escaped else text)

    while found := token.search(sql, place):
        keep(sql[place : found.start()])
        place = found.end()
        if name := found["name"]:
            if style.each or name not in names:
                names.append(name)
            words.append(style.write.format(name=name, number=names.index(name) + 1))
            continue
        own = own or found["own"] is not None
        if found[0] == "/*":
            place = end_of_remark(sql, place, style.nested)
        keep(sql[found.start() : place])
    keep(sql[place:])
    return Translated("".join(words), tuple(names), own)


@functools.cache
def _token(style: Style) -> re.Pattern[str]:
    """What is quoted, a remark, a name, and what the driver reads as a parameter. A colon behind another one is a cast, one
    behind a word a slice."""
    return re.compile(rf"{PART.pattern}|{style.quotes}|(?<![:\w]):(?P<name>[^\W\d]\w*)|(?P<own>{style.own})", re.DOTALL)


def _refusal(names: Sequence[str], parameters: Mapping[str, object]) -> str:
    missing = [name for name in dict.fromkeys(names) if name not in parameters]
    superfluous = [name for name in parameters if name not in names]
    problems = [f":{name} has no value.{did_you_mean(name, superfluous)}" for name in missing]
    problems += [
        f"{name!r} is not in the statement: write it :{name}, or leave it out.{did_you_mean(name, missing)}"
        for name in superfluous
    ]
    return " ".join(problems)
