"""Wording: what a text of SQL says to the database, statement by statement, without its remarks."""

from __future__ import annotations

import re
from collections.abc import Iterator

PART = re.compile(
    r";|--[^\n]*|/\*"
    r"|(?<![\w$])[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\""
    r"|(?<![\w$])\$(?P<tag>[^\W\d]\w*|)\$.*?\$(?P=tag)\$",
    re.DOTALL,
)
"""Where a statement ends, a remark, and whatever is quoted, in which nothing ends."""
REMARK = re.compile(r"/\*|\*/")


def text_of(sql: object) -> str:
    """What a driver takes as a statement, as text."""
    return sql.decode(errors="replace") if isinstance(sql, bytes) else str(sql)


def statements_in(text: str, *, nested: bool = True) -> Iterator[str]:
    """Each statement of a text, without remarks and the space around it. Remarks are `nested` for PostgreSQL, and end with
    the first mark for SQLite."""
    words: list[str] = []
    place = 0
    while part := PART.search(text, place):
        words.append(text[place : part.start()])
        place = part.end()
        if part[0] == ";":
            yield from _whole(words)
            words = []
        elif part[0] == "/*":
            place = end_of_remark(text, place, nested)
            words.append(" ")
        else:
            words.append(" " if part[0].startswith("--") else part[0])
    yield from _whole([*words, text[place:]])


def is_ambiguous(text: str) -> bool:
    """Whether PostgreSQL and SQLite disagree on where its remarks end."""
    return "/*" in text and [*statements_in(text)] != [*statements_in(text, nested=False)]


def _whole(words: list[str]) -> Iterator[str]:
    statement = "".join(words).strip()
    if statement:
        yield statement


def end_of_remark(text: str, place: int, nested: bool) -> int:
    depth = 1
    for mark in REMARK.finditer(text, place):
        depth += 1 if mark[0] == "/*" and nested else -1 if mark[0] == "*/" else 0
        if depth == 0:
            return mark.end()
    return len(text)
