"""How long what is kept: classes, topics, and rows that leave once they lie in a folder."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from posthouse import App, Event, Payload, Policy, Service, Settings, Tx, drained
from posthouse.clock import ManualClock
from posthouse.contracts.retention import DAY, Kept, RetentionClasses
from posthouse.opened.retaining import sweep_of
from posthouse.store import HeldFilter
from posthouse.watch.retention import retention_checks

clock = ManualClock()
here = Path.cwd()
billing = Service("billing", namespace="shop")


@billing.event("invoice.issued.v1", key="invoice_id", retention="cold")
class InvoiceIssued(Payload):
    invoice_id: str


@billing.event("reminder.sent.v1")
class ReminderSent(Payload):
    invoice_id: str


@billing.on(ReminderSent, policy=Policy(order="none", max_attempts=1))
async def note(event: Event[ReminderSent], tx: Tx) -> None:
    if event.data.invoice_id == "torn":
        raise ValueError("no such invoice")


settings = Settings(
    retention=RetentionClasses(warm=Kept(log=14 * DAY, archive=400 * DAY)),
    held_retention=365 * DAY,
    archive_rows=f"file://{here}/rows",
)
app = App(
    billing,
    store="sqlite:///shop.db",
    broker="embedded:///log.db?retention=86400",
    clock=clock,
    settings=settings,
)


def in_folder(what: str) -> int:
    return sum(len(file.read_text().splitlines()) for file in (here / "rows").glob(f"{what}/**/*.jsonl"))


async def main() -> None:
    print(json.dumps(app.opened.topology().retention))
    for check in await retention_checks(app):
        print(f"{check.name} {check.found}")

    async with app.running():
        async with billing.transaction(tenant="t1") as tx:
            for invoice_id in ("i1", "i2", "torn"):
                tx.publish(ReminderSent(invoice_id))
        await drained(billing)
    async for event in app.held.find(HeldFilter()):
        await app.held.skip(event.id, by="ann", why="the invoice was torn up")

    sweep = sweep_of(app.store, app.settings)
    for years in (0, 1, 2):
        await sweep.inbox()
        await sweep.held()
        print(f"after {years} years: {in_folder('inbox')} rows of the inbox and {in_folder('held')} given up, in files")
        clock.advance(366 * DAY)
    skipped = sum((await app.store.counts()).skipped.values())
    print(f"still counted as skipped: {skipped}")
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
