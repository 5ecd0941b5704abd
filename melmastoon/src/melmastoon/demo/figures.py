"""What was counted, as one value: the object that `posthouse demo --json` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


class Money(msgspec.Struct, frozen=True, kw_only=True):
    """The money of one tenant, in cents. `captured`, `refunded` come from the vendors' books, `cash` from what was counted at
    the desk (less what went back over the counter), `charged` and `credited` from the lines of the folios; `open` is what
    guests still owe."""

    captured: int
    refunded: int
    cash: int
    charged: int
    credited: int
    open: int

    @property
    def balanced(self) -> bool:
        """What guests were charged is what they paid, plus what they owe."""
        return self.charged - self.credited == self.captured - self.refunded + self.cash + self.open


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended. From `money_balanced` to `held`, and `readable`, every figure is an invariant: it must be
    true, or 0."""

    bookings: Mapping[str, int]
    """By status; those that were cancelled by their reason as well, as in `cancelled: no_room`."""
    sagas: Mapping[str, int]
    """By status, all kinds together."""
    sagas_by_kind: Mapping[str, Mapping[str, int]]
    """By saga and status."""
    compensations: Mapping[str, int]
    """By saga and reason."""
    partials: Mapping[str, int]
    """By saga: how many rested with a part undone at some time, until somebody or a late answer completed them."""
    alerts: int
    """How often somebody on call was alerted: to a refund that failed, to a check-in that was partial."""
    begun_again: int
    """Sagas that began again after they had been called off."""
    stays_extended: int
    """Changes of dates that guests asked for who were in."""
    events: Mapping[str, int]
    """By subject."""
    money: Mapping[str, Money]
    """By tenant."""
    money_balanced: bool
    nights_oversold: int
    keys_lingering: int
    sagas_unfinished: int
    lost: int
    duplicated: int
    out_of_order: int
    held: int
    """Events that no handler could apply."""
    erased: int
    """Guests who asked to be forgotten."""
    noise: int
    """Values about them that were said encrypted, and that nobody can read any more."""
    readable: int
    """Places that still tell who they were."""
    forged: int
    """How often a forged fact was quarantined: once by each consumer of its topic."""
    findings: Sequence[str]
    """What is wrong, in words; the first few of each kind."""
    facts: int
    applied: int
    kills: int
    simulated_days: float
    seconds: float

    @property
    def adds_up(self) -> bool:
        """Whether every invariant holds."""
        wrong = (self.nights_oversold, self.keys_lingering, self.sagas_unfinished, self.lost, self.duplicated)
        return self.money_balanced and not any((*wrong, self.out_of_order, self.held, self.readable))
