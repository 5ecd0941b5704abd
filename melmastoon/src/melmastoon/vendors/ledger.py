"""The vendors' own books: what they really captured, refunded, issued and revoked. They are the vendors' side of the wire: a
file of its own, written by the simulators alone, that outlives our processes and that a check can compare ours with."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TABLES = """
CREATE TABLE IF NOT EXISTS calls (
    operation TEXT, id TEXT, attempts INTEGER NOT NULL, PRIMARY KEY (operation, id)
);
CREATE TABLE IF NOT EXISTS charges (
    key TEXT PRIMARY KEY, rail TEXT NOT NULL, tenant TEXT NOT NULL, booking_id TEXT NOT NULL, amount_cents INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('captured', 'declined', 'voided')), asked INTEGER NOT NULL DEFAULT 1
);
CREATE TABLE IF NOT EXISTS refunds (
    key TEXT PRIMARY KEY, charge TEXT NOT NULL, tenant TEXT NOT NULL, booking_id TEXT NOT NULL, amount_cents INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('refunded', 'declined', 'voided')), asked INTEGER NOT NULL DEFAULT 1
);
CREATE TABLE IF NOT EXISTS credentials (
    id TEXT PRIMARY KEY, vendor TEXT NOT NULL, tenant TEXT NOT NULL, booking_id TEXT NOT NULL, room_id TEXT NOT NULL,
    check_in TEXT NOT NULL, check_out TEXT NOT NULL, state TEXT NOT NULL CHECK (state IN ('active', 'suspended', 'revoked')),
    blocked INTEGER NOT NULL DEFAULT 0
);
"""


class Ledger:
    """One file, or memory when there is none. Any number of processes may write it."""

    def __init__(self, path: str | Path | None = None) -> None:
        self._connection = sqlite3.connect(
            ":memory:" if path is None else path, timeout=30.0, isolation_level=None, check_same_thread=False
        )
        if path is not None:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")  # it outlives processes, not power cuts
        self._connection.executescript(_TABLES)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One step of a vendor: whole or not at all."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def attempt(self, operation: str, id: str) -> int:
        """Count one more attempt, from 1."""
        count = (
            "INSERT INTO calls VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET attempts = attempts + 1 RETURNING attempts"
        )
        with self.writing() as ledger:
            (number,) = ledger.execute(count, (operation, id)).fetchone()
        return int(number)

    def charged(self, tenant: str) -> dict[str, int]:
        """What guests of a tenant have really paid by now, per booking: captures less refunds."""
        paid: dict[str, int] = {}
        for sign, table, state in ((1, "charges", "captured"), (-1, "refunds", "refunded")):
            rows = self._connection.execute(
                f"SELECT booking_id, amount_cents FROM {table} WHERE tenant = ? AND state = ?", (tenant, state)
            )
            for booking_id, cents in rows:
                paid[booking_id] = paid.get(booking_id, 0) + sign * int(cents)
        return paid

    def opening(self, tenant: str) -> dict[str, str]:
        """The rooms that credentials of a tenant open at this moment, per booking."""
        rows = self._connection.execute(
            "SELECT booking_id, room_id FROM credentials WHERE tenant = ? AND state = 'active' AND blocked = 0",
            (tenant,),
        )
        return dict(rows)

    def read(self, sql: str, *values: str | int) -> list[tuple[object, ...]]:
        """Look something up in the books."""
        return self._connection.execute(sql, values).fetchall()

    def close(self) -> None:
        self._connection.close()
