"""Secret fields: a guest's name and address leave encrypted, and the guest is erased."""

import asyncio
from typing import Annotated

from posthouse import App, Event, Payload, Personal, Secrets, Service, Tx, drained, is_withheld, subject_erased
from posthouse.erasure import erase

hotel = Service("hotel")


@hotel.event("guest.registered.v1", key="guest_id", about="guest_id")
class GuestRegistered(Payload):
    guest_id: str
    name: Annotated[str, Personal("identity")]
    email: Annotated[str, Personal("contact")]


GuestErased = subject_erased(hotel)


@hotel.on(GuestRegistered)
async def greet(event: Event[GuestRegistered], tx: Tx) -> None:
    name = "somebody" if is_withheld(event.data.name) else event.data.name
    print(f"welcome {name}, {event.data.email}")


@hotel.on(GuestErased, consumer="desk")
async def forget(event: Event[GuestErased], tx: Tx) -> None:  # type: ignore[valid-type]  # a class made here
    print(f"forget {event.data.subject}")


app = App(hotel, secrets=Secrets(reads=["contact"]))


async def main() -> None:
    async with app.running():
        async with hotel.transaction() as tx:
            tx.publish(GuestRegistered(guest_id="g1", name="Ada", email="ada@example.org"))
        await drained(hotel)
        done = await erase(hotel, "default", "g1", why="asked on 3 May")
        await drained(hotel)
        outbox = done.places[0]
        print(f"{outbox.place}: found {outbox.boxes} encrypted values, decrypted {outbox.opened}")


if __name__ == "__main__":
    asyncio.run(main())
