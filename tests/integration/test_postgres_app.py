"""Services of one App on PostgreSQL: as many connections as one of them alone."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from posthouse import App, Event, Payload, Service, Tx, drained
from posthouse.stores.postgres import PostgresStore

COUNT = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


class Counted(Payload):
    key: str


def service(name: str, heard: list[str]) -> tuple[Service, type[Counted]]:
    made = Service(name)

    class Said(Counted):
        """A class of its own, for it belongs to one service."""

    said = made.event("thing.counted.v1", key="key")(Said)

    @made.on(said)
    async def hear(event: Event[Said], tx: Tx) -> None:
        await tx.execute("SELECT 1")
        heard.append(name)

    return made, said


async def connections(url: str, count: int) -> int:
    """How many there are while services of one App have all spoken and heard at once."""
    heard: list[str] = []
    declared = [service(f"service{number}", heard) for number in range(count)]
    services = [one for one, _ in declared]
    app = App(*services, store=url, broker=f"{url}?schema=log&partitions=1")

    async def say(one: Service, said: type[Counted]) -> None:
        async with one.transaction("t1") as tx:
            tx.publish(said(key="k"))

    async with app.running():
        await asyncio.gather(*(say(one, said) for one, said in declared))
        await drained(*services)
        looking = await asyncpg.connect(url)
        try:
            found: int = await looking.fetchval(COUNT)
        finally:
            await looking.close()
    assert sorted(heard) == sorted(one.name for one in services)
    return found


@pytest.mark.parametrize("count", [4])
async def test_services_of_one_app_share_its_connections(postgres_url: str, count: int) -> None:
    store = PostgresStore(postgres_url)
    await store.upgrade()
    await store.aclose()
    alone = await connections(postgres_url, 1)
    together = await connections(postgres_url, count)
    assert together < 2 * alone, "each App has pools of its own, and services have none"
