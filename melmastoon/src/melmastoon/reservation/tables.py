"""The tables of reservation: bookings, and what the front desk is told about their keys and refunds."""

from __future__ import annotations

from melmastoon.facts.reservation import reservation
from melmastoon.tables import run
from posthouse import Tx

BOOKINGS = """
CREATE TABLE IF NOT EXISTS bookings (
    tenant TEXT NOT NULL,
    booking_id TEXT NOT NULL,
    property_id TEXT NOT NULL,
    room_type TEXT NOT NULL,
    room_id TEXT NOT NULL,
    check_in TEXT NOT NULL,
    check_out TEXT NOT NULL,
    guest_id TEXT NOT NULL,
    guest TEXT NOT NULL,
    special_requests TEXT NOT NULL,
    rail TEXT NOT NULL,
    amount_cents BIGINT NOT NULL,
    refundable_cents BIGINT NOT NULL,
    currency TEXT NOT NULL,
    cash_counted INTEGER NOT NULL,
    status TEXT NOT NULL,
    status_before TEXT NOT NULL,
    change_id TEXT NOT NULL,
    missing TEXT NOT NULL,
    change_missing TEXT NOT NULL,
    reason TEXT NOT NULL,
    check_ins INTEGER NOT NULL,
    check_outs INTEGER NOT NULL,
    PRIMARY KEY (tenant, booking_id)
)"""
OF_GUEST = "CREATE INDEX IF NOT EXISTS bookings_guest ON bookings (tenant, guest_id)"

REQUESTS = """
CREATE TABLE IF NOT EXISTS booking_requests (
    tenant TEXT NOT NULL,
    request_id TEXT NOT NULL,
    booking_id TEXT NOT NULL,
    PRIMARY KEY (tenant, request_id)
)"""
"""Requests of guests that were granted, so that each is granted once."""

BOARD = """
CREATE TABLE IF NOT EXISTS booking_board (
    tenant TEXT NOT NULL,
    booking_id TEXT NOT NULL,
    key_state TEXT NOT NULL DEFAULT 'none',
    key_by_hand INTEGER NOT NULL DEFAULT 0,
    issued_at TEXT NOT NULL DEFAULT '',
    updated_at TEXT NOT NULL DEFAULT '',
    revoked_at TEXT NOT NULL DEFAULT '',
    trouble TEXT NOT NULL DEFAULT '',
    trouble_reason TEXT NOT NULL DEFAULT '',
    trouble_at TEXT NOT NULL DEFAULT '',
    refund_trouble TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, booking_id)
)"""


@reservation.setup
async def create(tx: Tx) -> None:
    """Make what is not there yet."""
    for table in (BOOKINGS, OF_GUEST, REQUESTS, BOARD):
        await run(tx, table)
