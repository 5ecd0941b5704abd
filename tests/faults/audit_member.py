"""A member of an audit log, in a process that is killed: `python -m tests.faults.audit_member FOLDER BROKER NAMESPACE`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from posthouse import App, Audit, Payload, Service


def shop(folder: Path, broker: str, namespace: str) -> tuple[App, Service, type[Payload]]:
    """A service whose invoices are logged."""
    orders = Service("orders", namespace=namespace)

    @orders.event("invoice.issued.v1", key="id", retention="cold")
    class Issued(Payload):
        id: str

    audit = Audit(
        place=str(folder / "log"),
        second=str(folder / "second"),
        keys=folder / "keys.toml",
        private=folder / "private-a1",
        every=0.2,
        wait=0.02,
        batch=20,
    )
    return App(orders, store=f"sqlite:///{folder}/orders.db", broker=broker, audit=audit), orders, Issued


async def main(folder: Path, broker: str, namespace: str) -> None:
    app, _, _ = shop(folder, broker, namespace)
    async with app.running(only=["consumers"]):
        print("runs", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
