"""A search over the rooms of all hotels: a read model without names, rebuilt while it is being read."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from posthouse import Aggregate, Event, Model, Payload, Personal, Service, Swap, Tx, app_of
from posthouse.testing import Harness

rooms = Service("rooms")


@rooms.event("room.listed.v1", key="room_id")
class RoomListed(Payload):
    room_id: str
    city: str
    host_name: Annotated[str, Personal("identity")]


@rooms.event("room.priced.v1", key="room_id")
class RoomPriced(Payload):
    room_id: str
    cents: int


class RoomFound(Payload):
    room_id: str


rooms.event("room.found.v1", key="room_id")(RoomFound)


book: Aggregate[int, RoomListed | RoomPriced] = rooms.aggregate(
    "room", initial=int, evolve=lambda count, _: count + 1, events=(RoomListed, RoomPriced)
)

listings = rooms.projection("listings", lag_budget=5.0, cross_tenant=True, strips=["host_name"], publishes=[RoomFound])


@listings.setup
async def tables(model: Model) -> None:
    await model.execute(
        f"CREATE TABLE {model.table('listing')} (room_id TEXT PRIMARY KEY, city TEXT, host TEXT, cents INTEGER)"
    )


@listings.on(RoomListed)
async def listed(event: Event[RoomListed], model: Model) -> None:
    room = event.data
    await model.execute(
        f"INSERT INTO {model.table('listing')} (room_id, city, host) VALUES (:room_id, :city, :host)",
        {"room_id": room.room_id, "city": room.city, "host": room.host_name},
    )
    model.publish(RoomFound(room_id=room.room_id))


@listings.on(RoomPriced)
async def priced(events: Sequence[Event[RoomPriced]], model: Model) -> None:
    await model.execute_many(
        f"UPDATE {model.table('listing')} SET cents = ? WHERE room_id = ?",
        [(event.data.cents, event.data.room_id) for event in events],
    )


@rooms.setup
async def swaps(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS swap (generation INTEGER PRIMARY KEY, appeared INTEGER)")


@listings.swapped
async def compare(model: Model, swap: Swap) -> None:
    new, old = model.table("listing"), swap.replaced_table("listing")
    appeared = f"SELECT count(*) FROM {new} WHERE room_id NOT IN (SELECT room_id FROM {old})"
    await model.execute(f"INSERT INTO swap SELECT {swap.generation}, ({appeared})")


async def in_city(city: str) -> list[tuple[object, ...]]:
    async with rooms.transaction("platform") as tx:
        table = await listings.table(tx, "listing")
        found = f"SELECT room_id, host, cents FROM {table} WHERE city = :city ORDER BY room_id"
        return await tx.execute(found, {"city": city})


async def main() -> None:
    async with Harness(rooms) as harness:
        for tenant, room in (("t1", "r1"), ("t2", "r2")):
            async with rooms.transaction(tenant) as tx:
                facts = [RoomListed(room_id=room, city="Kabul", host_name="Ann"), RoomPriced(room_id=room, cents=9000)]
                await book.append(tx, room, facts, expected="new")
        await harness.settled()
        print(await in_city("Kabul"))

        done = await app_of(rooms).projections.rebuild("listings")
        print(f"generation {done.generation}: {done.events} events from the {done.source}")
        print(await in_city("Kabul"))
        await harness.settled()
        print(f"{len(await harness.published(RoomFound))} rooms were found, each once")
        async with rooms.transaction("platform") as tx:
            ((generation, appeared),) = await tx.execute("SELECT generation, appeared FROM swap")
        print(f"with generation {generation} {appeared} rooms appeared")

        (status,) = await app_of(rooms).projections.status()
        assert status.live is not None
        print(f"within its budget: {status.live.freshness.within}")


if __name__ == "__main__":
    asyncio.run(main())
