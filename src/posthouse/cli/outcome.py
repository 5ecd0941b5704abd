"""Outcome: what follows from the figures, in one word and as an exit code."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.cli.group import CHECK_FAILED
from posthouse.watch.liveness import Attendance
from posthouse.watch.status import Line, Status, Verdict, worst

FINE, NEEDS_YOU, CANNOT_TELL, NOBODY = 0, CHECK_FAILED, 3, 4
"""How it ends: nothing to do; events are missing, too many, dead, or too long at a gap; nobody can tell; work waits for a part that nobody runs.
2 is what every command ends with that was asked for something it cannot do."""


def code_of(figures: Status, settled: Sequence[Line], attended: Sequence[Attendance]) -> int:
    """The worst that is certain comes first: what only a person can mend, then what a process would. What waits at a gap may
    wait for that process."""
    verdict = outcome(figures, settled)
    if verdict == "does not add up" or figures.dead or figures.not_undone:
        return NEEDS_YOU
    if any(one.waiting or one.unknown_schedules for one in attended):
        return NOBODY
    if figures.overdue or any(one.overdue is not None for one in figures.schedules):
        return NEEDS_YOU
    return CANNOT_TELL if verdict == "cannot tell" or figures.away else FINE


def outcome(figures: Status, settled: Sequence[Line]) -> Verdict:
    """The answer to all. Of a line that moves and does not add up, or may count something twice, nobody can tell yet."""
    if worst(settled) == "does not add up" or (figures.verdict == "adds up" and not figures.away):
        return figures.verdict
    return "cannot tell"


def moving(figures: Status, settled: Sequence[Line]) -> bool:
    """Whether something is on its way that may explain what seems to be missing."""
    return worst(settled) == "adds up" and (any(figures.unsent.values()) or any(line.moving for line in figures.lines))
