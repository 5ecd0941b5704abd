"""A shop whose billing is replayed, and a process that runs the job of that until it is killed."""

from __future__ import annotations

import asyncio
import sys

from posthouse import App, Event, Payload, Policy, Service, Tx, reprocessing

FAILS: set[int] = set()


class Changed(Payload):
    key: str
    number: int


def services(store: str, log: str, release: str, *, fails: int = 0) -> tuple[Service, Service, type[Changed]]:
    """Both on one store, as a release of them."""
    orders, billing = Service("orders"), Service("billing")
    App(orders, billing, store=store, broker=f"{log}&single_host=true")
    FAILS.clear()
    FAILS.update({fails} - {0})
    changed = orders.event("order.changed.v1", key="key")(Changed)

    @billing.setup
    async def tables(tx: Tx) -> None:
        await tx.execute(
            "CREATE TABLE IF NOT EXISTS applied (id bigserial PRIMARY KEY, key text, number integer, release text)"
        )

    @billing.on(changed, policy=Policy(max_attempts=2, first_delay=0.05))
    async def bill(event: Event[Changed], tx: Tx) -> None:
        if event.data.number in FAILS:
            raise ValueError("cannot be billed")
        await tx.execute(
            "INSERT INTO applied (key, number, release) VALUES (:key, :number, :release)",
            {"key": event.data.key, "number": event.data.number, "release": release},
        )
        if event.replayed:
            await asyncio.sleep(0.02)

    return orders, billing, changed


async def main(store: str, log: str, job: str) -> None:
    _, billing, _ = services(store, log, "mended")
    await reprocessing.run(billing, job, lease=1.0, look=0.1)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
