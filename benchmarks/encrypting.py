"""What secret fields cost: the same work with two fields encrypted, and with none, in turns."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from benchmarks.reading import Reading, Scale
from benchmarks.shop import BUSINESS, TENANT, Done, copied, create, discard, relay
from benchmarks.spending import Kind, Spent, compared, nothing, spent
from posthouse import App, Event, Payload, Personal, Secrets, Service, Tx
from posthouse.app import app_of

GOAL = 0.7
"""The share of the speed that is left."""
PERSONS = 100


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


def mail_in(keys: Path, place: Path, done: Done, also: Callable[[], object], *, on: bool) -> Service:
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
        also()
        done()

    return mail


def _secrets(folder: Path, on: bool) -> Secrets | None:
    return (
        Secrets(keys=f"sqlite:///{folder / 'keys.db'}", master=f"file:{folder / 'master.key'}", reads=["*"])
        if on
        else None
    )


def registered(number: int, persons: int) -> Registered:
    """One of so many guests in turn."""
    guest = number % persons
    return Registered(guest_id=f"g{guest}", number=number, name=f"Guest {guest}", email=f"guest.{guest}@example.org")


async def encrypting(folder: Path, scale: Scale) -> list[Reading]:
    """Publish a hundred at once, and consume one by one: of 100 persons, whose keys are in memory, and of as many persons as there are
    events, whose keys are not, and are made when they are published."""
    count, rounds, bare = scale.count(1_000), scale.turns(9), _bare()
    readings = []
    for title, persons in (("keys in memory", PERSONS), ("keys not in memory", count)):
        place = folder / title.replace(" ", "-")
        warm = [f"g{number}" for number in range(PERSONS)] if persons == PERSONS else []
        logs: dict[bool, Path] = {}
        for on in (True, False):
            (within := place / ("on" if on else "off")).mkdir(parents=True)
            logs[on] = await _filled(within, on, count, persons)

        async def publish(warm: Sequence[str], persons: int, kind: Kind) -> Spent:
            on, also = kind == "ours", bare.encrypt if kind == "limit" else nothing
            new = Path(tempfile.mkdtemp(dir=folder))
            desk = desk_in(new, on)
            await app_of(desk).open()
            await _warm(desk, warm, make=True)
            took = await spent(_said(desk, count, persons, also))
            await desk.aclose()
            discard(new)
            return took

        async def consume(warm: Sequence[str], logs: Mapping[bool, Path], kind: Kind) -> Spent:
            on, also = kind == "ours", bare.decrypt if kind == "limit" else nothing
            new, done = Path(tempfile.mkdtemp(dir=folder)) / "copy", Done(count)
            copied(logs[on], new)
            mail = mail_in(logs[on].parent, new, done, also, on=on)
            [consumer] = (await app_of(mail).opened.prepare()).consumers
            await _warm(mail, warm)
            took = await spent(consumer.run(done.stop))
            await mail.aclose()
            discard(new)
            return took

        publishing, consuming = partial(publish, warm, persons), partial(consume, warm, logs)
        readings += await compared(f"publish by 100, {title}", publishing, rounds, count, GOAL)
        readings += await compared(f"consume by 1, {title}", consuming, rounds, count, GOAL)
    return readings


class Bare(NamedTuple):
    """Two fields encrypted or decrypted, and nothing else."""

    encrypt: Callable[[], object]
    decrypt: Callable[[], object]


def _bare() -> Bare:
    key, nonce, beside, said = AESGCM(AESGCM.generate_key(256)), bytes(12), bytes(150), b"guest.1@example.org"
    box = key.encrypt(nonce, said, beside)
    return Bare(
        lambda: (key.encrypt(nonce, said, beside), key.encrypt(nonce, said, beside)),
        lambda: (key.decrypt(nonce, box, beside), key.decrypt(nonce, box, beside)),
    )


async def _filled(place: Path, on: bool, count: int, persons: int) -> Path:
    """The log of what was published there."""
    desk = desk_in(place, on)
    await _said(desk, count, persons, nothing)
    await relay(desk)
    await desk.aclose()  # so that all of the log is in its file
    return place / "log.db"


async def _warm(service: Service, persons: Sequence[str], *, make: bool = False) -> None:
    if persons and (vault := app_of(service).opened.vault) is not None:
        await vault.keyring.fetch(TENANT, persons, make=make)


async def _said(desk: Service, count: int, persons: int, also: Callable[[], object]) -> None:
    for first in range(0, count, 100):
        async with desk.transaction(TENANT) as tx:
            for number in range(first, first + 100):
                one = registered(number, persons)
                await tx.execute(BUSINESS, (one.name, one.number))
                tx.publish(one)
                also()
