"""Prose: foreign text inside Markdown and MDX, as text and never as anything else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SIGNS = re.compile(r"[\\`*_{}\[\]<>()#&~$!]")
_BULLET = re.compile(r"^(?=[-+=:])")
_NUMBER = re.compile(r"^([0-9]+)(?=[.)])")
_STATEMENT = re.compile(r"^(?:import|export)\b")
BAR = "\\|"

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]")


def text(said: str) -> str:
    """One line of text: every sign that means something in Markdown or MDX stands for itself."""
    line = " ".join(_CONTROL.sub(" ", said).split())
    line = _SIGNS.sub(lambda found: f"\\{found[0]}", line)
    line = _NUMBER.sub(r"\1\\", _BULLET.sub(r"\\", line))
    return _STATEMENT.sub(lambda found: f"&#{ord(found[0][0])};{found[0][1:]}", line)


def paragraphs(said: str) -> str:
    """Text of several paragraphs, which blank lines part."""
    return "\n\n".join(filter(None, (text(part) for part in re.split(r"\n\s*\n", said))))


def code(name: str) -> str:
    """A name in the type of a machine; empty stays empty."""
    line = " ".join(_CONTROL.sub(" ", name).split())
    if not line:
        return ""
    if "`" not in line:
        return f"`{line}`"
    fence = "`" * (1 + max(len(run) for run in re.findall("`+", line)))
    return f"{fence} {line} {fence}"


def codes(names: Iterable[str]) -> str:
    return ", ".join(map(code, names))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells must be text or code already. A bar inside one is escaped here, which is right in code too."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', BAR) for cell in line)} |\n" for line in lines)
