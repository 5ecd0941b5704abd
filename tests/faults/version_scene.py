"""A hotel that publishes two versions of a fact together; run as a script, it does so until it is killed."""

from __future__ import annotations

import asyncio
import sys

from posthouse import App, Payload, Service
from posthouse.contracts import Topics


class Booked(Payload):
    stay: str
    number: int


class BookedByName(Payload):
    stay: str
    number: int
    guest: str


def hotel_on(store: str, broker: str, topics: Topics) -> Service:
    hotel = Service("hotel", topics=topics)
    App(hotel, store=store, broker=broker)
    hotel.event("stay.booked.v1", key="stay")(Booked)
    hotel.event("stay.booked.v2", key="stay")(BookedByName)
    hotel.downcast(BookedByName, to=Booked)(lambda new: Booked(stay=new.stay, number=new.number))
    return hotel


async def book(hotel: Service, numbers: range) -> None:
    for number in numbers:
        async with hotel.transaction("t1") as tx:
            tx.publish(BookedByName(stay=f"s{number % 3}", number=number, guest="Ada"))


async def _until_killed(store: str, broker: str) -> None:
    await book(hotel_on(store, broker, "subject"), range(1_000_000))


if __name__ == "__main__":
    asyncio.run(_until_killed(*sys.argv[1:]))
