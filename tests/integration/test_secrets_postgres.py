"""Secret fields with store, log and keys on PostgreSQL, the keys in a database of their own."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from posthouse import RuleBroken
from posthouse.erasure import erase, prove
from posthouse.errors import ConfigurationError, SecretsUnavailable, ValueRefused
from posthouse.trust.secrets.keys.postgres import PostgresKeys
from posthouse.trust.secrets.keystore import Erasure
from posthouse.watch.status import drained
from tests.kit.guests import Hotel
from tests.kit.servers.postgres import PostgresServer
from tests.kit.waiting import eventually


@pytest.fixture
def keys_url(postgres_server: PostgresServer) -> Iterator[str]:
    with postgres_server.database() as url:
        yield url


@pytest.fixture
def store_url(postgres_server: PostgresServer) -> Iterator[str]:
    with postgres_server.database() as url:
        yield url


async def test_a_person_is_erased_from_tables_and_log(tmp_path: Path, store_url: str, keys_url: str) -> None:
    await made(keys_url)
    hotel = Hotel(tmp_path, store=store_url, broker=store_url, keys=keys_url)
    await hotel.app.store.upgrade()
    async with hotel.app.running():
        await hotel.register("g1", "Ada-Lovelace")
        await eventually(lambda: hotel.heard)
        await drained(hotel.service)
        assert hotel.heard[0].data.name == "Ada-Lovelace"
        with psycopg.connect(store_url) as run:
            (stored,) = run.execute(
                "SELECT string_agg(encode(body, 'escape'), '') FROM posthouse.outbox"
            ).fetchone() or ("",)
        assert "g1" in stored
        assert "Ada-Lovelace" not in stored
        done = await erase(hotel.service, "t1", "g1", why="asked")
        places = {one.place: (one.boxes, one.opened, one.plain) for one in done.places}
        assert (places["outbox"], places["log"], done.proven) == ((2, 0, 0), (2, 0, 0), True)
        with pytest.raises(RuleBroken, match="was erased"):
            await hotel.register("g1", "Ada")
        await drained(hotel.service)


async def test_the_database_of_a_service_is_refused_for_keys(tmp_path: Path, store_url: str) -> None:
    hotel = Hotel(tmp_path, store=store_url, broker=store_url, keys=store_url)
    await hotel.app.store.upgrade()
    with pytest.raises(ConfigurationError, match="lies in the database of a service"):
        await hotel.app.open()
    await hotel.app.aclose()


async def test_a_key_store_without_tables_says_what_makes_them(tmp_path: Path, store_url: str, keys_url: str) -> None:
    hotel = Hotel(tmp_path, store=store_url, broker=store_url, keys=keys_url)
    await hotel.app.store.upgrade()
    with pytest.raises(ConfigurationError, match="posthouse subject upgrade TARGET"):
        await hotel.app.open()
    await hotel.app.aclose()


async def test_many_who_want_a_key_at_once_get_the_same(keys_url: str) -> None:
    await made(keys_url)
    stores = [PostgresKeys(keys_url) for _ in range(4)]
    found = await asyncio.gather(*(one.add("t1", {"g1": bytes([n])}) for n, one in enumerate(stores)))
    assert len({keys["g1"].wrapped for keys in found}) == 1
    first = await stores[0].erase(Erasure(tenant="t1", subject="g1", why="asked", by="dpo", at=1.0))
    again = await stores[1].erase(Erasure(tenant="t1", subject="g1", why="twice", by="dpo", at=2.0))
    assert first == again
    assert first.number > 0
    assert (await stores[2].add("t1", {"g1": b"new"}))["g1"].wrapped is None
    for one in stores:
        await one.aclose()


async def test_many_who_want_many_keys_in_any_order_get_the_same_and_nobody_erased_gets_one(keys_url: str) -> None:
    await made(keys_url)
    stores = [PostgresKeys(keys_url) for _ in range(4)]
    await stores[0].erase(Erasure(tenant="t1", subject="g7", why="asked", by="dpo", at=1.0))
    persons = [f"g{number}" for number in range(100)]
    for turn in range(5):
        orders = [persons[place * 25 :] + persons[: place * 25] for place in range(4)]
        wanted = [{f"{turn}{one}": bytes([place]) for one in order} for place, order in enumerate(orders)]
        found = await asyncio.gather(*(one.add("t1", keys) for one, keys in zip(stores, wanted, strict=True)))
        assert all(keys == found[0] and len(keys) == 100 for keys in found)
    known = await stores[1].add("t1", dict.fromkeys(persons, b"new"))
    assert [subject for subject, key in known.items() if key.wrapped is None] == ["g7"]
    assert await stores[2].get("t1", persons) == known
    for one in stores:
        await one.aclose()


async def test_a_server_that_is_away_is_told_of(tmp_path: Path) -> None:
    keys = PostgresKeys("postgresql://nobody@127.0.0.1:1/keys", patience=1.0)
    with pytest.raises(SecretsUnavailable, match="key store"):
        await keys.get("t1", ["g1"])


async def test_others_are_not_erased(tmp_path: Path, store_url: str, keys_url: str) -> None:
    await made(keys_url)
    hotel = Hotel(tmp_path, store=store_url, broker=store_url, keys=keys_url)
    await hotel.app.store.upgrade()
    await hotel.register("g1", "Ada")
    await hotel.register("g2", "Bob")
    await erase(hotel.service, "t1", "g1", why="asked")
    found = {one.place: (one.boxes, one.opened) for one in await prove(hotel.app, "t1", "g2")}
    assert found["outbox"] == (2, 2)
    await hotel.app.aclose()


async def made(url: str) -> None:
    keys = PostgresKeys(url)
    assert await keys.upgrade()
    assert not await keys.upgrade()
    await keys.aclose()


async def test_a_value_that_the_server_refuses_is_not_taken_for_a_server_that_is_away(keys_url: str) -> None:
    await made(keys_url)
    keys = PostgresKeys(keys_url)
    for subject in (secrets.token_hex(4_000), "a\x00b", "half of a pair \ud800"):
        with pytest.raises(ValueRefused, match="takes no such value"):
            await keys.add("t1", {subject: b"key"})
    longest = "ü" * 128
    await keys.add("t" * 256, {longest: b"key"})
    assert (await keys.erase(Erasure(tenant="t" * 256, subject=longest, why="asked", by="me", at=1.0))).number > 0
    await keys.aclose()
