"""Keys: the whole history of one thing: its numbers in order, where each consumer stands, what is held, what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing

import msgspec

from posthouse.app import App
from posthouse.broker import Broker, Frame
from posthouse.console.access.who import Who
from posthouse.console.asking import Ask, Page, Refusal
from posthouse.console.pages.held import line_facts
from posthouse.errors import BrokerError, DecodeError
from posthouse.events import Event, decode_any
from posthouse.history.log import refusal, stored
from posthouse.receiving.readers import is_ordered, topics_of
from posthouse.redaction import words_of
from posthouse.seam.frames import frame_of
from posthouse.store import BLOCKING, HeldFilter
from posthouse.store.browsing import Head, HeldLine, OutboxFilter

NUMBERS = 200
"""How many of its last numbers are shown."""
LOG_WITHIN = 8.0
"""Seconds for which the log of a broker is read."""
LONGEST = 2_000


class Number(msgspec.Struct, kw_only=True):
    """One number of a key: an event as far as it is known, where it was found, and how each consumer stands to it."""

    sequence: int
    lineage: int
    event_id: str
    type: str = ""
    at: str | None = None
    correlation: str | None = None
    places: list[str] = msgspec.field(default_factory=list)


class _Known(msgspec.Struct):
    """What one store knows of a key."""

    heads: Sequence[Head]
    held: Sequence[HeldLine]
    numbers: list[Number]
    readers: Mapping[str, bool]
    """Consumers, and whether they keep the order of keys."""
    notes: list[str]


async def key(ask: Ask) -> object:
    """`?topic=&tenant=&key=`; `log=1` reads the brokers' logs too, which takes longer."""
    topic, tenant, name = (_given(ask, part) for part in ("topic", "tenant", "key"))
    if not ask.who.sees(tenant):
        raise Refusal(403, f"You may not see what belongs to {tenant}.", "Ask whoever gives rights.")
    log = ask.query.get("log") == "1"

    async def known(app: App) -> _Known:
        browsing = app.store.browsing
        heads = [head for head in await browsing.heads(tenant, name) if head.topic == topic]
        held = await browsing.held(HeldFilter(topic=topic, tenant=tenant, key=name), limit=NUMBERS, newest=False)
        found = await browsing.outbox(OutboxFilter(key=name, topic=topic, tenants=[tenant]), limit=NUMBERS)
        notes = (
            [f"{app.opened.name} has older rows in its outbox that were not looked at"]
            if found.after is not None
            else []
        )
        numbers = [
            _number(row.sequence, row.lineage, _decoded(frame_of(row)), row.event_id, "outbox")
            for row in found.rows
            if row.sequence is not None
        ]
        return _Known(heads, held, numbers, _readers(app, topic), notes)

    answers = await ask.each(known)
    numbers, notes = (
        [one for found in answers.values() for one in found.numbers],
        [note for found in answers.values() for note in found.notes],
    )
    if log:
        read, told = await _from_logs([ask.estate.app(name) for name in answers], (topic, tenant, name))
        numbers, notes = numbers + read, notes + told
    numbers += [
        Number(
            sequence=line.sequence,
            lineage=line.lineage,
            event_id=line.event_id,
            type=line.type,
            places=["held"],
            correlation=line.correlation,
        )
        for found in answers.values()
        for line in found.held
        if line.sequence is not None
    ]
    return _facts((topic, tenant, name), answers, _merged(numbers), notes, ask.who)


def _given(ask: Ask, part: str) -> str:
    found = ask.query.get(part, "")
    if not found:
        raise Refusal(400, f"A key is named by topic, tenant and key: there is no {part}.", "Search for it in Events.")
    if len(found) > LONGEST:
        raise Refusal(400, f"No {part} is longer than {LONGEST:,} characters.")
    return found


def _readers(app: App, topic: str) -> dict[str, bool]:
    """The consumers here that read a topic, and whether in the order of its keys."""
    return {
        consumer: is_ordered(handlers, topic)
        for service in app.services
        for consumer, handlers in app.opened.groups(service).items()
        if topic in topics_of(handlers)
    }


def _decoded(frame: Frame) -> Event[bytes] | None:
    try:
        return decode_any(frame.headers, frame.body)
    except DecodeError:
        return None


def _number(sequence: int, lineage: int, event: Event[bytes] | None, event_id: str, place: str) -> Number:
    if event is None:
        return Number(sequence=sequence, lineage=lineage, event_id=event_id, places=[place])
    return Number(
        sequence=sequence,
        lineage=lineage,
        event_id=event.id,
        type=event.type,
        at=event.time or None,
        correlation=event.correlation,
        places=[place],
    )


async def _from_logs(apps: Sequence[App], named: tuple[str, str, str]) -> tuple[list[Number], list[str]]:
    """The numbers of a key, by topic, tenant and key, that the brokers keep, each broker read once."""
    topic, tenant, key = named
    brokers: dict[str, Broker] = {}
    for app in apps:
        if topic in app.opened.topology().topics:
            url = app.opened.ports.broker_url
            brokers.setdefault(url if "://" in url else str(id(app.broker)), app.broker)
    numbers, notes = list[Number](), list[str]()
    for broker in brokers.values():
        if (why := refusal(broker)) is not None:
            notes.append(why)
            continue
        try:
            async with asyncio.timeout(LOG_WITHIN), aclosing(stored(broker, [topic], None)) as deliveries:
                async for delivery in deliveries:
                    event = _decoded(delivery.frame)
                    if event is not None and (event.tenant, event.key) == (tenant, key) and event.sequence is not None:
                        numbers.append(_number(event.sequence, event.lineage, event, event.id, "log"))
        except TimeoutError:
            notes.append(
                f"the log of {broker.sheet.name} was read for {LOG_WITHIN:g} s and then left: later numbers may be missing"
            )
        except BrokerError as error:
            notes.append(f"the log of {broker.sheet.name} could not be read: {words_of(error)}")
    return numbers, notes


def _merged(numbers: Sequence[Number]) -> list[Number]:
    """Each event once, by its number, with all places; two events under one number are two lines: a fork."""
    found: dict[tuple[int, int, str], Number] = {}
    for one in numbers:
        known = found.setdefault((one.sequence, one.lineage, one.event_id), one)
        if known is not one:
            known.places += [place for place in one.places if place not in known.places]
            known.at = known.at or one.at
            known.type = known.type or one.type
    return [found[place] for place in sorted(found)]


def _facts(
    named: tuple[str, str, str],
    answers: Mapping[str, _Known],
    numbers: Sequence[Number],
    notes: Sequence[str],
    who: Who,
) -> dict[str, object]:
    topic, tenant, name = named
    shown = numbers[-NUMBERS:]
    consumers = [consumer for service, found in answers.items() for consumer in _consumers(service, found)]
    return {
        "topic": topic,
        "tenant": tenant,
        "key": name,
        "consumers": [facts for facts, _, _ in consumers],
        "numbers": [_number_facts(one, consumers, shown) for one in shown],
        "unknown": [
            [str(first), str(last)] for first, last in _unknown(numbers, [head for _, head, _ in consumers if head])
        ],
        "more": len(numbers) > NUMBERS,
        "held": [line_facts(service, line, who) for service, found in answers.items() for line in found.held],
        "notes": notes,
    }


Consumer = tuple[dict[str, object], Head | None, Sequence[HeldLine]]


def _consumers(service: str, found: _Known) -> list[Consumer]:
    """Each consumer that reads the topic or has read it: how far it has come, and what keeps it."""
    heads = {head.consumer: head for head in found.heads}
    mine: dict[str, list[HeldLine]] = {name: [] for name in (*heads, *found.readers)}
    for line in found.held:
        mine.setdefault(line.consumer, []).append(line)
    return [
        (
            _consumer_facts(
                service, consumer, heads.get(consumer), lines, ordered=found.readers.get(consumer, consumer in heads)
            ),
            heads.get(consumer),
            lines,
        )
        for consumer, lines in sorted(mine.items())
    ]


def _consumer_facts(
    service: str, consumer: str, head: Head | None, lines: Sequence[HeldLine], *, ordered: bool
) -> dict[str, object]:
    waiting = sorted(
        (line for line in lines if line.state in BLOCKING and line.sequence is not None),
        key=lambda line: line.sequence or 0,
    )
    first, reached = waiting[0] if waiting else None, head.sequence if head else 0
    missing = None
    if first is not None and (first.sequence or 0) > reached + 1:
        missing = [str(reached + 1), str((first.sequence or 0) - 1)]
    return {
        "service": service,
        "consumer": consumer,
        "sequence": str(head.sequence) if head and head.sequence else None,
        "lineage": str(head.lineage) if head else None,
        "event_id": head.event_id if head else "",
        "ordered": ordered,
        "held": head.held if head else len(waiting),
        "first": None
        if first is None
        else {"id": str(first.id), "state": first.state, "sequence": str(first.sequence)},
        "missing": missing,
    }


def _number_facts(number: Number, consumers: Sequence[Consumer], all_numbers: Sequence[Number]) -> dict[str, object]:
    return {
        "sequence": str(number.sequence),
        "lineage": str(number.lineage),
        "event_id": number.event_id,
        "type": number.type,
        "at": number.at,
        "correlation": number.correlation,
        "places": number.places,
        "fork": any(other is not number and other.sequence == number.sequence for other in all_numbers),
        "consumers": [
            {
                "service": facts["service"],
                "consumer": facts["consumer"],
                **_stands(number, head, lines, ordered=facts["ordered"] is True),
            }
            for facts, head, lines in consumers
        ],
    }


def _stands(number: Number, head: Head | None, lines: Sequence[HeldLine], *, ordered: bool) -> dict[str, object]:
    held = [line for line in lines if line.event_id == number.event_id]
    if held:
        return {"state": held[0].state, "held": str(held[0].id)}
    if not ordered:  # has had it or not: the page of the event says so, the key does not know
        return {"state": "unordered", "held": None}
    passed = head is not None and number.sequence <= head.sequence
    return {"state": "passed" if passed else "waiting", "held": None}


def _unknown(numbers: Sequence[Number], heads: Sequence[Head]) -> list[tuple[int, int]]:
    """Numbers before the last one that anybody here knows of, which nothing looked at here has."""
    there = sorted({one.sequence for one in numbers})
    last = max((*there, *(head.sequence for head in heads)), default=0)
    found, expected = list[tuple[int, int]](), 1
    for number in (*there, last + 1):
        if number > expected:
            found.append((expected, number - 1))
        expected = number + 1
    return found


PAGES: Mapping[str, Page] = {"/keys": key}
