"""Parts: what an installation of Posthouse consists of at run time, as it is installed where the release is made and was tested."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NOT_RUN = ("dev", "picture")
"""Extras of those who work on Posthouse."""


class Part(NamedTuple):
    """One distribution. `licence` is an SPDX expression where it says one, else its own words. `needs` are names of others."""

    name: str
    version: str
    licence: str
    needs: tuple[str, ...] = ()


def parts_of(root: str = "posthouse") -> list[Part]:
    """The root first, with all its extras for the run time, then everything that it needs here, by name."""
    found: dict[str, Part] = {}
    extras: dict[str, set[str]] = {}
    top = distribution(root)
    waiting = [(root, set(top.metadata.get_all("Provides-Extra") or ()) - {*NOT_RUN})]
    while waiting:
        name, asked = waiting.pop()
        known = extras.setdefault(name, set())
        if name in found and asked <= known:
            continue
        known |= asked
        one = distribution(name)
        needed = {canonicalize_name(each.name): each.extras for each in _needed(one, known)}
        found[name] = Part(name, one.version, licence_of(one), tuple(sorted(needed)))
        waiting += needed.items()
    first = found.pop(root)
    return [first, *sorted(found.values())]


def licence_of(one: Distribution) -> str:
    """What it says of itself, from the most exact on."""
    said = one.metadata
    for field in ("License-Expression", "License"):
        words = (said.get_all(field) or [""])[0].strip()
        if words and "\n" not in words and words != "UNKNOWN":
            return str(words)
    classes = [line.rpartition(" :: ")[2] for line in said.get_all("Classifier") or () if line.startswith("License ::")]
    return " OR ".join(classes)


def _needed(one: Distribution, extras: set[str]) -> Iterator[Requirement]:
    for line in one.requires or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement
