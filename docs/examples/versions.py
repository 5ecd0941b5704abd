"""Two versions of one fact, published together; one consumer behind, one that has moved on."""

import asyncio
from datetime import date

from posthouse import Event, Payload, Service, Tx
from posthouse.governance.cutover import versions_of
from posthouse.testing import Harness

hotel = Service("hotel")
mail = Service("mail")
ledger = Service("ledger")

heard: list[str] = []


@hotel.event("stay.booked.v1", key="stay_id", deprecated=date(2027, 1, 31))
class StayBooked(Payload):
    stay_id: str
    guest: str


@hotel.event("stay.booked.v2", key="stay_id")
class StayBookedByName(Payload):
    stay_id: str
    first_name: str
    last_name: str


@hotel.downcast(StayBookedByName, to=StayBooked)
def as_v1(new: StayBookedByName) -> StayBooked:
    return StayBooked(stay_id=new.stay_id, guest=f"{new.first_name} {new.last_name}")


@mail.on(StayBooked)
async def welcome(event: Event[StayBooked], tx: Tx) -> None:
    heard.append(f"{event.type}: mail welcomes {event.data.guest}")


@ledger.upcast(StayBooked, to=StayBookedByName)
def as_v2(old: StayBooked) -> StayBookedByName:
    first, _, last = old.guest.partition(" ")
    return StayBookedByName(stay_id=old.stay_id, first_name=first, last_name=last)


@ledger.on(StayBookedByName)
async def enter(event: Event[StayBookedByName], tx: Tx) -> None:
    heard.append(f"{event.type}: ledger enters {event.data.last_name}")


async def main() -> None:
    async with Harness(hotel, mail, ledger) as harness:
        await harness.publish(StayBooked(stay_id="s1", guest="Grace Hopper"))  # a producer that is behind
        await harness.settled()
        await harness.publish(StayBookedByName(stay_id="s2", first_name="Ada", last_name="Byron"))
        await harness.settled()
        print(*sorted(heard), sep="\n")
        for _ in range(2):
            await harness.advance(10)  # housekeeping writes down what was seen
        for line in await versions_of([hotel, mail, ledger], retired={}):
            users = [name for name, at in line.consumers.items() if at is not None]
            print(line.subject, "| applied by", *users, "| deprecated", line.deprecated, "| beside", line.beside)


if __name__ == "__main__":
    asyncio.run(main())
