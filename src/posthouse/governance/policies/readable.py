"""Readable: what of an expression can be read in the text that it makes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from posthouse.governance.policies.words import one_of

_SPELLING = one_of("str repr format join")
"""Calls in whose answer the arguments can be read."""


def readable_names(node: ast.expr) -> Iterator[str]:
    """The names in an expression whose values can be read in what it makes. What a function makes of them is not known."""
    match node:
        case ast.Name():
            yield node.id
        case ast.Attribute():
            yield node.attr
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            yield name
        case ast.Subscript():
            yield from readable_names(node.value)
        case ast.Call(func=func):
            spelled = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
            inner = [*node.args, *(word.value for word in node.keywords)] if spelled in _SPELLING else []
            for part in (*([func.value] if isinstance(func, ast.Attribute) else []), *inner):
                yield from readable_names(part)
        case ast.IfExp():
            yield from readable_names(node.body)
            yield from readable_names(node.orelse)
        case ast.Compare() | ast.Lambda():
            return
        case _:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    yield from readable_names(child)
