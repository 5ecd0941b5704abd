"""Home: does it add up, what is stuck, what does it mean, what to press."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from posthouse.console.asking import Ask, Refusal
from posthouse.console.sampling import Look, Sampler, thinned
from posthouse.console.troubles import Trouble, troubles
from posthouse.watch.samples import Sample

Verdict = Literal["adds up", "does not add up", "cannot tell"]

MOST_TROUBLES = 100
"""More than that nobody reads; the number of all is told."""

SCOPED = "This page shows all tenants together, and you may see only some."
ASK_FOR = "Held, Event, Key, Sagas and Timers show what is yours."


class Equation(msgspec.Struct, frozen=True, kw_only=True):
    """committed = applied + in flight + held + given up, of one consumer in one topic. None: nobody knows. `missing` is what is certain:
    above 0 missing, below 0 too many."""

    topic: str
    verdict: Verdict
    missing: int
    committed: int | None
    applied: int
    in_flight: int | None
    held: int
    given_up: int
    lag: float | None


class Consumer(msgspec.Struct, frozen=True, kw_only=True):
    service: str
    name: str
    verdict: Verdict
    topics: Sequence[Equation]
    held: Mapping[str, int]
    workers: int | None
    rate: float | None
    lag: float | None
    rates: Sequence[float | None]
    lags: Sequence[float | None]


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One App: what its services write to one store. `store` and `broker`: whether each answers; None where nobody could ask."""

    name: str
    store: bool | None
    broker: bool | None
    rate: float | None
    unsent: int | None
    oldest: float | None
    stuck: int
    timers: int | None
    rates: Sequence[float | None]
    ages: Sequence[float | None]


class Home(msgspec.Struct, frozen=True, kw_only=True):
    verdict: Verdict
    sentence: str
    troubles: Sequence[Trouble]
    more: int
    """So many troubles are not listed."""
    consumers: Sequence[Consumer]
    services: Sequence[Service]
    times: Sequence[float]
    """Seconds since 1970 at which `charts` were read."""
    charts: Mapping[str, Sequence[float | None]]


def everyone(ask: Ask) -> None:
    """Refuse somebody who may see some tenants only."""
    if ask.who.tenants is not None:
        raise Refusal(403, SCOPED, ASK_FOR)


async def home(ask: Ask) -> Home:
    """All of it, from the last look."""
    everyone(ask)
    sampler = ask.estate.part(Sampler)
    look = await sampler.look()
    await ask.each(_nothing)
    consumers = consumers_of(look, sampler)
    found = troubles(look)
    verdict = worst([one.verdict for one in consumers])
    if verdict == "adds up" and any(one.value == 0 for one in look.found("store_up")):
        verdict = "cannot tell"
    return Home(
        verdict=verdict,
        sentence=sentence(verdict, consumers, found),
        troubles=found[:MOST_TROUBLES],
        more=max(0, len(found) - MOST_TROUBLES),
        consumers=sorted(consumers, key=lambda one: (_ORDER[one.verdict], -sum(one.held.values()), one.name)),
        services=_services(look, sampler),
        times=[round(at, 3) for at in sampler.times],
        charts={
            name: _rounded(sampler.series(name, "all")) for name in ("committed", "applied", "in_flight", "lag", "held")
        },
    )


async def _nothing(_: object) -> None:
    """To be asked is enough: whoever cannot be is a problem."""


_ORDER = {"does not add up": 0, "cannot tell": 1, "adds up": 2}


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on all."""
    return min(verdicts, key=_ORDER.__getitem__, default="adds up")


def sentence(verdict: Verdict, consumers: Sequence[Consumer], found: Sequence[Trouble]) -> str:
    """The answer to the first question, in words."""
    now = sum(one.gravity == "now" for one in found)
    but = f", but {now:,} {'thing needs' if now == 1 else 'things need'} a person" if now else ""
    if verdict == "does not add up":
        names = [one.name for one in consumers if one.verdict == verdict]
        return f"It does not add up for {_names(names)}: events are missing, or too many."
    if verdict == "cannot tell":
        names = [one.name for one in consumers if one.verdict == verdict]
        whom = f" for {_names(names)}" if names else ": not every store can be asked"
        return f"Nobody can tell whether it adds up{whom}{but}."
    if not consumers:
        return f"Nobody reads anything here, so there is nothing to add up{but}."
    return f"It adds up: everything that was committed is applied, in flight, held or given up by a person{but}."


def _names(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def consumers_of(look: Look, sampler: Sampler) -> list[Consumer]:
    """Every consumer of which something is known."""
    lines: dict[tuple[str, str], list[Sample]] = {}
    for sample in look.found("consumer_applied_total"):
        lines.setdefault((sample.labels["service"], sample.labels["consumer"]), []).append(sample)
    return [_consumer(look, sampler, service, name, those) for (service, name), those in lines.items()]


def _consumer(look: Look, sampler: Sampler, service: str, name: str, lines: Sequence[Sample]) -> Consumer:
    equations = [_equation(look, service, name, sample) for sample in lines]
    held: dict[str, int] = {}
    for sample in look.found("held", service=service, consumer=name):
        if isinstance(sample.value, float) and sample.value:
            held[sample.labels["state"]] = held.get(sample.labels["state"], 0) + int(sample.value)
    of = f"consumer:{name}"
    return Consumer(
        service=service,
        name=name,
        verdict=worst([one.verdict for one in equations]),
        topics=sorted(equations, key=lambda one: (_ORDER[one.verdict], one.topic)),
        held=held,
        workers=_int(look.value("consumer_workers", service=service, consumer=name)),
        rate=sampler.rate("applied", of),
        lag=look.most("consumer_lag_seconds", service=service, consumer=name),
        rates=thinned(sampler.series("applied", of)),
        lags=thinned(sampler.series("lag", of)),
    )


def _equation(look: Look, service: str, consumer: str, applied: Sample) -> Equation:
    topic = applied.labels["topic"]
    labels = {"service": service, "consumer": consumer, "topic": topic}
    missing = int(look.value("consumer_unaccounted", **labels) or 0)
    known = look.value("consumer_unknown", **labels)
    verdict: Verdict = "does not add up" if missing else "adds up" if known == 0 else "cannot tell"
    return Equation(
        topic=topic,
        verdict=verdict,
        missing=missing,
        committed=_int(look.value("outbox_committed_total", topic=topic)),
        applied=int(look.value("consumer_applied_total", **labels) or 0),
        in_flight=_int(look.value("consumer_in_flight", **labels)),
        held=int(look.value("held", **labels) or 0),
        given_up=int(look.value("consumer_given_up", **labels) or 0),
        lag=look.most("consumer_lag_seconds", **labels),
    )


def _services(look: Look, sampler: Sampler) -> list[Service]:
    found = []
    for sample in look.found("store_up"):
        name = sample.labels["service"]
        parts = [name, *(part for part in name.split(", ") if part != name)]
        broker = look.value("broker_up", service=name)
        unsent = [value for part in parts if (value := look.value("outbox_unsent", service=part)) is not None]
        rates = [value for part in parts if (value := sampler.rate("committed", f"service:{part}")) is not None]
        series = [sampler.series("committed", f"service:{part}") for part in parts]
        found.append(
            Service(
                name=name,
                store=sample.value == 1,
                broker=None if broker is None else broker == 1,
                rate=sum(rates) if rates else None,
                unsent=int(sum(unsent)) if unsent else None,
                oldest=look.most("outbox_oldest_unsent_seconds", service=name),
                stuck=int(look.value("outbox_stuck", service=name) or 0),
                timers=_int(look.value("timers", service=name)),
                rates=thinned([_sum(those) for those in zip(*series, strict=True)]),
                ages=thinned(sampler.series("oldest_unsent", f"service:{name}")),
            )
        )
    return sorted(found, key=lambda one: (one.store is True, one.broker is not False, -one.stuck, one.name))


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _int(value: float | None) -> int | None:
    return None if value is None else int(value)


def _rounded(values: Sequence[float | None]) -> Sequence[float | None]:
    return [None if value is None else round(value, 3) for value in values]


PAGES = {"/home": home}
