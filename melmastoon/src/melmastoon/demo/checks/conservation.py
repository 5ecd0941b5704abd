"""Nothing lost, nothing twice, nothing out of order.

Known from what the witness wrote: the facts that were committed (by a trigger, in the producers' own transactions) against
what every consumer applied (in its own transactions), fact by fact. A fact that is held by a consumer is not lost; it is
counted as held. A consumer is meant to have every fact whose type it handles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from melmastoon.demo.books import Books
from posthouse import Service


class Conservation(msgspec.Struct, frozen=True, kw_only=True):
    lost: int
    duplicated: int
    out_of_order: int
    held: int
    findings: Sequence[str]


def conservation(books: Books, services: Sequence[Service], forged: Collection[tuple[str, str]] = ()) -> Conservation:
    """Compare what was said with what was applied. `forged`, by consumer and id, is held because nobody said it."""
    handles = handled(services)
    times = Counter((row.consumer, row.id) for row in books.applied)
    held = {pair: why for pair, why in _held(books).items() if pair not in forged}
    wanted = {(consumer, fact.id): fact for fact in books.facts for consumer in handles.get(fact.type, ())}
    lost = [pair for pair in wanted if pair not in times and pair not in held]
    twice = [pair for pair, count in times.items() if count > 1]
    strange = [pair for pair in times if pair not in wanted]
    unordered = _out_of_order(books, services)
    return Conservation(
        lost=len(lost),
        duplicated=len(twice) + len(strange),
        out_of_order=len(unordered),
        held=len(held),
        findings=[
            *(f"{consumer} never applied {wanted[consumer, id].type} {id}" for consumer, id in lost[:5]),
            *(f"{consumer} applied {id} {times[consumer, id]} times" for consumer, id in twice[:5]),
            *(f"{consumer} applied {id}, which nobody said" for consumer, id in strange[:5]),
            *(f"{line} were applied out of order" for line in unordered[:5]),
            *(f"{consumer} holds {id}: {why}" for (consumer, id), why in list(held.items())[:5]),
        ],
    )


def handled(services: Sequence[Service]) -> Mapping[str, Sequence[str]]:
    """Who is meant to have which type, as they declare it."""
    found: dict[str, list[str]] = {}
    for service in services:
        for consumer, handlers in service.declared.consumers.items():
            for name in handlers:
                found.setdefault(name, []).append(consumer)
    return found


def _held(books: Books) -> Mapping[tuple[str, str], str]:
    sql = f"SELECT consumer, event_id, state, error FROM {books.library('held')}"
    return {
        (consumer, event_id): f"{state}, {error}"
        for service in books.services
        for consumer, event_id, state, error in books.rows(service, sql)
    }


def _out_of_order(books: Books, services: Sequence[Service]) -> Sequence[str]:
    """Keys of which a consumer that wants order applied a number after a higher one."""
    unordered = {
        consumer
        for service in services
        for consumer, handlers in service.declared.consumers.items()
        if any(handler.policy.order == "none" for handler in handlers.values())
    }
    topics = {fact.id: fact.topic for fact in books.facts}
    last: dict[tuple[str, ...], int] = {}
    wrong: dict[str, None] = {}
    for row in books.applied:
        if row.sequence is None or row.key is None or row.consumer in unordered:
            continue
        line = (row.consumer, topics.get(row.id, ""), row.tenant, row.key)
        if row.sequence < last.get(line, 0):
            wrong[f"facts about {row.key} in {row.consumer}"] = None
        last[line] = row.sequence
    return list(wrong)
