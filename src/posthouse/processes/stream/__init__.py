"""Event-sourced aggregates: state as the sum of its facts."""

from posthouse.processes.stream.aggregate import Aggregate, Expected, Loaded
from posthouse.processes.stream.conflicts import Conflicts
from posthouse.processes.stream.deciding import Decision, Evolve, decided, folded
from posthouse.processes.stream.reading import STREAM_VERSION

__all__ = [
    "STREAM_VERSION",
    "Aggregate",
    "Conflicts",
    "Decision",
    "Evolve",
    "Expected",
    "Loaded",
    "decided",
    "folded",
]
