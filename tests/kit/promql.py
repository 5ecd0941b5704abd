"""The names in a PromQL expression: figures, labels, and what labels must be. Written without any of our own code that makes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

TOKEN = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<length>\[[^\]]*\])
    |(?P<number>\d[\w.]*)
    |(?P<name>\$?[a-zA-Z_][\w:]*)
    |(?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^=<>(){},@])
    |(?P<space>\s+)
    |(?P<other>.)""",
    re.VERBOSE,
)
GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
CALLED = {"(", "by", "without"}
"""What follows a function or an aggregation."""
WORDS = GROUPING | {"and", "or", "unless", "offset", "bool", "inf", "nan"}


class Names(NamedTuple):
    """`figures`: each name with the labels that it is chosen by, and these labels' words. `labels`: those of `by (…)` and others."""

    figures: list[tuple[str, dict[str, str]]]
    labels: set[str]


def names_in(expr: str) -> Names:
    """Everything that is named; ValueError for what is no PromQL at all."""
    tokens = [*_tokens(expr)]
    figures: list[tuple[str, dict[str, str]]] = []
    labels: set[str] = set()
    at = 0
    while at < len(tokens):
        kind, text = tokens[at]
        following = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        if kind == "name" and text in GROUPING and following == "(":
            end = _end(tokens, at, ")")
            labels.update(word for kind, word in tokens[at + 2 : end] if kind == "name")
            at = end
        elif text == "{":
            raise ValueError(f"a selector without a name in {expr}")
        elif kind == "name" and text not in WORDS and following not in CALLED:
            chosen = {}
            if following == "{":
                end = _end(tokens, at, "}")
                inside = tokens[at + 2 : end]
                chosen = {inside[n][1]: inside[n + 2][1][1:-1] for n in range(len(inside)) if inside[n][0] == "name"}
                at = end
            figures.append((text, chosen))
        at += 1
    return Names(figures, labels)


def _tokens(expr: str) -> Iterator[tuple[str, str]]:
    for found in TOKEN.finditer(expr):
        kind = found.lastgroup or ""
        if kind == "other":
            raise ValueError(f"{found[0]!r} in {expr}")
        if kind not in ("space", "length"):
            yield kind, found[0]


def _end(tokens: list[tuple[str, str]], at: int, closing: str) -> int:
    return next(n for n in range(at, len(tokens)) if tokens[n][1] == closing)
