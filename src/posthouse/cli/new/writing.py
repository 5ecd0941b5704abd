"""Writing: the files of a kind of project, under the name of the new service."""

from __future__ import annotations

import io
import json
import re
import tokenize
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

from posthouse.cli.new.kinds import SHOP, Kind

SUFFIX = ".template"
"""Of files with variables in them, and of those that would mean something where they lie."""
LEFT_BEHIND = re.compile(r"__pycache__|\..+_cache|.+\.(?:pyc|log|db)")
"""What running an application leaves in its folder."""

_WORD = re.compile(rf"(?<![A-Za-z]){SHOP}(?![A-Za-z])")


def write(name: str, kind: Kind, folder: Path) -> list[str]:
    """Write a project; the names of its files. Raises OSError."""
    files = {
        _WORD.sub(name, file.removesuffix(SUFFIX)): _text(file, text, name, kind)
        for layer in kind.layers
        for file, text in _files(_templates().joinpath(layer))
    }
    for file, text in sorted(files.items()):
        place = folder / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return sorted(files)


def names_in(kind: Kind) -> set[str]:
    """Every name in the code of a kind of project, but the one that is replaced."""
    found = set()
    for layer in kind.layers:
        for file, text in _files(_templates().joinpath(layer)):
            if file.endswith(".py"):
                found |= {token.string for token in tokenize.generate_tokens(io.StringIO(text).readline)}
    return found - {SHOP}


def _templates() -> Traversable:
    return resources.files("posthouse.cli").joinpath("templates")


def _files(folder: Traversable, under: str = "") -> Iterator[tuple[str, str]]:
    for found in folder.iterdir():
        if LEFT_BEHIND.fullmatch(found.name):
            continue
        if found.is_dir():
            yield from _files(found, f"{under}{found.name}/")
        else:
            yield f"{under}{found.name}", found.read_text(encoding="utf-8")


def _text(file: str, text: str, name: str, kind: Kind) -> str:
    text = _WORD.sub(name, text)
    if not file.endswith(SUFFIX):
        return text
    return Template(text).substitute({key: _WORD.sub(name, value) for key, value in _variables(kind).items()})


def _variables(kind: Kind) -> dict[str, str]:
    """What stands in templates, for a service that is called as those of the recipes are."""
    web = Template(_templates().joinpath("compose.web.yaml").read_text(encoding="utf-8"))
    return {
        "name": SHOP,
        "title": kind.title,
        "parts": "a web server and a worker" if kind.serve else "a worker",
        "environment": kind.environment,
        "posthouse": " ".join(kind.posthouse),
        "target": kind.target,
        "run": json.dumps([*kind.posthouse, "run", kind.target, "--log-json"]),
        "migrate": kind.migrate,
        "place": kind.place,
        "test": kind.test,
        "dev": "\n".join(kind.dev),
        "web": web.substitute(name=SHOP, serve=json.dumps(kind.serve)) if kind.serve else "",
    }
