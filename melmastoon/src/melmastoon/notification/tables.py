"""What notification-service remembers: each message, and where to write to about a booking."""

from __future__ import annotations

from melmastoon.facts.notification import notification
from melmastoon.tables import run
from posthouse import Tx

TABLES = (
    """CREATE TABLE IF NOT EXISTS notification_message (
        tenant TEXT NOT NULL, message_id TEXT NOT NULL, booking_id TEXT NOT NULL, kind TEXT NOT NULL,
        channel TEXT NOT NULL, locale TEXT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (tenant, message_id))""",
    """CREATE TABLE IF NOT EXISTS notification_contact (
        tenant TEXT NOT NULL, booking_id TEXT NOT NULL, guest_id TEXT NOT NULL, name TEXT NOT NULL, email TEXT NOT NULL,
        phone TEXT NOT NULL, locale TEXT NOT NULL, known_at TEXT NOT NULL, PRIMARY KEY (tenant, booking_id))""",
    "CREATE INDEX IF NOT EXISTS notification_contact_guest ON notification_contact (tenant, guest_id)",
)


@notification.setup
async def make_tables(tx: Tx) -> None:
    for table in TABLES:
        await run(tx, table)
