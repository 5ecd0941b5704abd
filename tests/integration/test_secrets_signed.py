"""Secret fields and signatures together: what was signed over encrypted values verifies after the key of a person was destroyed."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec.structs import replace

from posthouse import App, Event, Policy, Service, Settings, Tx
from posthouse.broker import Frame
from posthouse.erasure import erase, reapply_all, vault_of
from posthouse.events import codec_of, decode_any
from posthouse.seam.seals import SEAL
from posthouse.store import HeldEvent, HeldFilter
from posthouse.trust.secrets import ERASED
from posthouse.trust.secrets.keys.postgres import PostgresKeys
from posthouse.watch.status import drained
from tests.kit.guests import GuestRegistered, Hotel
from tests.kit.servers.postgres import PostgresServer
from tests.kit.signing import Keys
from tests.kit.waiting import eventually


class Signed(Hotel):
    """A hotel whose facts are encrypted and signed, and nothing else is believed."""

    def __init__(self, folder: Path, *, store: str = "", broker: str = "", keys: str = "") -> None:
        super().__init__(folder, store=store, broker=broker, keys=keys)
        self.store = store or f"sqlite:///{folder}/hotel.db"
        self.broker = broker or f"embedded:///{folder}/log.db"
        self.signatures = Keys(folder)
        self.signatures.make("hotel-1", "/hotel")
        self.app = App(
            self.service,
            store=self.store,
            broker=self.broker,
            secrets=self.secrets,
            signing=self.signatures.signing("hotel-1"),
        )

    async def held(self) -> list[HeldEvent]:
        return list(await self.app.store.held.find(HeldFilter()))


@pytest.fixture
def databases(postgres_server: PostgresServer) -> Iterator[tuple[str, str]]:
    with postgres_server.database() as store, postgres_server.database() as keys:
        yield store, keys


@pytest_asyncio.fixture(params=["sqlite", "postgresql"])
async def hotel(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Signed]:
    if request.param == "sqlite":
        hotel = Signed(tmp_path)
    else:
        store, keys = request.getfixturevalue("databases")
        ring = PostgresKeys(keys)
        await ring.upgrade()
        await ring.aclose()
        hotel = Signed(tmp_path, store=store, broker=store, keys=keys)
        await hotel.app.store.upgrade()
    yield hotel
    await hotel.app.aclose()


async def test_facts_of_somebody_who_was_erased_still_verify_and_a_new_reader_sees_placeholders(hotel: Signed) -> None:
    async with hotel.app.running():
        await hotel.register("g1", "Ada-Lovelace", room="1")
        await hotel.register("g2", "Bob", room="2")
        await hotel.register("g1", "Ada-Lovelace", room="3")
        await eventually(lambda: len(hotel.heard) == 3)
        assert {event.data.name for event in hotel.heard} == {"Ada-Lovelace", "Bob"}
        rows = [decode_any(row.headers, row.body) for row in await hotel.app.store.outbox.kept(0, 10)]
        assert all(SEAL in event.extensions and b"Ada" not in event.data for event in rows)
        done = await erase(hotel.service, "t1", "g1", why="asked")
        assert done.proven, done
        await drained(hotel.service)
        assert await hotel.held() == []

    late = Service("desk")
    heard: list[GuestRegistered] = []

    @late.on(GuestRegistered, consumer="desk-late", policy=Policy(max_attempts=1))
    async def read(event: Event[GuestRegistered], tx: Tx) -> None:
        heard.append(event.data)

    folder = hotel.folder
    app = App(
        late,
        store=f"sqlite:///{folder}/desk.db",
        broker=f"{hotel.broker}{'' if hotel.broker.startswith('postgres') else '?single_host=true'}",
        secrets=hotel.secrets,
        signing=hotel.signatures.signing(),
        settings=Settings(start="earliest"),
    )
    try:
        async with app.running():
            await eventually(lambda: len(heard) == 3)
            assert list(await app.store.held.find(HeldFilter())) == []
    finally:
        await app.aclose()
    assert [(one.name, one.email, one.room) for one in heard if one.guest_id == "g1"] == [
        (ERASED, ERASED, "1"),
        (ERASED, ERASED, "3"),
    ]
    assert [one.name for one in heard if one.guest_id == "g2"] == ["Bob"]


async def test_an_event_that_was_held_before_its_person_was_erased_is_no_forgery_when_it_is_tried_again(
    hotel: Signed,
) -> None:
    hotel.fails = True
    async with hotel.app.running():
        await hotel.register("g1", "Ada-Lovelace")
        (held,) = await eventually(lambda: hotel.app.store.held.find(HeldFilter(state="dead")))
        assert b"Ada" not in held.body
        assert (await erase(hotel.service, "t1", "g1", why="asked")).proven
        hotel.fails = False
        await hotel.app.held.retry(held.id)
        await eventually(lambda: hotel.heard)
        await drained(hotel.service)
        assert await hotel.held() == []
    assert hotel.heard[0].data.name == ERASED


async def test_a_ciphertext_that_was_changed_in_the_table_is_forged_and_nothing_of_it_is_opened(hotel: Signed) -> None:
    await hotel.register("g1", "Ada")
    await hotel.register("g2", "Bob")
    (first, _) = await hotel.app.store.outbox.kept(0, 10)
    place = first.body.index(b'"box":"') + len(b'"box":"')
    body = first.body[:place] + (b"A" if first.body[place : place + 1] != b"A" else b"B") + first.body[place + 1 :]
    await changed(hotel, body, first.id)
    async with hotel.app.running():
        (held,) = await eventually(hotel.held)
        await eventually(lambda: hotel.heard)
    assert (held.state, held.reason.split(":")[0]) == ("quarantined", "forged")
    assert [event.data.name for event in hotel.heard] == ["Bob"]


async def test_a_timer_of_somebody_is_signed_anew_when_it_fires_and_opens(hotel: Signed) -> None:
    async with hotel.app.running():
        async with hotel.service.transaction("t1") as tx:
            tx.publish(GuestRegistered(guest_id="g1", name="Ada"), after=0.05, timer="soon")
        await eventually(lambda: hotel.heard)
        assert await hotel.held() == []
    assert hotel.heard[0].data.name == "Ada"


async def changed(hotel: Signed, body: bytes, id: object) -> None:
    """A hand in the outbox, beside the library."""
    if hotel.store.startswith("sqlite"):
        with sqlite3.connect(hotel.folder / "hotel.db") as connection:
            assert connection.execute("UPDATE posthouse_outbox SET body = ? WHERE id = ?", (body, id)).rowcount == 1
        connection.close()
    else:
        import asyncpg

        server = await asyncpg.connect(hotel.store)
        assert await server.execute("UPDATE posthouse.outbox SET body = $1 WHERE id = $2", body, id) == "UPDATE 1"
        await server.close()


@pytest.mark.parametrize("body", ["forged", "unreadable"])
async def test_a_receipt_that_its_service_did_not_sign_erases_nobody_and_hides_no_true_one(
    hotel: Signed, body: str
) -> None:
    async with hotel.app.running():
        await erase(hotel.service, "t1", "g2", why="asked", by="ada")
        true = next(row for row in await hotel.app.store.outbox.kept(0, 100) if b"g2" in row.body)
        lie = codec_of(true.headers, true.body).encode(
            replace(decode_any(true.headers, true.body), id="lie", data=b'{"subject":"g1","at":1.0,"number":1}')
        )
        said = lie.body if body == "forged" else b"\xff{"
        await hotel.app.broker.publish([Frame(topic=true.topic, id="lie", headers=lie.headers, body=said)])
        await drained(hotel.service)
    assert await reapply_all(hotel.service, log=True) == (0, 1)
    assert {one.subject for one in await vault_of(hotel.service).store.erased("t1", ["g1", "g2"])} == {"g2"}
