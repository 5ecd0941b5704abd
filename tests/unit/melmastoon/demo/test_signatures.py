"""Facts that somebody else says in the name of the house."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from melmastoon.demo.secrets import secrets_in
from melmastoon.demo.signatures import make_keys, signing_of
from melmastoon.facts.property import RoomAdded
from melmastoon.housekeeping import housekeeping
from melmastoon.property import property as houses
from posthouse import App, Payload, Service, app_of
from posthouse.clock import SystemClock
from posthouse.store import HeldFilter
from posthouse.testing import rehost
from posthouse.trust.signatures.keys import read_keys
from tests.kit.waiting import eventually
from tests.unit.melmastoon.stay import rows


@asynccontextmanager
async def at_work(folder: Path, *services: Service) -> AsyncIterator[None]:
    """Services of the house on files in a folder, with the keys that it has."""
    async with AsyncExitStack() as stack:
        for service in services:
            signing, broker = signing_of(folder, service), f"embedded:///{folder / 'log.db'}"
            store = f"sqlite:///{folder / f'{service.name}.db'}"
            before = rehost(
                service,
                store=store,
                broker=broker,
                clock=SystemClock(),
                signing=signing,
                secrets=secrets_in(folder, service),
            )
            stack.callback(service.hosted_by, before)
            stack.push_async_callback(service.aclose)
            await stack.enter_async_context(app_of(service).running())
        yield


class Invented(Payload):
    """A room, as the property service says it."""

    room_id: str
    property_id: str = "p1"
    room_type: str = "double"
    number: str = "1"


@asynccontextmanager
async def stranger(folder: Path, *, own_key: bool) -> AsyncIterator[Service]:
    """Somebody who reaches the log and calls himself the property service: without a key, or with one of his own making."""
    lair = folder / "lair"
    lair.mkdir()
    service = Service("property", namespace="melmastoon")
    service.event("room.added.v1", key="room_id")(Invented)
    make_keys(lair, [service])
    signing = signing_of(lair, service) if own_key else None
    app = App(service, store=f"sqlite:///{lair / 'own.db'}", broker=f"embedded:///{folder / 'log.db'}", signing=signing)
    async with app.running():
        yield service
    await app.aclose()


@pytest.mark.parametrize(("own_key", "reason"), [(False, "unsigned"), (True, "forged")])
async def test_a_stranger_who_says_facts_of_the_house_is_not_believed(
    tmp_path: Path, own_key: bool, reason: str
) -> None:
    make_keys(tmp_path, [houses, housekeeping])
    async with at_work(tmp_path, houses, housekeeping), stranger(tmp_path, own_key=own_key) as somebody:
        async with houses.transaction("t1") as tx:
            tx.publish(
                RoomAdded(room_id="true", property_id="p1", room_type="double", number="1"),
                idempotency_key="property:room:true",
            )
        async with somebody.transaction("t1") as tx:
            tx.publish(Invented(room_id="false"))
        await eventually(lambda: rows(housekeeping, "SELECT room_id FROM rooms"), right=lambda found: found)
        store = app_of(housekeeping).store
        (held,) = await eventually(lambda: store.held.find(HeldFilter()), right=lambda found: len(found) == 1)
        assert held.state == "quarantined"
        assert held.reason.startswith(reason)
        assert [tuple(row) for row in await rows(housekeeping, "SELECT room_id FROM rooms")] == [("true",)]


def test_each_service_has_a_key_of_its_own_and_a_second_process_finds_them(tmp_path: Path) -> None:
    make_keys(tmp_path, [houses, housekeeping])
    made = read_keys(tmp_path / "keys.toml")
    assert {key.source for key in made.values()} == {"/melmastoon/property", "/melmastoon/housekeeping"}
    make_keys(tmp_path, [houses, housekeeping])
    assert read_keys(tmp_path / "keys.toml") == made
    for service in (houses, housekeeping):
        half = (tmp_path / "private" / service.name).read_text()
        assert half.startswith(f"{service.name}-1:")
        assert half.count("\n") == 1
