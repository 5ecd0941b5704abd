"""Services of one App on PostgreSQL: they share its pools."""

from __future__ import annotations

import asyncio
import contextlib

import asyncpg

from posthouse import App, Event, Payload, Service, Tx
from posthouse.stores.postgres import PostgresStore
from tests.kit.waiting import eventually

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


async def connections(url: str, count: int, *, together: bool) -> int:
    """How many there are while services, in one App or in one each, have all spoken and heard at once."""
    heard: list[str] = []
    declared = [service(f"service{number}", heard) for number in range(count)]
    services = [one for one, _ in declared]
    groups = [services] if together else [[one] for one in services]
    apps = [App(*group, store=url, broker=f"{url}?schema=log&partitions=1") for group in groups]

    async def say(one: Service, said: type[Counted]) -> None:
        async with one.transaction() as tx:
            tx.publish(said(key="k"))

    async with contextlib.AsyncExitStack() as running:
        for app in apps:
            await running.enter_async_context(app.running())
        await asyncio.gather(*(say(one, said) for one, said in declared))
        await eventually(lambda: len(heard) == count)
        looking = await asyncpg.connect(url)
        try:
            found: int = await looking.fetchval(COUNT)
        finally:
            await looking.close()
    return found


async def test_services_of_one_app_share_its_connections(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    await store.upgrade()
    await store.aclose()
    together = await connections(postgres_url, 4, together=True)
    apart = await connections(postgres_url, 4, together=False)
    assert together < apart
