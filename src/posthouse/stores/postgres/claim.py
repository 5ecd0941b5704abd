"""Claim: events are recorded as applied if they come next, in as few statements as there can be.

A head is found by its unique key, through ON CONFLICT: that has no plan that could go wrong as the table grows. So a row
is proposed for every key, also for one that must have a head already. If it has none, the row is a stray: it shows by a
`held` below zero, and is taken away again, or stays where the consumer adopts the first number that it sees of a key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from posthouse.store import InboxEntry
from posthouse.stores.postgres.steps import literal
from posthouse.stores.postgres.transaction import Begun, PostgresTransaction

# Record one event, or one run of a key, as applied.
CLAIM = "SELECT posthouse.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"

# The same as the first words of a transaction, without parameters: one row if it was done.
CLAIM_FIRST = "SELECT 1 WHERE posthouse.claim"

# The same for several, one after the other.
CLAIM_EACH = """
SELECT posthouse.claim($1, g.topic, g.tenant, g.key, g.first, g.last, g.lineage, g.event, g.digest, g.drawn, g.time,
    g.said, $13)
FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::integer[], $8::text[], $9::bytea[],
    $10::bigint[], $11::double precision[], $12::double precision[])
    AS g (topic, tenant, key, first, last, lineage, event, digest, drawn, time, said)
"""

# One ordered event, prepared once in a session, under a name that no other schema has there: one row if it was done. What is
# left otherwise may be a stray.
CLAIM_NEXT = """
PREPARE {schema} (text, text, text, text, bigint, integer, text, bytea, bigint) AS
WITH claimed AS (
    INSERT INTO posthouse.head AS h (consumer, topic, tenant, key, sequence, lineage, event_id, digest, newest, held)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, CASE WHEN $5 = 1 THEN 0 ELSE -1 END)
    ON CONFLICT (tenant, consumer, topic, key) DO UPDATE
    SET sequence = excluded.sequence, lineage = excluded.lineage, event_id = excluded.event_id, digest = excluded.digest,
        newest = greatest(h.newest, excluded.newest), lineages = CASE WHEN h.lineage = excluded.lineage THEN h.lineages
            ELSE posthouse.succeeded(h.lineages, h.lineage, h.sequence, h.event_id) END
    WHERE h.sequence + 1 = excluded.sequence AND h.held = 0 AND h.lineage <= excluded.lineage
    RETURNING h.held)
INSERT INTO posthouse.applied_count (consumer, topic, applied, skipped) SELECT $1, $2, 1, 0 FROM claimed WHERE held = 0
"""

# Runs of different keys. Each that was claimed comes back, and each that is a stray; if all were claimed, they are counted.
CLAIM_RUNS = """
WITH given AS (
    SELECT * FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::integer[], $8::text[],
        $9::bytea[], $10::bigint[]) AS g (topic, tenant, key, first, last, lineage, event, digest, drawn)
), begun AS (
    INSERT INTO posthouse.head AS h (consumer, topic, tenant, key, sequence, lineage, event_id, digest, newest)
    SELECT $1, topic, tenant, key, last, lineage, event, digest, drawn FROM given WHERE first = 1
    ON CONFLICT (tenant, consumer, topic, key) DO UPDATE
    SET sequence = excluded.sequence, lineage = excluded.lineage, event_id = excluded.event_id, digest = excluded.digest,
        newest = greatest(h.newest, excluded.newest), lineages = CASE WHEN h.lineage = excluded.lineage THEN h.lineages
            ELSE posthouse.succeeded(h.lineages, h.lineage, h.sequence, h.event_id) END
    WHERE h.sequence = 0 AND h.held = 0 AND h.lineage <= excluded.lineage
    RETURNING h.topic, h.tenant, h.key, h.held, h.ctid AS place
), continued AS (
    INSERT INTO posthouse.head AS h (consumer, topic, tenant, key, sequence, lineage, event_id, digest, newest, held)
    SELECT $1, topic, tenant, key, last, lineage, event, digest, drawn, first - last - 1 FROM given WHERE first <> 1
    ON CONFLICT (tenant, consumer, topic, key) DO UPDATE
    SET sequence = excluded.sequence, lineage = excluded.lineage, event_id = excluded.event_id, digest = excluded.digest,
        newest = greatest(h.newest, excluded.newest), lineages = CASE WHEN h.lineage = excluded.lineage THEN h.lineages
            ELSE posthouse.succeeded(h.lineages, h.lineage, h.sequence, h.event_id) END
    WHERE h.sequence = excluded.sequence + excluded.held AND h.held = 0 AND h.lineage <= excluded.lineage
    RETURNING h.topic, h.tenant, h.key, h.held, h.ctid AS place
), claimed AS (
    SELECT * FROM begun UNION ALL SELECT * FROM continued
), counted AS (
    INSERT INTO posthouse.applied_count (consumer, topic, applied, skipped)
    SELECT $1, t.topic, t.events, 0 FROM unnest($11::text[], $12::integer[]) AS t (topic, events)
    WHERE (SELECT count(*) FROM claimed WHERE held = 0) = $13::bigint)
SELECT topic, tenant, key, held, place FROM claimed
"""

# Lock the heads that are there, in one order: a claim of runs takes those that begin before those that go on.
LOCK = "SELECT posthouse.lock_heads($1, $2::text[], $3::text[], $4::text[])"

# Count what was claimed where not everything was.
COUNT = """
INSERT INTO posthouse.applied_count (consumer, topic, applied, skipped)
SELECT $1, t.topic, t.events, 0 FROM unnest($2::text[], $3::integer[]) AS t (topic, events)
"""

# The place of a stray; nothing for a key that has a head.
STRAY = """
INSERT INTO posthouse.head AS h (consumer, topic, tenant, key, sequence, lineage, event_id, digest, held)
VALUES ($1, $2, $3, $4, 0, 1, '', '', -1)
ON CONFLICT (tenant, consumer, topic, key) DO UPDATE SET held = -1 WHERE h.held < 0
RETURNING h.ctid
"""

# The topics of which a consumer adopts the first number that it sees of a key.
ADOPTED = "SELECT topic FROM posthouse.consumer WHERE consumer = $1 AND adopt"

# Strays that stay, as the heads of their keys …
KEEP = "UPDATE posthouse.head SET held = 0 WHERE ctid = ANY ($1::tid[])"

# … and those that go.
REMOVE = "DELETE FROM posthouse.head WHERE ctid = ANY ($1::tid[])"

Line = tuple[str, str, str | None]
"""Topic, tenant and key."""


async def claim_one(tx: Begun, consumer: str, entry: InboxEntry, now: float | None) -> bool:
    """Record one event as applied; in the round trip of the BEGIN where that is still to come."""
    if isinstance(tx, PostgresTransaction) and tx.unbegun and tx.may_spell_out:
        quickly = entry.sequence is not None and _may_stray(tx) and not tx.database.settings.pooled
        try:
            return await (_claim_next(tx, consumer, entry) if quickly else _claim_first(tx, consumer, entry, now))
        except Unspeakable:
            pass  # as a parameter it is refused, with an error that says so
    return bool((await tx.run(CLAIM, consumer, *_claimed([entry]), now)).scalar())


async def _claim_first(tx: PostgresTransaction, consumer: str, entry: InboxEntry, now: float | None) -> bool:
    words = _words(consumer, *_claimed([entry]), now)
    return await tx.begin_with(f"{tx.database.text(CLAIM_FIRST)}({words})") == "SELECT 1"


async def _claim_next(tx: PostgresTransaction, consumer: str, entry: InboxEntry) -> bool:
    topic, tenant, key, sequence = entry.topic, entry.tenant, entry.key, entry.sequence
    words = _words(consumer, topic, tenant, key, sequence, entry.lineage, entry.event_id, entry.digest, entry.drawn)
    if await tx.begin_executing(tx.database.settings.schema, CLAIM_NEXT, words) == "INSERT 0 1":
        return True
    if sequence == 1:
        return False
    strays = await tx.run(STRAY, consumer, topic, tenant, key)
    kept = await _settle(tx, consumer, [(topic, place) for (place,) in strays])
    if kept:
        await tx.run(COUNT, consumer, [topic], [1])
    return bool(kept)


class Unspeakable(Exception):
    """A value that no statement can hold."""


def _words(*values: object) -> str:
    try:
        return ", ".join(map(literal, values))
    except ValueError:
        raise Unspeakable from None


async def claim_many(tx: Begun, consumer: str, entries: Sequence[InboxEntry], now: float | None) -> Sequence[bool]:
    """Record events as applied; one answer each."""
    answers = [False] * len(entries)
    runs = _runs(entries)
    if isinstance(tx, PostgresTransaction) and _may_stray(tx):
        together, runs = _of_different_keys(entries, runs)
        for run in await _claim_together(tx, consumer, entries, together) if together else ():
            for place in run:
                answers[place] = True
    if runs:
        columns = zip(*[_claimed([entries[place] for place in run]) for run in runs], strict=True)
        rows = await tx.run(CLAIM_EACH, consumer, *columns, now)
        for run, (claimed,) in zip(runs, rows, strict=True):
            for place in run:
                answers[place] = bool(claimed)
    return answers


def _may_stray(tx: PostgresTransaction) -> bool:
    """Whether it may take a stray away again: the role that sees one tenant only has no right to delete heads."""
    return tx.tenant is None


async def _claim_together(
    tx: PostgresTransaction, consumer: str, entries: Sequence[InboxEntry], lines: Mapping[Line, list[int]]
) -> Iterable[list[int]]:
    """Of the runs of different keys, those that were claimed."""
    runs = lines.values()
    columns = zip(*[_claimed([entries[place] for place in run])[:9] for run in runs], strict=True)
    events = _count(entries, runs)
    if len({entries[run[0]].sequence == 1 for run in runs}) > 1:
        await tx.run(LOCK, consumer, *([line[place] for line in lines] for place in range(3)))
    found: Any = await tx.run(CLAIM_RUNS, consumer, *columns, list(events), list(events.values()), len(runs))
    claimed = [lines[topic, tenant, key] for topic, tenant, key, held, _ in found if held == 0]
    if len(claimed) == len(runs):
        return claimed
    kept = await _settle(tx, consumer, [(topic, place) for topic, _, _, held, place in found if held < 0])
    claimed += [lines[topic, tenant, key] for topic, tenant, key, held, place in found if held < 0 and place in kept]
    events = _count(entries, claimed)
    await tx.run(COUNT, consumer, list(events), list(events.values()))
    return claimed


async def _settle(tx: PostgresTransaction, consumer: str, strays: Sequence[tuple[str, object]]) -> set[object]:
    """Keep the strays of topics whose first number is adopted, take the others away; the places of those kept."""
    if not strays:
        return set()
    adopted = {topic for (topic,) in await tx.run(ADOPTED, consumer)}
    kept = {place for topic, place in strays if topic in adopted}
    gone = {place for topic, place in strays if topic not in adopted}
    for statement, places in ((KEEP, kept), (REMOVE, gone)):
        if places:
            await tx.run(statement, list(places))
    return kept


def _count(entries: Sequence[InboxEntry], runs: Iterable[list[int]]) -> Counter[str]:
    """How many events of each topic."""
    return Counter([entries[place].topic for run in runs for place in run])


def _of_different_keys(
    entries: Sequence[InboxEntry], runs: Sequence[list[int]]
) -> tuple[dict[Line, list[int]], list[list[int]]]:
    """The first run of each key, and the others: later ones of a key, and events that stand alone."""
    lines: dict[Line, list[int]] = {}
    others: list[list[int]] = []
    for run in runs:
        first = entries[run[0]]
        if first.sequence is None or lines.setdefault((first.topic, first.tenant, first.key), run) is not run:
            others.append(run)
    return lines, others


def _runs(entries: Sequence[InboxEntry]) -> list[list[int]]:
    """Their places: those of one key whose numbers follow each other together, the others alone. Sorted, so that two
    transactions that claim the same events wait for each other in one order."""
    runs: list[list[int]] = []
    for place in sorted(range(len(entries)), key=lambda place: _rank(entries[place])):
        if runs and _follows(entries[place], entries[runs[-1][-1]]):
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def _rank(one: InboxEntry) -> tuple[bool, str, str, str, str]:
    """Heads before inbox rows, as they are claimed."""
    return (one.sequence is None, one.topic, one.tenant, one.key or "", one.event_id if one.sequence is None else "")


def _follows(one: InboxEntry, before: InboxEntry) -> bool:
    return (
        one.sequence is not None
        and before.sequence is not None
        and one.sequence == before.sequence + 1
        and (one.key, one.tenant, one.topic, one.lineage) == (before.key, before.tenant, before.topic, before.lineage)
    )


def _claimed(run: Sequence[InboxEntry]) -> tuple[object, ...]:
    """What a claim of a run says."""
    first, last = run[0], run[-1]
    return (
        last.topic,
        last.tenant,
        last.key,
        first.sequence,
        last.sequence,
        last.lineage,
        last.event_id,
        last.digest,
        max(entry.drawn for entry in run),
        last.time,
        last.said,
    )
