"""What a producer without secrets says that looks like an encrypted value: readers with secrets go on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from posthouse.broker import Frame, Topology
from posthouse.clock import new_id
from posthouse.events import BINARY, STRUCTURED, Codec, Event, timestamp
from posthouse.store import HeldEvent, HeldFilter
from posthouse.trust.secrets.keys.postgres import PostgresKeys
from tests.kit.guests import Hotel
from tests.kit.servers.postgres import PostgresServer
from tests.kit.waiting import eventually

TOPIC = "hotel.guest"


@pytest_asyncio.fixture(params=["sqlite", "postgresql"])
async def hotel(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Hotel]:
    if request.param == "sqlite":
        hotel = Hotel(tmp_path)
        yield hotel
        await hotel.app.aclose()
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    with server.database() as url:
        keys = PostgresKeys(url)
        await keys.upgrade()
        await keys.aclose()
        hotel = Hotel(tmp_path, keys=url)
        yield hotel
        await hotel.app.aclose()


def said(number: int, data: bytes, codec: Codec = STRUCTURED, content_type: str = "application/json") -> Frame:
    """A fact of another producer about one guest, with its number."""
    event = Event(
        id=new_id(),
        type="hotel.guest.registered.v1",
        source="/hotel",
        data=data,
        time=timestamp(1_800_000_000.0),
        tenant="t1",
        key="g1",
        sequence=number,
        content_type=content_type,
    )
    encoded = codec.encode(event)
    return Frame(topic=TOPIC, id=event.id, key="t1:g1", headers=encoded.headers, body=encoded.body)


def guest(**fields: object) -> bytes:
    return msgspec.json.encode({"guest_id": "g1", "name": "Ada", **fields})


async def publish(hotel: Hotel, *frames: Frame) -> None:
    await hotel.app.broker.ensure(Topology(topics=[TOPIC]))
    assert all(verdict.accepted for verdict in await hotel.app.broker.publish(frames))


async def held_behind(hotel: Hotel, poison: Frame) -> list[HeldEvent]:
    """What is held of a poisonous fact, once the one behind it in its key has been applied."""
    await publish(hotel, said(1, guest(room="1")), poison, said(3, guest(room="3")))
    async with hotel.app.running():
        await eventually(lambda: hotel.heard and hotel.heard[-1].data.room == "3", f"heard {hotel.heard}")
        return list(await hotel.app.store.held.find(HeldFilter()))


BOX = {"$secret": 1, "of": "g1", "kind": "contact", "gap": "text", "box": "AAAA"}


@pytest.mark.parametrize(
    "value",
    [
        BOX,
        {**BOX, "of": "nobody"},
        {**BOX, "of": ""},
        {**BOX, "of": "x" * 100_000},
        {**BOX, "box": "A" * 100_000},
        {**BOX, "box": "no base64"},
        {"$secret": 1, "of": "nobody"},
        [BOX] * 1_000,
        [{**BOX, "of": f"g{number}"} for number in range(2_000)],
    ],
    ids=["known", "nobody", "empty", "long", "large", "no base64", "no box", "many", "of many"],
)
@pytest.mark.parametrize("field", ["name", "room"])
async def test_what_looks_like_an_encrypted_value_and_is_none_is_quarantined_and_its_key_goes_on(
    hotel: Hotel, field: str, value: object
) -> None:
    await hotel.app.open()
    assert hotel.app.opened.vault is not None
    await hotel.app.opened.vault.keyring.fetch("t1", ["g1"], make=True)
    (held,) = await held_behind(hotel, said(2, guest(**{field: value})))
    assert (held.state, held.reason[:11]) == ("quarantined", "unreadable:")
    assert [event.data.room for event in hotel.heard] == ["1", "3"]


@pytest.mark.parametrize(
    "value",
    [{"$secret": 2, "of": "g1"}, {"$secret": "1"}, {"$secret": 1}, {**BOX, "more": 1}, {"deep": [{"$secret": None}]}],
    ids=["another version", "text", "of nobody", "more", "deep"],
)
async def test_what_only_has_the_mark_of_an_encrypted_value_is_plain_data(hotel: Hotel, value: object) -> None:
    held = await held_behind(hotel, said(2, guest(note=value)))
    assert held == []
    assert [event.data.name for event in hotel.heard] == ["Ada", "Ada", "Ada"]


@pytest.mark.parametrize(
    "content_type", ["application/notjson", "text/json", "json", "application/json; charset=utf-8"]
)
@pytest.mark.parametrize(
    "data",
    [b'{"$secret": 1, "of": "g1"', b'{"guest_id":"g1","name":{"$secret":1,"of":"a\\u0000b"}}', b'["\xff", "$secret"]'],
    ids=["cut", "a NUL", "no UTF-8"],
)
async def test_data_that_only_says_that_it_is_json_keeps_nobody_waiting(
    hotel: Hotel, content_type: str, data: bytes
) -> None:
    frame = said(2, b"{}", BINARY)
    poison = msgspec.structs.replace(frame, headers={**frame.headers, "content-type": content_type}, body=data)
    await publish(hotel, said(1, guest(room="1")), poison)
    async with hotel.app.running():
        await eventually(lambda: hotel.heard, "its neighbour is applied")

        async def settled() -> list[HeldEvent]:
            return [
                one for one in await hotel.app.store.held.find(HeldFilter()) if one.state in ("dead", "quarantined")
            ]

        (held,) = await eventually(settled, "it is given up with a reason")
        assert held.state == "quarantined" or held.reason == "contract", held.reason
        assert held.attempts <= 1
