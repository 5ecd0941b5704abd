"""What a dead process held, given free at once.

Posthouse gives the work of a process that died to others when its leases run out, by the clock. Here the clock stands still
while anything is in flight, so it would wait for ever; and it must not be moved for this, because deadlines of guests would
pass. But whoever killed a process knows that it is dead, and that no other one runs its services: what it held can be
free before its successor starts. Nothing else is touched; what was in hand comes again, as it would after the lease."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from posthouse import Service, app_of
from posthouse.receiving.retrier import LEASE

PATIENCE = 30.0
"""Real seconds to wait for a writer."""

NEARLY = 0.001
"""Seconds by which a sum of two times may be off."""

# Lanes of the outbox that a relay held, and the relay itself.
FREE_SHARDS = ("UPDATE posthouse_shard SET owner = NULL, until = 0", "DELETE FROM posthouse_member")

# Held events that were being run: they are hidden for exactly the time of a claim.
FREE_CLAIMS = """
UPDATE posthouse_held SET next_at = last_at
WHERE state = 'retrying' AND consumer = ? AND abs(next_at - last_at - ?) < ?"""

# Members of a group; the partitions stay in their names, so that their heir knows that they were not given back.
FREE_MEMBERS = ("DELETE FROM members WHERE grp = ?", "UPDATE groups SET version = version + 1 WHERE name = ?")


def hidden_for(service: Service) -> Mapping[str, float]:
    """For how many seconds each consumer hides a held event that it runs."""
    return {
        consumer: min(LEASE, 5.0 + max(h.policy.deadline * (1 if h.calling is None else 2) for h in handlers.values()))
        for consumer, handlers in service.declared.consumers.items()
    }


def free(store: Path, log: Path, service: Service) -> None:
    """All that the processes of one service held; none of them may be alive."""
    free_store(store, service)
    with closing(sqlite3.connect(log, timeout=PATIENCE, isolation_level=None)) as connection:
        for group in app_of(service).opened.topology().groups:
            for sql in FREE_MEMBERS:
                connection.execute(sql, (group,))


def free_store(store: Path, service: Service) -> None:
    """What they held in their own store."""
    with closing(sqlite3.connect(store, timeout=PATIENCE, isolation_level=None)) as connection:
        for sql in FREE_SHARDS:
            connection.execute(sql)
        for consumer, seconds in hidden_for(service).items():
            connection.execute(FREE_CLAIMS, (consumer, seconds, NEARLY))
