"""Outage: a server that is away, as all loops of a process find it. Told when it begins, then ever more rarely, and when it is over."""

from __future__ import annotations

import logging
from typing import NamedTuple
from weakref import WeakValueDictionary

from posthouse.clock import Clock, SystemClock, longest_backoff
from posthouse.errors import BrokerError, BrokerUnavailable, CommitUnknown, StoreCollision, StoreUnavailable
from posthouse.redaction import words_of

log = logging.getLogger("posthouse.outage")

AWAY = (StoreUnavailable, CommitUnknown, BrokerUnavailable)
"""What time may mend. A store that is outdated, a password that is refused and a wrong option are not among them."""

FIRST_REMINDER, LAST_REMINDER = 30.0, 1_800.0
"""Seconds between the first two lines about one outage, and at the most."""
CALM = 60.0
"""A server that is away again within so many seconds was not back for good: its next line keeps its distance."""
NAMED = 3
"""How many of those who wait are named in a line."""


class Waiting(NamedTuple):
    """Somebody who waits for a server: since when, in seconds since 1970, and what the last try ended with."""

    since: float
    reason: str


class Outage:
    """One server. `what` says which, as in `the broker (nats://…)`."""

    def __init__(self, what: str, clock: Clock) -> None:
        self.what = what
        self.waiting: dict[tuple[int, str], Waiting] = {}
        """Those whose last try failed, each by the App and the name of its loop."""
        self._clock = clock
        self._began = 0.0
        self._ended = float("-inf")
        self._lines = 0
        self._next_line = 0.0
        self._told = False
        """Whether a line says that it is away, and none that it is back."""

    def failed(self, app: int, who: str, error: Exception) -> None:
        """A try of `who` ended with this."""
        now, place = self._clock.monotonic(), (app, who)
        if not self.waiting:
            self._began = now
            if now - self._ended > CALM:
                self._lines = 0
        since = self.waiting[place].since if place in self.waiting else self._clock.now()
        self.waiting[place] = Waiting(since, words_of(error))
        if not self._lines or now >= self._next_line:
            self._lines += 1
            self._next_line = now + longest_backoff(self._lines, FIRST_REMINDER, LAST_REMINDER)
            self._say(error, now - self._began)

    def answered(self, app: int, who: str) -> bool:
        """A try of `who` went well. It is over when that is so for all who waited; True when it is for all of this App."""
        if self.waiting.pop((app, who), None) is None:
            return False
        if self.waiting:
            return all(other != app for other, _ in self.waiting)
        self._ended = self._clock.monotonic()
        seconds = self._ended - self._began
        if self._told:
            self._told = False
            log.warning(
                "%s is back after %s", self.what, span(seconds), extra={"server": self.what, "seconds": seconds}
            )
        return True

    def left(self, app: int, who: str) -> None:
        """`who` tries no more."""
        self.waiting.pop((app, who), None)
        self._told = self._told and bool(self.waiting)

    def _say(self, error: Exception, seconds: float) -> None:
        names = [who for _, who in self.waiting]
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        wait = f"{', '.join(names[:NAMED])}{more} {'waits' if len(names) == 1 else 'wait'}"
        how = "is away" if isinstance(error, AWAY) else "refuses us"
        self._told = True
        log.warning(
            "%s %s%s, %s: %s",
            self.what, how, f" for {span(seconds)}" if seconds >= 1 else "", wait, words_of(error),
            extra={"server": self.what, "seconds": seconds, "waiting": names, "reason": words_of(error)},
        )  # fmt: skip


class Outages:
    """The servers of one App, told apart by the errors that they cause."""

    def __init__(self, clock: Clock, store: str = "the database", broker: str = "the broker") -> None:
        self.store = outage_of(store, clock)
        self.broker = outage_of(broker, clock)
        self.reconnects = {"store": 0, "broker": 0}
        """How often a server that was away for a loop of this App has answered all of them again."""

    def failed(self, who: str, error: Exception) -> None:
        """A try of a loop ended with this. One that lost against another transaction has found the store well."""
        if isinstance(error, StoreCollision):
            log.info("%s: %s", who, words_of(error))
        else:
            (self.broker if isinstance(error, BrokerError) else self.store).failed(id(self), who, error)

    def answered(self, who: str) -> None:
        """A try of a loop went well: neither is away for it."""
        for name, server in (("store", self.store), ("broker", self.broker)):
            if server.waiting and server.answered(id(self), who):
                self.reconnects[name] += 1

    def waiting(self, *servers: Outage) -> dict[str, Waiting]:
        """Who of this App waits for one of these, by the names of the loops."""
        return {who: found for server in servers for (app, who), found in server.waiting.items() if app == id(self)}

    def left(self, who: str) -> None:
        """The loop ends."""
        for server in (self.store, self.broker):
            server.left(id(self), who)


def outage_of(what: str, clock: Clock) -> Outage:
    """The one of a server for this whole process, as long as somebody has it. On another clock than the machine's, one's own."""
    if not isinstance(clock, SystemClock):
        return Outage(what, clock)
    found = _known.get(what)
    if found is None:
        found = _known[what] = Outage(what, clock)
    return found


_known: WeakValueDictionary[str, Outage] = WeakValueDictionary()


def span(seconds: float) -> str:
    """A duration for people."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3600:.1f} h"
