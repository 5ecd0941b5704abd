"""Scale: how much work waits for whom, how fast it goes, and when it will be done, for autoscalers. What nobody knows is no 0."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

import msgspec

from posthouse.app import App
from posthouse.errors import did_you_mean
from posthouse.watch.samples import Sample

MINUTE = 60.0

NO_STORE = "the store of {} did not answer"
NO_BROKER = "the broker of {} did not answer: nobody knows what waits there"
UNCOUNTED = "nobody can count what waits for it in {}: the broker cannot, or the store of the producer did not answer"

Place = tuple[str, str]
"""An App and one of its consumers; its relay has no consumer."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for one consumer, or for the relay of an App. None: nobody knows; of a backlog `unknown` says why."""

    service: str
    """Whose it is; the services of an App share a relay."""
    backlog: int | None
    """Events that can be worked on now. Of a consumer: in flight, or due to be tried again. Of a relay: not sent."""
    workers: int | None
    """Processes that run it."""
    rate: float | None
    """Events a second that were applied, or sent, over the last minute; where nobody looked for longer, since then."""
    drain_seconds: float | None
    """After so long nothing of the backlog is left at this rate. None also where nothing moves, and where nobody works any more."""
    unknown: str = ""


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """By the names of consumers, and of Apps: that of its service, or of all its services."""

    consumers: Mapping[str, Work]
    relays: Mapping[str, Work]


class Scaling:
    """Makes a Scale of each look at the stores of some Apps, and remembers those of the last minute."""

    def __init__(self, apps: Sequence[App]) -> None:
        self._consumers = {
            consumer: (app.opened.name, service.name)
            for app in apps
            for service in app.services
            for consumer in service.declared.consumers
        }
        self._apps = {service.name: app.opened.name for app in apps for service in app.services}
        self._looks: deque[tuple[float, Mapping[Place, float]]] = deque()

    def look(self, samples: Sequence[Sample], at: float) -> Scale:
        """`at`: when that was, in seconds of a clock that never goes back."""
        figures = _Figures(samples, self._apps)
        if not self._looks or at > self._looks[-1][0]:
            self._looks.append((at, figures.done()))
        while len(self._looks) > 2 and self._looks[1][0] <= at - MINUTE:
            self._looks.popleft()
        return Scale(
            consumers={
                name: self._work(figures, (app, name), service)
                for name, (app, service) in sorted(self._consumers.items())
            },
            relays={app: self._work(figures, (app, ""), app) for app in sorted({*self._apps.values()})},
        )

    def answer(self, scale: Scale, query: Mapping[str, str]) -> tuple[int, object]:
        """The status and the value: all of it, or what the query asks for. 503 where a backlog is not known: an autoscaler keeps
        what it has then, and does not take the workers away."""
        relays = {**scale.relays, **{service: scale.relays[app] for service, app in self._apps.items()}}
        kinds: Mapping[str, Mapping[str, Work]] = {"consumer": scale.consumers, "relay": relays}
        if strange := sorted(set(query) - set(kinds)):
            hint = did_you_mean(strange[0], kinds)
            return 404, {"error": f"/scale takes consumer and relay, not {strange[0]!r}.{hint}"}
        if len(query) > 1:
            return 400, {"error": "/scale takes a consumer or a relay, one of them"}
        for kind, name in query.items():
            if (work := kinds[kind].get(name)) is None:
                named = [
                    known for known in kinds[kind] if known.endswith(f".{name}")
                ]  # declared so, behind its service
                return 404, {"error": f"there is no {kind} {name!r} here.{did_you_mean(name, named or kinds[kind])}"}
            return (200 if work.backlog is not None else 503), work
        known = all(work.backlog is not None for of in kinds.values() for work in of.values())
        return (200 if known else 503), scale

    def _work(self, figures: _Figures, place: Place, service: str) -> Work:
        if unknown := figures.unknown(place):
            return Work(service=service, backlog=None, workers=None, rate=None, drain_seconds=None, unknown=unknown)
        backlog, rate, workers = figures.backlog(place), self._rate(place), figures.workers(place)
        if backlog == 0:
            drain: float | None = 0.0
        else:
            drain = round(backlog / rate, 1) if rate and workers else None
        return Work(service=service, backlog=backlog, workers=workers, rate=rate, drain_seconds=drain)

    def _rate(self, place: Place) -> float | None:
        seen = [(at, done[place]) for at, done in self._looks if place in done]
        if len(seen) < 2:
            return None
        (began, before), (ended, after) = seen[0], seen[-1]
        return round(max(0.0, after - before) / (ended - began), 3)


class _Figures:
    """Samples by their names, of all topics and services of an App together."""

    def __init__(self, samples: Sequence[Sample], apps: Mapping[str, str]) -> None:
        self._of: dict[str, dict[Place, float]] = defaultdict(lambda: defaultdict(float))
        self._topics: dict[str, dict[Place, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._relays: dict[str, int] = defaultdict(int)
        for sample in samples:
            if isinstance(sample.value, int | float):
                self._take(sample.metric, sample.labels, sample.value, apps)

    def _take(self, metric: str, labels: Mapping[str, str], value: float, apps: Mapping[str, str]) -> None:
        service = labels.get("service", "")
        app, consumer = apps.get(service, service), labels.get("consumer", "")
        if metric != "workers":
            self._of[metric][app, consumer] += value
            self._topics[metric][app, consumer].add(labels.get("topic", ""))
        elif labels["part"] == "relay":  # one that all its services share
            self._relays[app] = max(self._relays[app], round(value))

    def unknown(self, place: Place) -> str:
        """Why nobody knows what waits there."""
        app, consumer = place
        if not self._of["store_up"].get((app, "")):
            return NO_STORE.format(app)
        if not consumer:
            return ""
        if not self._of["broker_up"].get((app, "")):
            return NO_BROKER.format(app)
        uncounted = self._topics["consumer_unknown"][place] - self._topics["consumer_in_flight"][place]
        if uncounted or not self._topics["consumer_in_flight"][place]:
            return UNCOUNTED.format(", ".join(sorted(uncounted)) or "its topics")
        return ""

    def backlog(self, place: Place) -> int:
        names = ("consumer_in_flight", "held_due") if place[1] else ("outbox_unsent",)
        return round(sum(self._of[name].get(place, 0.0) for name in names))

    def workers(self, place: Place) -> int:
        return round(self._of["consumer_workers"].get(place, 0.0)) if place[1] else self._relays[place[0]]

    def done(self) -> Mapping[Place, float]:
        """What was applied, and sent, ever."""
        return {**self._of["consumer_applied_total"], **self._of["outbox_sent_total"]}
