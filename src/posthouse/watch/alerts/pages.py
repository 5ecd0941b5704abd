"""The runbooks: a page for every cause that an alert may have. They are in the package, there when nothing else answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

_OUT = re.compile(r"\[([^\]]+)\]\(\.\./[^)\s]+\)")
"""A link to another page of the documentation."""


def runbooks() -> Mapping[str, str]:
    """The pages, by the names of their files. Of links that lead out of their folder the words stay: it may be put anywhere."""
    pages = files("posthouse.watch.alerts").joinpath("runbooks")
    found = {
        page.name: _OUT.sub(r"\1", page.read_text(encoding="utf-8"))
        for page in pages.iterdir()
        if page.name.endswith(".md")
    }
    return dict(sorted(found.items()))
