"""`rehost` and `Harness` with secret fields, signatures and rights, all on: what is tested there is what runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import pytest
import pytest_asyncio

from posthouse import App, Event, Payload, Personal, Rights, RuleBroken, Secrets, Service, Tx, app_of
from posthouse.clock import SystemClock
from posthouse.erasure import erase
from posthouse.events import decode_any
from posthouse.processes import Saga, Turn, starts
from posthouse.seam.seals import SEAL
from posthouse.testing import Harness, assert_survives_crashes, rehost
from posthouse.trust.secrets import ERASED
from posthouse.watch.status import drained
from tests.kit.guests import GuestRegistered, Hotel
from tests.kit.signing import Keys
from tests.kit.waiting import eventually


class GuestWelcomed(Payload):
    guest_id: str
    words: Annotated[str, Personal("identity")]


class Trusting(Hotel):
    """A hotel with everything of trust on, and a saga that passes a name on."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.welcomed: list[str] = []
        self.service.event("guest.welcomed.v1", key="guest_id", about="guest_id")(GuestWelcomed)
        self.service.on(GuestWelcomed, consumer="door")(self.welcome)
        self.states: list[str] = []
        states = self.states

        @self.service.saga("stay", correlate="guest_id")
        class Stay(Saga):
            guest_id: str

            @starts(GuestRegistered)
            def begin(self, event: Event[GuestRegistered], turn: Turn) -> None:
                states.append(event.data.name)
                turn.publish(GuestWelcomed(guest_id=self.guest_id, words=event.data.name))
                turn.complete()

        keys = Keys(folder)
        keys.make("hotel-1", "/hotel")
        self.app = App(
            self.service,
            store=f"sqlite:///{folder}/hotel.db",
            broker=f"embedded:///{folder}/log.db",
            secrets=self.secrets,
            signing=keys.signing("hotel-1"),
            rights=Rights(tenants={"hotel": ["t*"]}),
        )

    async def welcome(self, event: Event[GuestWelcomed], tx: Tx) -> None:
        self.welcomed.append(event.data.words)


@pytest_asyncio.fixture
async def hotel(tmp_path: Path) -> AsyncIterator[Trusting]:
    hotel = Trusting(tmp_path)
    yield hotel
    await hotel.app.aclose()


async def test_in_a_harness_names_are_encrypted_signed_read_and_passed_on_unseen(hotel: Trusting) -> None:
    async with Harness(hotel.service) as harness:
        await hotel.register("g1", "Ada-Lovelace")
        await harness.publish(GuestRegistered(guest_id="g2", name="Bob"))
        await harness.settled()
        assert [event.data.name for event in hotel.heard] == ["Ada-Lovelace", "Bob"]
        assert sorted(hotel.welcomed) == ["Ada-Lovelace", "Bob"]
        assert len(hotel.states) == 2
        assert not {"Ada-Lovelace", "Bob"} & set(hotel.states), "a saga sees no secrets, as where it runs"
        rows = await app_of(hotel.service).store.outbox.kept(0, 10)
        events = [decode_any(row.headers, row.body) for row in rows]
        assert len(events) == 4
        assert all(SEAL in event.extensions and b"$secret" in event.data for event in events)
        assert [fact.data.name for fact in await harness.published(GuestRegistered)] == ["Ada-Lovelace", "Bob"]
        with pytest.raises(RuleBroken, match="may not publish for the tenant 'x1'"):
            await hotel.register("g1", "Ada", tenant="x1")
        await harness.assert_replay_safe()


async def test_a_harness_has_keys_of_its_own_and_leaves_those_of_persons_alone(hotel: Trusting, tmp_path: Path) -> None:
    async with Harness(hotel.service):
        await hotel.register("g1", "Ada-Lovelace")
        folder = await asyncio.to_thread(lambda: list(tmp_path.iterdir()))
    assert not {"keys.db", "master.key"} & {file.name for file in folder}


async def test_a_power_cut_after_any_step_changes_nothing_of_what_is_said_in_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    service = Service("hotel")
    service.event("guest.welcomed.v1", key="guest_id", about="guest_id")(GuestWelcomed)
    service.on(GuestWelcomed)(_listen)
    App(service, secrets=Secrets(reads=["*"]))

    async def scenario(harness: Harness) -> None:
        await harness.publish(GuestWelcomed(guest_id="g1", words="Ada"))
        await harness.settled()

    crashes = await assert_survives_crashes(scenario, service)
    assert crashes.runs == crashes.steps > 3
    assert await asyncio.to_thread(lambda: list(tmp_path.glob("posthouse-*"))) == [], "it has keys of its own"


async def _listen(event: Event[GuestWelcomed], tx: Tx) -> None:
    assert event.data.words == "Ada"


async def test_in_a_harness_somebody_is_erased(hotel: Trusting) -> None:
    async with Harness(hotel.service) as harness:
        await hotel.register("g1", "Ada-Lovelace")
        await harness.settled()
        done = await erase(hotel.service, "t1", "g1", why="asked")
        assert {one.opened for one in done.places} == {0}
        assert done.proven, done
        await harness.settled()
        assert await harness.held(hotel.service) == []
        assert [fact.data.name for fact in await harness.published(GuestRegistered)] == [ERASED]
        assert len(await harness.published(hotel.erased)) == 1
        with pytest.raises(RuleBroken, match="was erased"):
            await hotel.register("g1", "Ada")


async def test_a_harness_takes_what_the_environment_says_about_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTHOUSE_SECRETS_KEYS", f"sqlite:///{tmp_path}/keys.db")
    monkeypatch.setenv("POSTHOUSE_SECRETS_MASTER", f"file:{tmp_path}/master.key")
    monkeypatch.setenv("POSTHOUSE_SECRETS_READS", "identity")
    service, seen = Service("hotel"), list[str]()
    service.event("guest.welcomed.v1", key="guest_id", about="guest_id")(GuestWelcomed)

    @service.on(GuestWelcomed)
    async def welcome(event: Event[GuestWelcomed], tx: Tx) -> None:
        seen.append(event.data.words)

    App(service)
    async with Harness(service) as harness:
        await harness.publish(GuestWelcomed(guest_id="g1", words="Ada"))
        await harness.settled()
    assert seen == ["Ada"]


async def test_a_service_that_runs_elsewhere_for_a_while_keeps_secrets_signatures_and_rights(
    hotel: Trusting, tmp_path: Path
) -> None:
    await hotel.register("g0", "before")
    store, broker = f"sqlite:///{tmp_path}/other.db", f"embedded:///{tmp_path}/other-log.db"
    before = rehost(hotel.service, store=store, broker=broker, clock=SystemClock())
    try:
        async with app_of(hotel.service).running():
            await hotel.register("g1", "Ada-Lovelace")
            await eventually(lambda: hotel.welcomed)
            await drained(hotel.service)
            rows = await app_of(hotel.service).store.outbox.kept(0, 10)
            events = [decode_any(row.headers, row.body) for row in rows]
            assert all(SEAL in event.extensions and b"$secret" in event.data for event in events)
            with pytest.raises(RuleBroken, match="may not publish for the tenant 'x1'"):
                await hotel.register("g1", "Ada", tenant="x1")
            assert (await erase(hotel.service, "t1", "g1", why="asked")).proven
    finally:
        await app_of(hotel.service).aclose()
        hotel.service.hosted_by(before)
    assert hotel.welcomed == ["Ada-Lovelace"]
    assert hotel.states != ["Ada-Lovelace"]
    async with hotel.app.running():
        await eventually(lambda: len(hotel.heard) == 2)
    assert [event.data.name for event in hotel.heard] == ["Ada-Lovelace", "before"]
