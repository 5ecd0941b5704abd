"""An App with an audit log logs what its classes ask for, once, and signs it when it is time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posthouse import App, Audit, Event, Payload, Service, Tx
from posthouse.broker import Frame
from posthouse.erasure import erase
from posthouse.errors import ConfigurationError
from posthouse.history.audit.auditor import Auditor
from posthouse.history.audit.batches import EVENTS, batch_path, id_of, read_batch, read_travelled
from posthouse.history.audit.keys import signer_in, verifiers
from posthouse.history.audit.log import seal
from posthouse.history.audit.places.folder import Folder
from posthouse.history.audit.proofs import check, prove
from posthouse.history.audit.settings import audit_here
from posthouse.history.audit.verify import verify
from posthouse.trust.signatures.keys import read_private, write_keys
from tests.kit.audit import START
from tests.kit.guests import Hotel
from tests.kit.signing import Keys
from tests.kit.waiting import eventually


class Shop:
    """A service that says cold, warm and hot facts, and reads another's; its audit log in `log`."""

    def __init__(self, folder: Path, keys: Keys, **more: object) -> None:
        self.folder = folder
        self.service = orders = Service("orders", namespace="shop")

        @orders.event("invoice.issued.v1", key="id", retention="cold")
        class Issued(Payload):
            id: str

        @orders.event("order.placed.v1", key="id", retention="warm")
        class Placed(Payload):
            id: str

        @orders.event("page.seen.v1", key="id")
        class Seen(Payload):
            id: str

        @orders.external("bank.payments.payment.taken.v1", key="id")
        class Taken(Payload):
            id: str

        @orders.on(Taken)
        async def note(event: Event[Taken], tx: Tx) -> None:
            pass

        self.facts = (Issued, Placed, Seen)
        keys.signing("a1")  # writes the private half
        self.audit = Audit(
            place=str(folder / "log"),
            second=str(folder / "second"),
            keys=keys.file,
            private=keys.file.with_name("private-a1"),
            wait=0.0,
            **more,  # type: ignore[arg-type]  # some options of Audit
        )
        self.app = App(orders, store=f"sqlite:///{folder}/s.db", broker=f"embedded:///{folder}/b.db", audit=self.audit)
        self.place = Folder(folder / "log")

    async def say(self, *ids: str) -> None:
        async with self.service.transaction("t1") as tx:
            for id in ids:
                for fact in self.facts:
                    tx.publish(fact(id=id))

    def logged(self) -> list[str]:
        """Topics and ids of what is in the log."""
        batches = [read_batch(self.place.get(path) or b"") for path in self.place.list(EVENTS)]
        return [read_travelled(event).topic for batch in batches for event in batch.events]

    def signed(self) -> int:
        report = verify(self.place, verifiers(Path(self.audit.keys)), Folder(self.folder / "second"))
        assert [one.words for one in report.findings if one.words.count("holds no checkpoint") == 0] == []
        return report.signed


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    made = Keys(tmp_path)
    made.make("a1", source="/shop", use="audit")
    return made


@contextlib.asynccontextmanager
async def running(shop: Shop) -> AsyncIterator[None]:
    async with shop.app.running():
        yield


@pytest.mark.parametrize(
    ("asked", "topics"),
    [
        ({}, {"shop.orders.invoice"}),
        ({"classes": ("cold", "warm")}, {"shop.orders.invoice", "shop.orders.order"}),
        ({"classes": (), "types": ("shop.orders.page.*",)}, {"shop.orders.page"}),
    ],
)
async def test_what_the_classes_ask_for_is_logged_and_signed(
    tmp_path: Path, keys: Keys, asked: dict[str, object], topics: set[str]
) -> None:
    shop = Shop(tmp_path, keys, every=0.05, **asked)
    async with running(shop):
        await shop.say("1", "2", "3")
        await eventually(lambda: len(shop.logged()) == 3 * len(topics))
        await eventually(lambda: shop.signed() == 3 * len(topics))
    assert set(shop.logged()) == topics


async def test_facts_of_others_and_what_nobody_can_read_are_logged_too(tmp_path: Path, keys: Keys) -> None:
    shop = Shop(tmp_path, keys)
    async with running(shop):
        await shop.app.broker.publish([Frame(topic="bank.payments.payment", id="strange", body=b"\xff", key="t1:1")])
        await eventually(lambda: shop.logged() == ["bank.payments.payment"])
    [event] = read_batch(shop.place.get(batch_path(0)) or b"").events
    found = read_travelled(event)
    assert (id_of(event), found.body, found.key) == ("strange", b"\xff", "t1:1")


async def test_a_restart_logs_nothing_twice(tmp_path: Path, keys: Keys) -> None:
    for number in range(3):
        shop = Shop(tmp_path, keys)
        async with running(shop):
            await shop.say(str(number))
            await eventually(lambda: len(shop.logged()) == number + 1)  # noqa: B023  # awaited here


async def test_the_same_frame_again_is_known_and_another_of_its_id_is_logged(tmp_path: Path, keys: Keys) -> None:
    shop = Shop(tmp_path, keys)
    one = Frame(topic="bank.payments.payment", id="x", body=b"1", key="t1:1")
    other = Frame(topic="bank.payments.payment", id="x", body=b"2", key="t1:1")
    async with running(shop):
        for frame in (one, one, other):
            await shop.app.broker.publish([frame])
        await eventually(lambda: len(shop.logged()) >= 2)
    assert len(shop.logged()) == 2


async def test_what_was_in_hand_is_logged_before_the_end(tmp_path: Path, keys: Keys) -> None:
    shop = Shop(tmp_path, keys)
    shop.audit.__dict__["wait"] = 3600.0
    async with running(shop):
        await shop.say("1")
        member = await _member(shop)
        await eventually(lambda: not member.idle)
    assert len(shop.logged()) == 1


async def _member(shop: Shop) -> Auditor:
    runtime = await shop.app.opened.prepare()
    assert isinstance(runtime.audit, Auditor)
    return runtime.audit


@pytest.fixture
def complaints(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "posthouse.audit")
    return caplog


async def test_a_place_that_does_not_answer_is_waited_for_and_nothing_is_lost(
    tmp_path: Path, keys: Keys, complaints: pytest.LogCaptureFixture
) -> None:
    shop = Shop(tmp_path, keys)
    (tmp_path / "log").write_text("a file where the folder is to be")
    async with running(shop):
        await shop.say("1")
        await eventually(lambda: "events wait" in complaints.text)
        (tmp_path / "log").unlink()
        await eventually(lambda: len(shop.logged()) == 1)


async def test_a_log_whose_end_was_cut_off_takes_nothing_more(
    tmp_path: Path, keys: Keys, complaints: pytest.LogCaptureFixture
) -> None:
    shop = Shop(tmp_path, keys, every=0.05)
    async with running(shop):
        await shop.say("1")
        await eventually(lambda: bool(shop.logged()) and shop.signed() == 1)
    kept = shop.place.get(batch_path(0)) or b""
    (tmp_path / "log" / batch_path(0)).unlink()
    shop = Shop(tmp_path, keys)
    async with running(shop):
        await shop.say("2")
        await eventually(lambda: "the log in" in complaints.text)
        assert "ends with 0 events, though 1 were signed: nothing is appended" in complaints.text
        assert shop.logged() == []
        shop.place.put(batch_path(0), kept)
        await eventually(lambda: len(shop.logged()) == 2)


async def test_a_process_without_the_private_half_logs_and_leaves_signing_to_others(tmp_path: Path, keys: Keys) -> None:
    shop = Shop(tmp_path, keys, every=0.05)
    (tmp_path / "private-a1").write_text("")
    async with running(shop):
        await shop.say("1")
        await eventually(lambda: len(shop.logged()) == 1)
        member = await _member(shop)
        assert not await asyncio.to_thread(member.sign_when_due)
    assert list(shop.place.list("checkpoints/")) == []


async def test_keys_that_cannot_sign_are_refused_at_the_start(tmp_path: Path, keys: Keys) -> None:
    shop = Shop(tmp_path, keys)
    write_keys(keys.file, [])
    with pytest.raises(ConfigurationError, match="no key for checkpoints"):
        async with running(shop):
            pass


async def test_whoever_is_erased_is_in_the_log_as_noise_and_every_proof_holds(tmp_path: Path, keys: Keys) -> None:
    keys.signing("a1")
    private = keys.file.with_name("private-a1")
    hotel = Hotel(tmp_path)
    hotel.app = App(
        hotel.service,
        store=f"sqlite:///{tmp_path}/hotel.db",
        broker=f"embedded:///{tmp_path}/frames.db",
        secrets=hotel.secrets,
        audit=Audit(place=str(tmp_path / "log"), keys=keys.file, private=private, classes=("hot",)),
    )
    place, known = Folder(tmp_path / "log"), verifiers(keys.file)
    async with hotel.app.running():
        id = await hotel.register("g1", "Ada-Lovelace")
        await eventually(lambda: any(True for _ in place.list(EVENTS)))
        await asyncio.to_thread(seal, place, None, signer_in(keys.file, read_private(private), START), START)
        before = prove(place, known, id)
        await erase(hotel.service, "t1", "g1", why="asked on 3 May", by="dpo")
    assert verify(place, known).findings == []
    for proof in (before, prove(place, known, id)):
        assert b"Ada" not in check(proof, known).event.body
    assert not any(b"Ada" in path.read_bytes() for path in (tmp_path / "log").rglob("*") if path.is_file())


def test_the_environment_names_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert audit_here() is None
    monkeypatch.setenv("POSTHOUSE_AUDIT", "log")
    assert audit_here() == Audit(place="log", keys="keys.toml")
    monkeypatch.setenv("POSTHOUSE_AUDIT_SECOND", "second")
    monkeypatch.setenv("POSTHOUSE_AUDIT_KEYS", "public.toml")
    assert audit_here() == Audit(place="log", second="second", keys="public.toml")


def test_a_second_place_that_is_the_first_one_is_refused(keys: Keys) -> None:
    with pytest.raises(ConfigurationError, match="the second place is the first one"):
        Audit(place="log", second="log/", keys=keys.file)


def test_a_class_that_there_is_not_is_refused(keys: Keys) -> None:
    with pytest.raises(ConfigurationError, match="there is no retention class 'cool'"):
        Audit(place="log", keys=keys.file, classes=("cool",))
