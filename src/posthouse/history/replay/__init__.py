"""Replay: events are given to one consumer once more, from whatever still has them, and to nobody else."""

from posthouse.history.replay.choice import Choice, From
from posthouse.history.replay.plan import Part, Plan, Planner
from posthouse.history.replay.putting_aside import put_aside
from posthouse.history.replay.running import Owner, Run
from posthouse.history.replay.said import remember_said
from posthouse.history.replay.selection import refusals
from posthouse.history.replay.sources import ArchiveSource, LogSource, OutboxSource, Source, StreamSource

__all__ = [
    "ArchiveSource",
    "Choice",
    "From",
    "LogSource",
    "OutboxSource",
    "Owner",
    "Part",
    "Plan",
    "Planner",
    "Run",
    "Source",
    "StreamSource",
    "put_aside",
    "refusals",
    "remember_said",
]
