"""Troubles: what is stuck, what that means, and what to press. Each is read from the figures; the words are those of docs/held.md
and of the runbooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal
from urllib.parse import urlencode

import msgspec

from posthouse.console.sampling import Look
from posthouse.outage import span
from posthouse.seam.timing import OTHERS
from posthouse.store.sagas import FOR_AN_OPERATOR
from posthouse.watch.alerts import Thresholds
from posthouse.watch.samples import Sample

Gravity = Literal["now", "soon", "wait"]
"""now: nothing but a person ends it. soon: it should not last. wait: it goes on by itself, or when something else was dealt with."""

OVER = Thresholds()
"""From when on something takes too long: what the alerts say."""


LONG = 10.0
"""Seconds from which on it is said for how long."""


class Press(msgspec.Struct, frozen=True):
    """What to press: a page of the console, by its path."""

    label: str
    to: str


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is stuck. `count` and `seconds` are None where they say nothing; `page` is the runbook, without its ending."""

    gravity: Gravity
    kind: str
    service: str
    of: str
    """The consumer, saga, schedule, read model or part that it is about."""
    what: str
    means: str
    do: str
    press: Sequence[Press]
    page: str
    count: int | None = None
    seconds: float | None = None
    word: str = ""
    """What it waits for, in a few words; empty: what its gravity says."""


class Held(msgspec.Struct, frozen=True):
    """What docs/held.md says of a state of held events."""

    means: str
    do: str
    gravity: Gravity
    page: str
    word: str = ""


HELD: Mapping[str, Held] = {
    "dead": Held(
        "its attempts are spent, or no attempt can help; its key waits",
        "mend the cause and retry; or edit; or skip",
        "now",
        "dead-letters",
    ),
    "quarantined": Held(
        "unreadable, forked, or set aside; its key goes on", "look; retry when it is safe", "now", "refused"
    ),
    "gap": Held(
        "an earlier number never came; its key waits",
        "wait; release gives the missing number up",
        "wait",
        "waiting",
        "Waits for a number",
    ),
    "blocked": Held(
        "an earlier event of its key is held; its key waits",
        "deal with the first one",
        "wait",
        "waiting",
        "Waits for an earlier one",
    ),
    "retrying": Held(
        "failed, or was in flight during a crash; runs again at its time; its key waits",
        "nothing, or retry to run it now",
        "wait",
        "consumer-errors",
        "Is tried again",
    ),
}
BESIDE_DEAD: Mapping[str, Held] = {
    "blocked": Held(
        "an earlier event of its key is held, and some of this consumer are dead: those never run by themselves",
        "deal with the dead ones; these follow by themselves",
        "wait",
        "dead-letters",
        "Waits for an earlier one",
    ),
    "retrying": Held(
        "failed and runs again at its time; what fails as those did that are dead does not heal by itself",
        "look whether it is the same failure: then mend the cause",
        "wait",
        "consumer-errors",
        "Is tried again",
    ),
}
"""Where others of the consumer are dead."""
LATE = {"gap": OVER.gap_seconds, "blocked": OVER.blocked_seconds, "retrying": OVER.retrying_seconds}

SAGAS: Mapping[str, tuple[str, str]] = {
    "awaited": (
        "were not started, and events wait for them",
        "find the event that starts them: is it held, or was it never said?",
    ),
    "partial": ("rest with a part undone, until somebody does it", "do that part, and complete or retry them"),
    "compensation_failed": (
        "could not undo what they did: it stands until a person decides",
        "mend the cause and retry, or complete what was undone by hand",
    ),
}


def troubles(look: Look) -> list[Trouble]:
    """All of them, the gravest first, then those that concern most."""
    found = [
        *_away(look),
        *_missing(look),
        *_nobody(look),
        *_held(look),
        *_outbox(look),
        *_late(look),
        *_sagas(look),
        *_in_time(look),
    ]
    order = {"now": 0, "soon": 1, "wait": 2}
    return sorted(found, key=lambda one: (order[one.gravity], -(one.count or 0), one.service, one.of))


def _is(sample: Sample, least: float = 0.0) -> float | None:
    """Its value, where that is more than so much."""
    return sample.value if isinstance(sample.value, float) and sample.value > least else None


def _to(path: str, **query: str) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _some(number: float, one: str) -> str:
    return f"{int(number):,} {one}{'' if number == 1 else 's'}"


def _away(look: Look) -> Iterator[Trouble]:
    for metric, part, page in (("store_up", "store", "store"), ("broker_up", "broker", "broker")):
        for sample in look.found(metric):
            if sample.value == 0:
                service = sample.labels["service"]
                since = look.silent.get((metric, service))
                if since is not None and look.at - since < LONG:
                    yield _no_answer(part, service, page)
                    continue
                yield Trouble(
                    gravity="now",
                    kind=f"{part} away",
                    service=service,
                    of=part,
                    what=f"The {part} of {service} cannot be asked.",
                    means="Nobody can tell what is in it. What is committed elsewhere stays there until it is back; nothing is lost by it.",
                    do="See Health for what it says; bring it back, or correct its URL.",
                    press=[Press("Health", "/health")],
                    page=page,
                )


def _no_answer(part: str, service: str, page: str) -> Trouble:
    """A busy machine answers late now and then: that wakes nobody."""
    return Trouble(
        gravity="soon",
        kind=f"{part} away",
        service=service,
        of=part,
        what=f"The {part} of {service} has not answered in time.",
        means="It is slow, or away. Until it answers nobody can tell what is in it; nothing is lost by it.",
        do="Nothing yet: it is asked again every few seconds. If it stays away, this needs a person.",
        press=[Press("Health", "/health")],
        page=page,
        word="Asked again",
    )


def _missing(look: Look) -> Iterator[Trouble]:
    for sample in look.found("consumer_unaccounted"):
        number = sample.value
        if isinstance(number, float) and number:
            labels, few = sample.labels, number > 0
            yield Trouble(
                gravity="now",
                kind="missing" if few else "too many",
                service=labels["service"],
                of=labels["consumer"],
                what=f"{_some(abs(number), 'event')} of {labels['topic']} {'are missing' if few else 'were counted too often'} in {labels['consumer']}.",
                means="What was committed is neither applied, nor in flight, nor held, nor given up. Nothing mends this by itself.",
                do="Send what the producer's store still has again, to those who lack it; or accept the loss."
                if few
                else "Look for a second producer of the topic, or for a store that was brought back from a backup.",
                press=[
                    Press("Consumer", _to("/consumers", consumer=labels["consumer"])),
                    Press("Outbox", _to("/outbox", topic=labels["topic"])),
                ],
                page="equation",
                count=int(abs(number)),
            )


def _nobody(look: Look) -> Iterator[Trouble]:
    """One for each part: where a machine is gone, many services are without it."""
    parts: dict[str, list[str]] = {}
    for sample in look.found("unattended"):
        if _is(sample):
            parts.setdefault(sample.labels["part"], []).append(sample.labels["service"])
    for part, services in parts.items():
        names = ", ".join(sorted(services))
        yield Trouble(
            gravity="now",
            kind="nobody runs",
            service=names,
            of=part,
            what=f"Nobody runs the {part} of {names}, and work waits.",
            means="Nothing is lost: what waits is kept, and goes on as soon as a process runs.",
            do=f"Start a process that runs the {part}: `posthouse run TARGET`.",
            press=[Press("Processes", _to("/processes", **({"service": names} if len(services) == 1 else {})))],
            page="nobody-runs",
            count=len(services),
        )


def _held(look: Look) -> Iterator[Trouble]:
    counts: dict[tuple[str, str, str], float] = {}
    for sample in look.found("held"):
        if number := _is(sample):
            place = sample.labels["service"], sample.labels["consumer"], sample.labels["state"]
            counts[place] = counts.get(place, 0) + number
    for (service, consumer, state), number in counts.items():
        known = HELD.get(state)
        if known is None:
            continue
        age = look.most("held_oldest_seconds", consumer=consumer, state=state)
        late = age is not None and age > LATE.get(state, float("inf"))
        named = "a consumer that is no more" if consumer == OTHERS else consumer
        if (service, consumer, "dead") in counts:
            known = BESIDE_DEAD.get(state, known)
        query = {"service": service, "state": state} | ({} if consumer == OTHERS else {"consumer": consumer})
        yield Trouble(
            gravity="soon" if late else known.gravity,
            kind=state,
            service=service,
            of=consumer,
            what=f"{_some(number, 'event')} {'is' if number == 1 else 'are'} {state} in {named}{_since(age)}.",
            means=known.means.capitalize() + ".",
            do=known.do.capitalize() + ".",
            press=[Press("Held events", _to("/held", **query))],
            page=known.page,
            count=int(number),
            seconds=age,
            word="" if late else known.word,
        )


def _since(age: float | None) -> str:
    return f", the first for {span(age)}" if age and age >= LONG else ""


def _begun(age: float | None) -> str:
    """Of sagas: the figure counts from the beginning of the first, whenever it came to stand where it stands."""
    return f", the first of them begun {span(age)} ago" if age and age >= LONG else ""


def _outbox(look: Look) -> Iterator[Trouble]:
    for sample in look.found("outbox_stuck"):
        if number := _is(sample):
            service = sample.labels["service"]
            refused = look.value("outbox_refused", service=service) or 0
            yield Trouble(
                gravity="now" if refused else "soon",
                kind="refused",
                service=service,
                of="outbox",
                what=f"The broker refuses {_some(number, 'event')} of {service}{f', {int(refused):,} for good' if refused else ''}.",
                means="Their keys wait, others flow. After 50 tries over at least 6 hours they are set aside until somebody decides.",
                do="See what the broker says, mend it, and retry them.",
                press=[Press("Outbox", _to("/outbox", service=service))],
                page="relay",
                count=int(number),
            )
    for sample in look.found("outbox_oldest_unsent_seconds"):
        if age := _is(sample, OVER.outbox_lag_seconds):
            service = sample.labels["service"]
            yield Trouble(
                gravity="soon",
                kind="unsent",
                service=service,
                of="relay",
                what=f"Events of {service} wait to be sent, the first for {span(age)}.",
                means="They are committed and safe; consumers do not have them yet.",
                do="See whether a relay runs, whether the broker takes what it sends, and whether one shard is far behind.",
                press=[
                    Press("Relays", _to("/relays", service=service)),
                    Press("Outbox", _to("/outbox", service=service)),
                ],
                page="relay",
                seconds=age,
            )


def _late(look: Look) -> Iterator[Trouble]:
    for sample in look.found("consumer_lag_seconds"):
        if age := _is(sample, OVER.consumer_lag_seconds):
            labels = sample.labels
            waiting = look.value("consumer_in_flight", consumer=labels["consumer"], topic=labels["topic"])
            yield Trouble(
                gravity="soon",
                kind="behind",
                service=labels["service"],
                of=labels["consumer"],
                what=f"{labels['consumer']} is {span(age)} behind in {labels['topic']}.",
                means="It is slower than what comes, or nobody runs it. Nothing is lost.",
                do="See who runs it and what its handlers wait for; run more members.",
                press=[Press("Consumer", _to("/consumers", consumer=labels["consumer"]))],
                page="consumer-lag",
                count=None if waiting is None else int(waiting),
                seconds=age,
            )


def _sagas(look: Look) -> Iterator[Trouble]:
    for sample in look.found("saga_instances"):
        state = sample.labels["state"]
        if (number := _is(sample)) and state in SAGAS:
            means, do = SAGAS[state]
            service, saga = sample.labels["service"], sample.labels["saga"]
            age = look.most("saga_oldest_seconds", saga=saga, state=state)
            yield Trouble(
                gravity="now" if state in FOR_AN_OPERATOR else "soon",
                kind=state.replace("_", " "),
                service=service,
                of=saga,
                what=f"{_some(number, 'saga')} {saga}: {state.replace('_', ' ')}{_begun(age)}.",
                means=f"They {means}.",
                do=f"{do[:1].upper()}{do[1:]}.",
                press=[Press("Sagas", _to("/sagas", service=service, saga=saga, status=state))],
                page="sagas",
                count=int(number),
                seconds=age,
            )


def _in_time(look: Look) -> Iterator[Trouble]:
    for sample in look.found("timers_overdue_seconds"):
        if age := _is(sample, OVER.timers_seconds):
            service = sample.labels["service"]
            yield Trouble(
                gravity="soon",
                kind="overdue",
                service=service,
                of="timers",
                what=f"A timer of {service} is overdue for {span(age)}.",
                means="Deadlines of sagas and promised events come late. None is lost.",
                do="See whether a process runs the timers.",
                press=[Press("Timers", _to("/timers", service=service))],
                page="time",
                seconds=age,
            )
    for sample in look.found("schedule_overdue_seconds"):
        if age := _is(sample, OVER.schedule_seconds):
            labels = sample.labels
            yield Trouble(
                gravity="soon",
                kind="overdue",
                service=labels["service"],
                of=labels["schedule"],
                what=f"The schedule {labels['schedule']} of {labels['service']} is overdue for {span(age)}.",
                means="Its moment has come, and nobody has begun the run.",
                do="See whether a process runs the timers and has this schedule.",
                press=[Press("Schedules", _to("/schedules", service=labels["service"]))],
                page="time",
                seconds=age,
            )
    for sample in look.found("projection_freshness_seconds"):
        labels = sample.labels
        budget = look.most("projection_budget_seconds", **labels) or OVER.projection_seconds
        if age := _is(sample, budget):
            yield Trouble(
                gravity="soon",
                kind="stale",
                service=labels["service"],
                of=labels["projection"],
                what=f"The read model {labels['projection']} of {labels['service']} is {span(age)} behind; its budget is {span(budget)}.",
                means="Who reads it sees the past.",
                do="See what its consumer waits for; rebuild it if it lacks something.",
                press=[Press("Projections", _to("/projections", service=labels["service"]))],
                page="read-models",
                seconds=age,
            )
