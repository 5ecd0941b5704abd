"""Model: what the screen shows, whatever its size. A pure function of what was seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

import msgspec

from posthouse.cli.losses import gaps
from posthouse.cli.output import counted, plain, span
from posthouse.cli.screen.history import History, Look, Series
from posthouse.cli.sentences import Sentence, sentences
from posthouse.heartbeat import SILENT
from posthouse.processes import ProjectionStatus
from posthouse.seam.timing import ServiceTiming
from posthouse.store import Worker
from posthouse.watch.liveness import is_running
from posthouse.watch.status import FOR_GOOD, Line

LONG_HELD = 60.0
"""Seconds from which on it is said for how long something is held."""


class Need(IntEnum):
    """Whether somebody should look: not at all, soon, or now."""

    NONE = 0
    SOON = 1
    NOW = 2


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer, or one service. `count` is what is on its way (in flight, unsent), `age` the seconds that the oldest of it waits,
    None where nobody can tell; `detail` what lies still, `word` the verdict."""

    name: str
    series: Series
    count: int
    age: float | None
    detail: str
    word: str
    need: Need


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who runs, or fell silent; ages are seconds."""

    name: str
    parts: str
    services: str
    version: str
    since: float
    age: float
    need: Need


class Screen(msgspec.Struct, frozen=True, kw_only=True):
    """What a person sees. `old`: so many seconds ago the figures were read, and the last look failed; None when it did not."""

    headline: str
    need: Need
    old: float | None
    sentences: Sequence[Sentence] = ()
    consumers: Sequence[Row] = ()
    services: Sequence[Row] = ()
    processes: Sequence[Process] = ()
    timing: Sequence[ServiceTiming] = ()


def screen_of(history: History, targets: Sequence[str], now: float) -> Screen:
    """The screen at a moment of the clock that never goes back. In each table, who needs somebody comes first."""
    look = history.last
    if look is None:
        why = f"Cannot tell: {history.missed}" if history.missed else "Looking for the first time …"
        return Screen(headline=why, need=Need.NOW if history.missed else Need.NONE, old=None)
    headline, need = _headline(history, look, now)
    return Screen(
        headline=headline,
        need=need,
        old=now - look.ended if history.missed else None,
        sentences=sorted(_sentences(history, look, targets), key=lambda one: one.style != "bold red"),
        consumers=sorted(_consumers(history, look), key=lambda row: (-row.need, row.name)),
        services=sorted(_services(history, look), key=lambda row: -row.need),
        processes=sorted(_processes(look), key=lambda one: -one.need),
        timing=look.timing,
    )


def _headline(history: History, look: Look, now: float) -> tuple[str, Need]:
    figures = look.figures
    if history.missed:
        return f"Cannot tell for {now - history.missed_at:.0f} s: {history.missed}", Need.NOW
    if missing := history.missing:
        return f"Does not add up: {_and([_difference(name, n) for (name, _), n in missing.items()])}", Need.NOW
    troubles = _troubles(look)
    but = f", but {_and(troubles)}" if troubles else "."
    need = Need.NOW if troubles else Need.NONE
    if figures.away:
        return f"Cannot tell what is at the broker: {figures.away}", Need.NOW
    if history.verdict == "adds up":
        return f"It adds up: all that was committed is applied, in flight or held{but}", need
    unknown = list(dict.fromkeys(line.consumer for line in figures.lines if _is_unknown(line, history)))
    if unknown:
        return f"Nobody can tell whether it adds up for {_and(unknown)}{but}", max(need, Need.SOON)
    way = max((line.in_flight for line in figures.lines), default=0)
    return f"Events move: {way:,} in flight, none known to be missing{but}", need


def _troubles(look: Look) -> list[str]:
    figures = look.figures
    found = [f"{counted(figures.dead, 'event')} dead or set aside"] if figures.dead else []
    found += [f"{counted(figures.not_undone, 'saga')} not undone"] if figures.not_undone else []
    found += [f"nobody runs {one.services}" for one in look.attended if one.waiting and not one.running]
    found += [
        f"nobody runs the {', '.join(one.waiting)} of {one.services}"
        for one in look.attended
        if one.waiting and one.running
    ]
    return found


def _difference(consumer: str, number: int) -> str:
    return f"{counted(abs(number), 'event')} {'missing' if number > 0 else 'too many'} in {consumer}"


def _and(words: Sequence[str], most: int = 2) -> str:
    shown = [*words[:most], f"{len(words) - most:,} more"] if len(words) > most else list(words)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _is_unknown(line: Line, history: History) -> bool:
    """Nobody can tell, and that does not end when what moves has arrived."""
    lasting = line.foreign or line.removed or line.dropped or line in history.settled
    return line.verdict == "cannot tell" and lasting


def _sentences(history: History, look: Look, targets: Sequence[str]) -> Iterator[Sentence]:
    for (consumer, topic), number in history.missing.items():
        yield Sentence(
            f"{_difference(consumer, number)}, topic {topic}: `posthouse status TARGET` says what to do", "bold red"
        )
    yield from sentences(
        look.figures, look.attended, explained=[line for line in look.figures.lines if _is_unknown(line, history)]
    )
    for text in gaps(look.figures.lines, targets):
        yield Sentence(text)
    for one in look.projections:
        if not one.well:
            yield Sentence(_behind(one))


def _behind(one: ProjectionStatus) -> str:
    live = one.live
    assert live is not None, "one that nobody reads is well"
    if live.generation.version != one.version:
        what = f"is of version {live.generation.version}, and this is {one.version}"
    elif live.freshness.partial:
        what = "lacks a part of what happened"
    else:
        what = f"is {live.freshness.lag:.0f} s behind, its budget is {live.freshness.budget:g} s"
    return f"the read model {one.consumer} {what}: see `posthouse projection status TARGET`"


def _consumers(history: History, look: Look) -> Iterator[Row]:
    idle = {name for one in look.attended if "consumers" in one.waiting for name in one.idle}
    for name in dict.fromkeys(line.consumer for line in look.figures.lines):
        lines = [line for line in look.figures.lines if line.consumer == name]
        held: dict[str, int] = {}
        for line in lines:
            for state, number in line.held.items():
                held[state] = held.get(state, 0) + number
            if line.strange:
                held["strange"] = held.get("strange", 0) + line.strange
        ages = _held_for(look, name)
        word, need = _word(lines, history)
        if need is Need.NONE and name in idle:
            word, need = "nobody", Need.NOW
        if any(line.held.get(state) for line in lines for state in FOR_GOOD):
            need = Need.NOW
        yield Row(
            name=name,
            series=history.applied.get(name, Series()),
            count=sum(line.in_flight for line in lines),
            age=_waited(look, name, lines),
            detail=", ".join(
                f"{number:,} {state}{ages.get(state, '')}" for state, number in sorted(held.items(), key=_gravity)
            ),
            word=word,
            need=max(need, Need.SOON) if any(line.overdue for line in lines) else need,
        )


def _waited(look: Look, consumer: str, lines: Sequence[Line]) -> float | None:
    """Seconds that the oldest waits which is on its way to it, at the broker or in an outbox; None where a broker cannot tell."""
    moving = [line.topic for line in lines if line.moving]
    found = [look.figures.oldest.get(consumer, {}).get(topic) for topic in moving]
    unsent = [
        one.oldest_unsent
        for one in look.gauges.values()
        for topic in moving
        if one.counts.unsent.get(topic, 0) > one.counts.refused.get(topic, 0)
    ]
    return None if None in found else max([*(age for age in found if age is not None), *unsent], default=None)


def _held_for(look: Look, consumer: str) -> dict[str, str]:
    """How long the first of each state has been held, where that is long."""
    ages = [
        (state, age)
        for one in look.gauges.values()
        for (name, state), age in one.held_oldest.items()
        if name == consumer
    ]
    return {state: f" ({span(age)})" for state, age in ages if age >= LONG_HELD}


def _gravity(held: tuple[str, int]) -> tuple[bool, str]:
    """What goes nowhere by itself comes first: a narrow terminal cuts the rest."""
    return held[0] not in FOR_GOOD, held[0]


def _word(lines: Sequence[Line], history: History) -> tuple[str, Need]:
    certain = [number for line in lines if (number := history.missing.get((line.consumer, line.topic)))]
    if missing := sum(number for number in certain if number > 0):
        return f"{missing:,} missing", Need.NOW
    if certain:
        return f"{-sum(certain):,} too many", Need.NOW
    if any(_is_unknown(line, history) for line in lines):
        return "cannot tell", Need.SOON
    return ("adds up ✓" if all(line.verdict == "adds up" for line in lines) else "moves"), Need.NONE


def _services(history: History, look: Look) -> Iterator[Row]:
    figures = look.figures
    nobody = {one.services for one in look.attended if "relay" in one.waiting}
    for name, unsent in figures.unsent.items():
        stuck, timers = figures.stuck.get(name, 0), figures.timers.get(name, 0)
        said = [f"{stuck:,} stuck"] if stuck else []
        said += [counted(timers, "timer")] if timers else []
        yield Row(
            name=name,
            series=history.committed.get(name, Series()),
            count=unsent,
            age=look.gauges[name].oldest_unsent if unsent and name in look.gauges else None,
            detail=", ".join(said),
            word="nobody" if name in nobody else look.wake.get(name, ""),
            need=Need.NOW if name in nobody else Need.SOON if stuck else Need.NONE,
        )


def _processes(look: Look) -> Iterator[Process]:
    """Who runs, and the last of those that fell silent."""
    workers = [worker for one in look.attended for worker in one.workers if not worker.stopped]
    silent = sorted((worker for worker in workers if not is_running(worker)), key=lambda worker: abs(worker.age))
    for worker in [*silent[:1], *(worker for worker in workers if is_running(worker))]:
        yield _process(worker)


def _process(worker: Worker) -> Process:
    return Process(
        name=plain(worker.name),
        parts=plain(", ".join(worker.parts)),
        services=plain(", ".join(worker.services)),
        version=plain(" ".join(filter(None, (worker.version, worker.commit)))),
        since=worker.since,
        age=worker.age,
        need=Need.NONE if abs(worker.age) <= SILENT else Need.SOON,
    )
