"""What desktops ask of sync-service: what happened since, and to take over what they did meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from melmastoon.facts.sync import ConflictRecorded, CursorAdvanced, sync
from melmastoon.tables import run, typed
from posthouse import Reject, Tx
from posthouse.edges.correlation import correlated

DEVICE = "SELECT property_id, reached, bound FROM sync_device WHERE tenant = ? AND device_id = ? FOR UPDATE"
HEAD = "SELECT position FROM sync_head WHERE tenant = ?"
DELTAS = """SELECT d.position, d.thing, d.thing_id, d.fact, d.body FROM sync_delta d
    LEFT JOIN sync_booking b ON b.tenant = d.tenant AND b.booking_id = d.booking_id
    WHERE d.tenant = ? AND d.position > ? AND (d.property_id = ? OR (d.property_id = '' AND
        (b.property_id IS NULL OR b.property_id = ?))) ORDER BY d.position LIMIT ?"""
ADVANCE = "UPDATE sync_device SET reached = ? WHERE tenant = ? AND device_id = ? AND reached < ?"
LATEST = "SELECT COALESCE(MAX(position), 0) FROM sync_delta WHERE tenant = ? AND thing = ? AND thing_id = ?"
OUTCOME = "SELECT outcome FROM sync_mutation WHERE tenant = ? AND mutation_id = ?"
REMEMBER = "INSERT INTO sync_mutation (tenant, mutation_id, outcome) VALUES (?, ?, ?)"

Outcome = Literal["applied", "conflict"]


class Delta(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One change that a desktop applies. Its position is the cursor once it has."""

    position: int
    thing: str
    thing_id: str
    fact: str
    body: str


class Mutation(msgspec.Struct, frozen=True, kw_only=True):
    """What was done on a desktop while it was offline. `based_on` is the cursor that it had then."""

    mutation_id: str
    thing: Literal["booking", "room", "folio"]
    thing_id: str
    wanted: str
    based_on: int


Apply = Callable[[Mutation], Awaitable[None]]
"""Does what was wanted, as if somebody asked for it now; by the mutation's id it is done once. Reject: it cannot be done."""


async def pull(tx: Tx, device_id: str, *, since: int, most: int = 500) -> list[Delta]:
    """What a desktop has not seen yet, in order, of its own house alone. By asking for what came after `since` it says that
    it has applied everything up to there."""
    property_id, reached = await _device(tx, device_id)
    head = typed(await run(tx, HEAD, tx.tenant), tuple[int])
    if since > (head[0][0] if head else 0):
        raise Reject(f"{device_id} says that it has seen {since}, which has not happened: pull from {reached}")
    if (await run(tx, ADVANCE, since, tx.tenant, device_id, since)).rowcount:
        advanced = CursorAdvanced(device_id=device_id, cursor=since, pulled=since - reached)
        tx.publish(advanced, idempotency_key=f"sync:cursor:{device_id}:{since}")
    return typed(await run(tx, DELTAS, tx.tenant, since, property_id, property_id, most), Delta)


async def push(tenant: str, device_id: str, mutation: Mutation, apply: Apply) -> Outcome:
    """Take over what a desktop did, unless the thing changed after what it had seen: then the server's state stands, and an
    operator decides. It is applied while no transaction is open here. The same mutation again has the same outcome."""
    async with sync.transaction(tenant) as tx:
        await _device(tx, device_id)
        if known := await _outcome(tx, mutation.mutation_id):
            return known
        if await _latest(tx, mutation) > mutation.based_on:
            return await _settled(tx, device_id, mutation, "conflict")
    outcome: Outcome = "applied" if await _applied(mutation, apply) else "conflict"
    async with sync.transaction(tenant) as tx:
        await _device(tx, device_id)
        return await _outcome(tx, mutation.mutation_id) or await _settled(tx, device_id, mutation, outcome)


async def _outcome(tx: Tx, mutation_id: str) -> Outcome | None:
    known = typed(await run(tx, OUTCOME, tx.tenant, mutation_id), tuple[Outcome])
    return known[0][0] if known else None


async def _latest(tx: Tx, mutation: Mutation) -> int:
    [(latest,)] = typed(await run(tx, LATEST, tx.tenant, mutation.thing, mutation.thing_id), tuple[int])
    return latest


async def _settled(tx: Tx, device_id: str, mutation: Mutation, outcome: Outcome) -> Outcome:
    """Remember what became of it. Whoever calls holds the device's row."""
    await run(tx, REMEMBER, tx.tenant, mutation.mutation_id, outcome)
    if outcome == "conflict":
        _record(tx, device_id, mutation, await _latest(tx, mutation))
    return outcome


async def _applied(mutation: Mutation, apply: Apply) -> bool:
    try:
        with correlated(offline_replay=True):
            await apply(mutation)
    except Reject:
        return False
    return True


def _record(tx: Tx, device_id: str, mutation: Mutation, latest: int) -> None:
    conflict = ConflictRecorded(
        conflict_id=f"conflict-{mutation.mutation_id}",
        device_id=device_id,
        thing=mutation.thing,
        thing_id=mutation.thing_id,
        wanted=mutation.wanted,
        based_on=mutation.based_on,
        changed_at=latest,
    )
    tx.publish(conflict, idempotency_key=f"sync:conflict:{mutation.mutation_id}")


async def _device(tx: Tx, device_id: str) -> tuple[str, int]:
    """The house of a bound desktop and its cursor; locked, so that its requests come one after the other."""
    found = typed(await run(tx, DEVICE, tx.tenant, device_id), tuple[str, int, int])
    if not found or not found[0][2]:
        raise Reject(f"{device_id} is not a bound device of this tenant")
    property_id, reached, _ = found[0]
    return property_id, reached
