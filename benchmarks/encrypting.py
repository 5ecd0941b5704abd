"""What secret fields cost: the same work with two fields encrypted, and with none, in turns."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from benchmarks.reading import Reading, Scale, compare
from benchmarks.shop import BUSINESS, TENANT, Done, copied, create, discard, relay
from posthouse import App, Event, Payload, Personal, Secrets, Service, Tx
from posthouse.app import app_of

GOAL = 0.7
"""The share of the speed that is left."""
PERSONS = 100

Work = Callable[[bool, int], Awaitable[float]]
"""With secrets or without, in that round: the seconds of processor time that it took. Who else is at work does not count."""


class Registered(Payload):
    guest_id: str
    number: int
    name: Annotated[str, Personal("identity")]
    email: Annotated[str, Personal("contact")]
    note: str = "A few words that a real event would carry in its fields. " * 7


def desk_in(folder: Path, on: bool) -> Service:
    """The producer, on files in a folder."""
    desk = Service("desk", namespace="hotel")
    App(
        desk,
        store=f"sqlite:///{folder / 'desk.db'}",
        broker=f"embedded:///{folder / 'log.db'}",
        secrets=_secrets(folder, on),
    )
    desk.event("guest.registered.v1", key="guest_id", about="guest_id")(Registered)
    desk.setup(create)
    return desk


def mail_in(keys: Path, place: Path, done: Done, *, on: bool) -> Service:
    """The consumer: one row for each event."""
    mail = Service("mail", namespace="hotel")
    App(
        mail,
        store=f"sqlite:///{place / 'mail.db'}",
        broker=f"embedded:///{place / 'log.db'}",
        secrets=_secrets(keys, on),
    )
    mail.external("hotel.desk.guest.registered.v1", key="guest_id")(Registered)
    mail.setup(create)

    @mail.on(Registered)
    async def write(event: Event[Registered], tx: Tx) -> None:
        await tx.execute(BUSINESS, (event.data.name, event.data.number))
        done()

    return mail


def _secrets(folder: Path, on: bool) -> Secrets | None:
    return (
        Secrets(keys=f"sqlite:///{folder / 'keys.db'}", master=f"file:{folder / 'master.key'}", reads=["*"])
        if on
        else None
    )


def registered(number: int) -> Registered:
    """One of 100 guests in turn."""
    guest = number % PERSONS
    return Registered(guest_id=f"g{guest}", number=number, name=f"Guest {guest}", email=f"guest.{guest}@example.org")


async def encrypting(folder: Path, scale: Scale) -> list[Reading]:
    """Publish a hundred at once, and consume, the keys in memory. Beside each the same without secrets on both sides: what
    the machine does to a comparison."""
    count = scale.count(1_000)
    places = {on: folder / ("on" if on else "off") for on in (True, False)}
    desks: dict[bool, Service] = {}
    for on, place in places.items():
        place.mkdir()
        desks[on] = desk_in(place, on)
        await _said(desks[on], 0, count)
        await relay(desks[on])
        await desks[on].aclose()  # so that all of the log is in its file

    async def publish(on: bool, number: int) -> float:
        began = time.process_time()
        await _said(desks[on], number * count, count)
        return time.process_time() - began

    logs = {on: copied(place / "log.db", place / "log") for on, place in places.items()}
    persons = [f"g{number}" for number in range(PERSONS)]
    if (held := app_of(desks[True]).opened.vault) is not None:
        await held.keyring.fetch(TENANT, persons)

    async def consume(on: bool, number: int) -> float:
        place = Path(tempfile.mkdtemp(dir=folder)) / "copy"
        copied(logs[on], place)
        done = Done(count)
        mail = mail_in(places[on], place, done, on=on)
        [consumer] = (await app_of(mail).opened.prepare()).consumers
        if (vault := app_of(mail).opened.vault) is not None:
            await vault.keyring.fetch(TENANT, persons)
        began = time.process_time()
        await consumer.run(done.stop)
        took = time.process_time() - began
        await mail.aclose()
        discard(place)
        return took

    works: dict[str, Work] = {"publish-100": publish, "consume": consume}
    readings, rounds = [], scale.turns(9)
    try:
        for name, work in works.items():
            secret, plain = partial(work, True), partial(work, False)
            readings += [
                await compare(f"secrets {name}", secret, plain, rounds=rounds, count=count, goal=GOAL),
                await compare(f"{name}, neither secret", plain, plain, rounds=rounds, count=count),
            ]
        return readings
    finally:
        for desk in desks.values():
            await desk.aclose()


async def _said(desk: Service, first: int, count: int) -> None:
    for number in range(first, first + count, 100):
        async with desk.transaction(TENANT) as tx:
            for one in map(registered, range(number, number + 100)):
                await tx.execute(BUSINESS, (one.name, one.number))
                tx.publish(one)
