"""Equation: what was sent is accounted for by the consumer, or still at the broker; else it is missing. Pure.

Three places are read one after the other while events move between them, so no difference of three numbers is the truth. What is
certain are its bounds, from readings of the stores before and after that of the broker: what was sent before, and is accounted for
by nobody afterwards, nor at the broker meanwhile, is missing, whatever moved. Where nothing moves both bounds are the same number.
"""

from __future__ import annotations

from typing import NamedTuple

from posthouse.broker import Progress
from posthouse.watch.status import overlap


class Place(NamedTuple):
    """What the stores know at one moment of one consumer in one topic. `sent`: so many has the producer's relay noted as accepted
    by the broker. `accounted`: so many has the consumer applied, holds, or has given up. `strange`: it holds so many frames in
    which no event could be read."""

    sent: int
    accounted: int
    strange: int = 0


ANY = 2**62
"""More than there can be."""


class Missing(NamedTuple):
    """So many events are missing, at least and at most; below 0 are too many."""

    least: int
    most: int

    @property
    def certain(self) -> int:
        """So many for certain; 0 where nothing is."""
        return max(self.least, 0) + min(self.most, 0)

    @property
    def exact(self) -> bool:
        return self.least == self.most

    def narrowed(self, later: Missing) -> Missing:
        """What both readings allow; if that is nothing, something was lost or found between them, and the later one counts."""
        both = Missing(max(self.least, later.least), min(self.most, later.most))
        return both if both.least <= both.most else later


def missing(before: Place, progress: Progress, after: Place, *, history: bool, waiting: int | None) -> Missing:
    """From readings in this order. `history`: the broker counts whatever it ever stored. `waiting`: so many more may still be
    sent, not before the last reading; None where nobody has counted them.

    At least: sent before, not at the broker, and not accounted for even afterwards. Those in hand that are applied and not
    acknowledged count twice, which only makes it smaller. At most: sent even afterwards, and neither accounted for before, nor
    at the broker for certain.
    """
    twice = overlap(progress, sent=before.sent if history else None, unsent=ANY if waiting is None else waiting)
    return Missing(
        before.sent - progress.pending - after.accounted,
        after.sent - before.accounted - progress.pending + twice,
    )


def excused(progress: Progress, place: Place, number: int) -> bool:
    """Whether so many that are not found may be somewhere all the same: where the broker cannot count, before the group began, or
    among frames that nobody can read."""
    return bool(progress.uncounted) or (progress.truncated and not progress.whole) or place.strange >= number
