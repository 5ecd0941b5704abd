"""A catalogue of rooms that feeds a read model: what the tests here are about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

from posthouse import Event, Payload, Policy, Service
from posthouse.contracts.personal import Personal
from posthouse.processes import Aggregate, Model, Projection
from posthouse.service import Envelope


class Hotel:
    """A service with an aggregate, and a read model of it, made anew for each test."""

    def __init__(
        self,
        *,
        version: int = 1,
        lists: bool = True,
        reads: bool = True,
        cross_tenant: bool = False,
        policy: Policy | None = None,
        wire: Envelope = "structured",
    ) -> None:
        self.service = Service("rooms", envelope=wire)
        self._policy = policy
        self.poison = ""
        """The room at which handlers fail."""
        self.watch: Callable[[Sequence[Event[object]], Model], object] = lambda events, model: None

        @self.service.event("room.listed.v1", key="room_id")
        class RoomListed(Payload):
            room_id: str
            price: int
            host: Annotated[str, Personal("identity")] = ""

        @self.service.event("room.priced.v1", key="room_id")
        class RoomPriced(Payload):
            room_id: str
            price: int

        self.RoomListed = RoomListed
        self.RoomPriced = RoomPriced
        self.rooms: Aggregate[int, object] = self.service.aggregate(
            "room", initial=int, evolve=lambda count, _: count + 1, events=(RoomListed, RoomPriced)
        )
        if not reads:
            return
        self.listings: Projection = self.service.projection(
            "listings", version=version, cross_tenant=cross_tenant, strips=("host",) if cross_tenant else ()
        )
        self.seen: list[tuple[int, str, bool]] = []
        """Generation, event and whether it was live, for each that a handler was given."""
        self.listings.setup(self.tables)
        if lists:
            self._declare_list_handler()
        else:
            self._declare_plain_handlers()

    async def tables(self, model: Model) -> None:
        """What the set-up makes."""
        await model.execute(
            f"CREATE TABLE {model.table('listing')} (tenant TEXT, room TEXT, price BIGINT, changes INTEGER, "
            "PRIMARY KEY (tenant, room))"
        )

    def _declare_list_handler(self) -> None:
        @self.listings.on(self.RoomListed, self.RoomPriced, policy=self._policy)
        async def fold(events: Sequence[Event[object]], model: Model) -> None:
            self._note(events, model)
            for event in events:
                await self._write(event, model)

    def _declare_plain_handlers(self) -> None:
        @self.listings.on(self.RoomListed)
        async def listed(event: Event[object], model: Model) -> None:
            self._note([event], model)
            await self._write(event, model)

        @self.listings.on(self.RoomPriced)
        async def priced(event: Event[object], model: Model) -> None:
            self._note([event], model)
            await self._write(event, model)

    def _note(self, events: Sequence[Event[object]], model: Model) -> None:
        self.watch(events, model)
        self.seen += [(model.generation, event.id, model.live) for event in events]

    async def _write(self, event: Event[object], model: Model) -> None:
        room, price = getattr(event.data, "room_id"), getattr(event.data, "price")  # noqa: B009 - made in a function
        if room == self.poison:
            raise ValueError(room)
        table = model.table("listing")
        await model.execute(
            f"INSERT INTO {table} VALUES (?, ?, ?, 1) ON CONFLICT (tenant, room) "
            f"DO UPDATE SET price = excluded.price, changes = {table}.changes + 1",
            (event.tenant, room, price),
        )

    async def list_room(self, room: str, *prices: int, tenant: str = "t1") -> None:
        """One event for the room, and one for each further price."""
        async with self.service.transaction(tenant) as tx:
            version = (await self.rooms.load(tx, room)).version
            events = [
                self.RoomPriced(room_id=room, price=price)
                if version + place
                else self.RoomListed(room_id=room, price=price)
                for place, price in enumerate(prices)
            ]
            await self.rooms.append(tx, room, events, expected=version)

    async def rows(self) -> list[tuple[object, ...]]:
        """What readers see: tenant, room, price and how often it was changed."""
        async with self.service.transaction("t1") as tx:
            table = await self.listings.table(tx, "listing")
            return list(await tx.execute(f"SELECT tenant, room, price, changes FROM {table} ORDER BY tenant, room"))

    def count(self, generation: int) -> int:
        """How many events a generation was given."""
        return sum(number == generation for number, _, _ in self.seen)

    async def live(self) -> int:
        """The generation that is read."""
        async with self.service.transaction("t1") as tx:
            return int((await self.listings.table(tx, "listing")).rpartition("_")[2])
