"""Plug-ins: what other installed distributions add to Posthouse, by entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posthouse.errors import ConfigurationError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

VERBS = "posthouse.verbs"
"""Verbs of the command line: a function, or a `typer.Typer` for a verb with verbs of its own."""
ENVELOPES = "posthouse.envelopes"
"""Wire formats: a `Codec` under the name that it has in configuration."""


def installed(group: str) -> dict[str, EntryPoint]:
    """By name; the first on the path where two distributions have the same. Nothing is imported."""
    from importlib.metadata import entry_points  # costs more than all our own modules, and few ever need it

    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        found.setdefault(entry.name, entry)
    return found


def load(entry: EntryPoint) -> object:
    """What it names. Raises ConfigurationError, which says whose it is, when it cannot be imported."""
    try:
        loaded: object = entry.load()
    except Exception as error:  # a stranger's module may raise anything
        whose = f"of the distribution {entry.dist.name!r} " if entry.dist else ""
        raise ConfigurationError(
            f"{entry.name!r} {whose}cannot be loaded from {entry.value}: {type(error).__name__}: {error}"
        ) from error
    return loaded
