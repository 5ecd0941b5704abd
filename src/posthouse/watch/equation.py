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

    def nearest(self, number: int) -> int:
        """What these bounds leave of a number that was true before."""
        return max(self.least, min(number, self.most))


class Repeats(NamedTuple):
    """So many frames did the broker store beyond one for each event, at least and at most, when a look began and ended. They only
    become more."""

    least: int
    most: int

    def narrowed(self, later: Repeats) -> Repeats:
        return Repeats(max(self.least, later.least), min(self.most, later.most))


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


def repeats(before: Place, progress: Progress, after: Place, waiting: int | None) -> Repeats:
    """On a broker that counts whatever it ever stored. What is stored and not noted yet is no repeat."""
    unsent = ANY if waiting is None else waiting
    return Repeats(progress.stored - after.sent - unsent, progress.stored - before.sent)


class Known:
    """What looks at one line have found between them: while many events move one look alone shows less than the one before.

    What was missing at an earlier look is missing until it is found: in the store, which lowers the upper bound of every look
    from then on; by a person's word, which is counted; or at the broker, to which it was sent again: then there are more repeats.
    So a number that was certain once stays it within the bounds of later looks, less what was accepted as lost. Where repeats
    came, or no look has shown any of it for `MEMORY` seconds, the bounds may only be too wide to see that it was found: that much
    of it is in doubt, which nobody calls missing.
    """

    MEMORY = 3_600.0

    def __init__(self) -> None:
        self._number = 0
        self._lost = 0
        """Accepted as lost when the number was certain."""
        self._before: int | None = None
        """Repeats when the number was certain, at most."""
        self._since = -ANY
        """Repeats by now, at least."""
        self._shown_at = 0.0

    def look(self, found: Missing, *, lost: int, again: Repeats | None, at: float) -> tuple[int, int]:
        """What is certain now, and how many more are in doubt. `lost`: as many were accepted as lost by the first reading of this
        look. `at`: when that was, by a clock that never goes back."""
        accepted = lost - self._lost
        left = max(0, self._number - max(0, accepted)) + min(0, self._number - min(0, accepted))
        number = found.nearest(left)
        if number in (0, found.certain) or number != left:  # it is this look's own
            self._before, self._since = None, -ANY
        self._number, self._lost = number, lost
        if again is not None:
            self._before = again.most if self._before is None else min(self._before, again.most)
            self._since = max(self._since, again.least)
        if found.certain or not number:
            self._shown_at = at
        doubt = max(0, self._since - self._before) if self._before is not None else 0
        if at - self._shown_at > self.MEMORY:
            doubt = abs(number)
        certain = number - min(number, doubt) if number > 0 else min(0, number + doubt)
        certain = found.nearest(certain)
        return certain, abs(number - certain)


def excused(progress: Progress, place: Place, number: int) -> bool:
    """Whether so many that are not found may be somewhere all the same: where the broker cannot count, before the group began, or
    among frames that nobody can read."""
    return bool(progress.uncounted) or (progress.truncated and not progress.whole) or place.strange >= number
