"""Event-sourced aggregates: state as the sum of its facts."""

from posthouse.processes.stream.aggregate import Aggregate, Expected, Home, Loaded
from posthouse.processes.stream.book import AggregateBook
from posthouse.processes.stream.conflicts import Conflicts
from posthouse.processes.stream.deciding import Decision, Evolve, decided, folded
from posthouse.processes.stream.reading import STREAM_VERSION

__all__ = [
    "STREAM_VERSION",
    "Aggregate",
    "AggregateBook",
    "Conflicts",
    "Decision",
    "Evolve",
    "Expected",
    "Home",
    "Loaded",
    "decided",
    "folded",
]
