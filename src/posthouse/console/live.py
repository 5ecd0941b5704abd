"""Live: which parts of the console have other data than a moment ago, told to every browser that looks.

Stores are looked at once a second, and only while somebody listens, however many do: gauges, who runs, and the last line of the
operators' log, whose cost does not grow with what is there.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Any

import msgspec
from starlette.requests import Request

from posthouse.app import App
from posthouse.clock import new_id
from posthouse.console.access.who import Who
from posthouse.console.estate import Estate
from posthouse.edges.broadcast import Broadcast, Item, Limits, Page, Receive, Send, frame
from posthouse.store import ActionFilter

EVERY = 1.0
"""Seconds between two looks."""
WITHIN = 2.0
"""Seconds that a store has for one."""
KEPT = 600
"""Looks that found something, for browsers that were away."""

OF_TENANTS = ("held", "sagas", "timers")
"""Parts that who sees some tenants may look at."""
JOBS = 20
EVERY_SCOPED = 5.0
"""Seconds after which those who see some tenants are told to look, whatever happens: it says nothing about others."""
CLIENTS, EACH = 200, 20
"""Connections of a process, and of one person: a browser has one, however many tabs."""


class Live:
    """`GET /api/live`: server-sent events, each `{"topics": ["held:orders", "home"]}`."""

    def __init__(self, estate: Estate, who_of: Callable[[Request], Who]) -> None:
        beat = frame(b"{}", event="beat")  # an event, for the tab that listens to tell the others
        limits = Limits(clients=CLIENTS, each=EACH, lifetime=300.0, beat=beat)
        self._all, self._scoped = Broadcast(Changes(estate), limits), Broadcast(Ticks(estate), limits)
        self._who_of = who_of

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        request = Request(scope)
        who = self._who_of(request)
        after = request.headers.get("last-event-id") or request.query_params.get("after") or ""
        broadcast = self._all if who.tenants is None else self._scoped
        await broadcast.serve("", after[:100], receive, send, person=who.name)

    async def aclose(self) -> None:
        """End every connection."""
        await self._all.aclose()
        await self._scoped.aclose()


class Ticks:
    """A clock, as a feed: figures of a store are those of all tenants, and when they change is theirs to know."""

    def __init__(self, estate: Estate) -> None:
        self._estate = estate
        self._name = new_id()

    async def read(self, after: str, audiences: Collection[str], *, upto: str = "") -> Page:
        """As `Feed.read`."""
        now = int(time.monotonic() // EVERY_SCOPED)
        place = f"{self._name}~{now}"
        name, _, number = after.partition("~")
        if not after or after == place:
            return Page(place)
        if name != self._name or not number.isdecimal() or len(number) > 15:
            return Page(place, gone=True)
        services = [service.name for app in self._estate.apps for service in app.services]
        topics = sorted(f"{part}:{service}" for part in OF_TENANTS for service in services)
        return Page(place, [Item(place, msgspec.json.encode({"topics": topics}), audience) for audience in audiences])

    async def wait(self, seconds: float) -> None:
        """As `Feed.wait`."""
        await asyncio.sleep(seconds)


class Changes:
    """What has changed, look by look, as a feed."""

    def __init__(self, estate: Estate) -> None:
        self._estate = estate
        self._name = new_id()
        self._last = 0
        self._found: deque[tuple[int, frozenset[str]]] = deque(maxlen=KEPT)
        self._digests: Mapping[str, bytes] | None = None
        self._looked = float("-inf")

    async def read(self, after: str, audiences: Collection[str], *, upto: str = "") -> Page:
        """As `Feed.read`; whoever catches up does not look."""
        if not upto and time.monotonic() - self._looked >= EVERY:
            await self._look()
        begin, end = self._number(after), self._number(upto) if upto else self._last
        if not after:
            return Page(self._position(self._last))
        oldest = self._found[0][0] - 1 if len(self._found) == KEPT else 0
        if begin is None or end is None or begin < oldest:
            return Page(self._position(self._last), gone=True)
        changes = [(number, topics) for number, topics in self._found if begin < number <= end]
        items = [
            Item(self._position(number), msgspec.json.encode({"topics": sorted(topics)}), audience)
            for number, topics in changes
            for audience in audiences
        ]
        return Page(self._position(max(begin, end)), items)

    async def wait(self, seconds: float) -> None:
        """As `Feed.wait`."""
        await asyncio.sleep(seconds)

    def _position(self, number: int) -> str:
        return f"{self._name}~{number}"

    def _number(self, position: str) -> int | None:
        name, _, number = position.partition("~")
        if name != self._name or not number.isdecimal() or len(number) > 15:
            return None
        return int(number) if int(number) <= self._last else None

    async def _look(self) -> None:
        told = await self._estate.each(_parts, within=WITHIN)
        self._looked = time.monotonic()
        digests = {"health": _digest([(one.service, one.what) for one in told.problems])}
        for name, parts in told.found.items():
            for service in self._estate.app(name).services:
                digests |= {f"{part}:{service.name}": digest for part, digest in parts.items()}
        before, self._digests = self._digests, digests
        if before is None:
            return
        changed = {topic for topic in before.keys() | digests.keys() if before.get(topic) != digests.get(topic)}
        if changed:
            self._last += 1
            self._found.append((self._last, frozenset({*changed, "home", "map"})))


async def _parts(app: App) -> Mapping[str, bytes]:
    """What tells of each part of one store whether it has changed; ages are left out, as they always do."""
    store = app.store
    gauges = await store.gauges(timeout=WITHIN)
    workers = await store.workers.read()
    actions = await store.actions.find(ActionFilter(), limit=1)
    jobs = await store.jobs.find([service.name for service in app.services], limit=JOBS)
    counts = gauges.counts
    held = [counts.held, counts.strange, counts.strange_skipped, counts.skipped, gauges.held_due]
    parts: Mapping[str, Sequence[object]] = {
        "held": held,
        "outbox": [counts.committed, counts.unsent, counts.stuck, counts.refused],
        "consumers": [counts.applied, counts.lost, *held],
        "relays": [gauges.shards_leased, gauges.shards_free, gauges.leases, gauges.runs, counts.unsent],
        "sagas": [gauges.sagas, gauges.sagas_ended, counts.applied, counts.timers],
        "timers": [counts.timers, bool(gauges.timers_overdue)],
        "schedules": [sorted(gauges.schedules_overdue), counts.committed],
        "projections": [gauges.generations, counts.applied],
        "processes": [(one.id, one.aside, one.stopped) for one in workers],
        "log": [(one.id, one.outcome) for one in actions],
        "jobs": [(one.id, one.state, one.position, one.applied, one.failed) for one in jobs],
    }
    return {part: _digest(figures) for part, figures in parts.items()}


def _digest(figures: object) -> bytes:
    return hashlib.blake2b(repr(figures).encode(), digest_size=8).digest()
