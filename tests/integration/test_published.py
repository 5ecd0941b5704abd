"""Contracts of another release are fetched when an event names one that is not known here; what cannot be had is waited for."""

from __future__ import annotations

import asyncio
import http.server
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from posthouse import App, Event, Payload, Policy, Service, Settings, Tx, published
from posthouse.cli.catalog.bundling import Signer, publish
from posthouse.clock import Clock, ManualClock, new_id
from posthouse.contracts.release import LATEST, Pointer, packed, pointer_file, pointer_in
from posthouse.errors import ConfigurationError, ContractsUnavailable
from posthouse.governance.folder import read_folder, write_folder
from posthouse.governance.freezing import freeze
from posthouse.governance.listing import catalogue_of
from posthouse.history.audit.place import open_place
from posthouse.history.audit.places.folder import Folder
from posthouse.history.sweep import Sweep
from posthouse.opened.writing import disbelief
from posthouse.receiving import settle
from posthouse.seam import SchemaGuard, schema_guard
from posthouse.seam.counting import Counting
from posthouse.seam.schema_guard import SchemaUnknown
from posthouse.store import HeldFilter
from posthouse.testing.store_contract.samples import entry
from posthouse.trust.signatures.halves import Halves
from posthouse.trust.signatures.keyring import Keyring
from posthouse.trust.signatures.keys import Key, Use, write_keys
from posthouse.trust.signatures.modes import Modes
from posthouse.trust.signatures.sealing import Sealing
from tests.kit.servers.s3 import BUCKET
from tests.kit.waiting import eventually

SUBJECT = "shop.orders.order.placed.v1"


def old_orders() -> Service:
    service = Service("orders", namespace="shop")

    @service.event("order.placed.v1", key="order_id")
    class OrderPlaced(Payload):
        order_id: str

    return service


class Today(Payload):
    order_id: str
    note: str = ""


def new_orders() -> Service:
    service = Service("orders", namespace="shop")
    service.event("order.placed.v1", key="order_id")(Today)
    return service


def frozen(folder: Path, *services: Service) -> dict[str, bytes]:
    """One release after the other, as a repository has them."""
    for service in services:
        write_folder(folder, freeze(catalogue_of([service]), read_folder(folder)).files)
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


class WebServer:
    """Files over HTTP, which can be away; counts what was asked."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        outer = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                super().do_GET()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._handler = partial(Handler, directory=str(folder))
        self._server: http.server.ThreadingHTTPServer | None = None
        self.port = 0

    def start(self) -> None:
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), self._handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class Ground:
    """A producer of today's release, and a consumer that has the frozen schemas of before."""

    def __init__(self, root: Path, url: str = "") -> None:
        self.root = root
        self.place = Folder(root / "published")
        (root / "published").mkdir()
        self.web = WebServer(root / "published")
        self.web.start()
        frozen(root / "before", old_orders())
        self.files = frozen(root / "after", old_orders(), new_orders())
        self.applied: list[str] = []
        self.orders, self.billing = new_orders(), Service("billing", namespace="shop", schemas=root / "before")

        @self.billing.external(SUBJECT, key="order_id")
        class Placed(Payload):
            order_id: str

        @self.billing.on(Placed, policy=Policy(max_attempts=1))
        async def invoice(event: Event[Placed], tx: Tx) -> None:
            self.applied.append(event.data.order_id)

        log = f"embedded:///{root}/log.db"
        self.producer = App(self.orders, store=f"sqlite:///{root}/orders.db", broker=log)
        self.consumer = App(
            self.billing,
            store=f"sqlite:///{root}/billing.db",
            broker=log,
            settings=Settings(contracts=url or f"http://127.0.0.1:{self.web.port}"),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.producer.running(), self.consumer.running():
            yield

    async def place_orders(self, *ids: str) -> None:
        async with self.orders.transaction(tenant="t1") as tx:
            for order_id in ids:
                tx.publish(Today(order_id=order_id, note="new"))

    async def held(self) -> list[tuple[str, int, str]]:
        return [(one.state, one.attempts, one.reason) for one in await self.consumer.store.held.find(HeldFilter())]

    @property
    def fetches(self) -> int:
        found = self.consumer.opened.published
        assert found is not None
        return found.fetched


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    monkeypatch.setattr(published, "PAUSE", 0.3)
    monkeypatch.setattr(settle, "LOOK_AROUND", 0.1)
    monkeypatch.setattr(schema_guard, "LOOK_AGAIN", 0.3)
    made = Ground(tmp_path)
    yield made
    made.web.stop()


async def test_a_schema_that_is_not_known_here_is_fetched_once_and_the_event_applied(ground: Ground) -> None:
    assert publish(ground.place, packed(ground.files))
    async with ground.running():
        await ground.place_orders("o1", "o2")
        await eventually(lambda: sorted(ground.applied) == ["o1", "o2"])
        await ground.place_orders("o3")
        await eventually(lambda: sorted(ground.applied) == ["o1", "o2", "o3"])
    assert await ground.held() == []
    assert [path for path in ground.web.asked if path == f"/{LATEST}"] == [f"/{LATEST}"]
    assert len(ground.web.asked) == 2


async def test_a_bucket_serves_as_well_for_contracts_and_for_rows_that_leave(
    tmp_path: Path, s3_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    url = f"s3://{BUCKET}/{new_id()}?region=us-east-1&endpoint=http://127.0.0.1:{s3_port}&allow_http=true"
    ground, place = Ground(tmp_path, url), open_place(url)
    assert publish(place, packed(ground.files))
    assert not publish(place, packed(ground.files)), "what holds already is left as it is"
    before = packed({path: data for path, data in ground.files.items() if path != "topics.json"})
    assert publish(place, before)
    assert publish(place, packed(ground.files)), "and what held before holds again"
    async with ground.running():
        await ground.place_orders("o1")
        await eventually(lambda: ground.applied == ["o1"])
    async with ground.consumer.store.begin() as tx:
        await ground.consumer.store.inbox.claim(tx, "mail", [entry(None)])
    sweep = Sweep(ground.consumer.store, -1.0, None, place)
    assert await sweep.inbox() == (1, False)
    (name,) = place.list("inbox/")
    assert b'"consumer":"mail"' in (place.get(name) or b"")
    ground.web.stop()


async def test_while_the_place_is_away_events_wait_uncounted_and_none_is_lost_or_applied_twice(ground: Ground) -> None:
    assert publish(ground.place, packed(ground.files))
    ground.web.stop()
    ids = [f"o{number}" for number in range(40)]
    async with ground.running():
        await ground.place_orders(*ids)

        async def all_wait() -> bool:
            found = await ground.held()
            return len(found) == 40 and {state for state, _, _ in found} == {"retrying"}

        await eventually(all_wait)
        assert all("cannot be had" in reason for _, _, reason in await ground.held())
        await asyncio.sleep(1.0)  # several rounds, in which nothing may be counted
        assert {state for state, _, _ in await ground.held()} == {"retrying"}
        assert ground.applied == []
        assert ground.fetches < 15, "at most one in 0.3 s, whatever asks"
        ground.web.start()
        await eventually(lambda: len(ground.applied) == 40)
    assert sorted(ground.applied) == sorted(ids)
    assert await ground.held() == []
    assert (await ground.consumer.store.counts()).applied == {("billing", "shop.orders.order"): 40}


async def test_events_of_a_key_keep_their_order_behind_one_that_waits(ground: Ground) -> None:
    ground.web.stop()
    async with ground.running():
        for note in ("first", "second", "third"):
            async with ground.orders.transaction(tenant="t1") as tx:
                tx.publish(Today(order_id="k", note=note))

        async def all_held() -> bool:
            return len(await ground.held()) == 3

        await eventually(all_held)
        states = sorted(state for state, _, _ in await ground.held())
        assert states == ["blocked", "blocked", "retrying"]
        assert publish(ground.place, packed(ground.files))
        ground.web.start()
        await eventually(lambda: len(ground.applied) == 3)
    assert await ground.held() == []


async def test_a_bundle_that_is_not_what_its_name_says_is_refused_until_it_is(ground: Ground) -> None:
    data = packed(ground.files)
    assert publish(ground.place, data)
    (file,) = (ground.root / "published").glob("sha256-*.json")
    file.write_bytes(data.replace(b"order_id", b"order_no"))
    async with ground.running():
        await ground.place_orders("o1")

        async def refused() -> bool:
            return any("was changed, or is damaged" in reason for _, _, reason in await ground.held())

        await eventually(refused)
        assert ground.applied == []
        file.write_bytes(data)
        await eventually(lambda: ground.applied == ["o1"])


async def test_a_release_that_is_published_late_is_waited_for(ground: Ground) -> None:
    before = {str(f.relative_to(ground.root / "before")): f.read_bytes() for f in (ground.root / "before").rglob("*.*")}
    assert publish(ground.place, packed(before))
    async with ground.running():
        await ground.place_orders("o1")

        async def waits() -> bool:
            return any("is not among the contracts" in reason for _, _, reason in await ground.held())

        await eventually(waits)
        assert publish(ground.place, packed(ground.files))
        await eventually(lambda: ground.applied == ["o1"])


async def test_a_schema_that_nobody_publishes_is_dead_after_a_while_and_one_command_away(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "PATIENCE", 0.5)
    before = {str(f.relative_to(ground.root / "before")): f.read_bytes() for f in (ground.root / "before").rglob("*.*")}
    assert publish(ground.place, packed(before))
    async with ground.running():
        await ground.place_orders("o1")

        async def dead() -> bool:
            return [state for state, _, _ in await ground.held()] == ["dead"]

        await eventually(dead)
        assert publish(ground.place, packed(ground.files))
        (event,) = await ground.consumer.store.held.find(HeldFilter())
        await asyncio.sleep(0.4)
        await ground.consumer.held.retry(event.id, by="ann", why="it is published now")
        await eventually(lambda: ground.applied == ["o1"])


async def test_a_pointer_that_was_put_back_is_not_followed(ground: Ground) -> None:
    assert publish(ground.place, packed(ground.files))
    source = published.source_at(f"http://127.0.0.1:{ground.web.port}/")
    clock = ManualClock()
    known = published.Published(source, clock)
    guard = SchemaGuard(fetches=True)
    known.guards.append(guard)
    unknown = SchemaUnknown(guard, "orders/order/placed/v1", "sha256-nobodys")
    with pytest.raises(ContractsUnavailable, match="is not among the contracts"):
        await known.learn(unknown, 0.0)
    latest = ground.root / "published" / LATEST
    pointer = pointer_in(latest.read_bytes())
    latest.write_bytes(pointer_file(Pointer(bundle=pointer.bundle, size=pointer.size, at=pointer.at - 1)))
    clock.advance(60)
    with pytest.raises(ContractsUnavailable, match="older than what was seen there before"):
        await known.learn(unknown, 0.0)


def signer(use: Use, id: str = "releases", revoked: float | None = None) -> tuple[Key, Signer]:
    secret = Ed25519PrivateKey.generate()
    key = Key(id=id, public=secret.public_key().public_bytes_raw(), source="/shop/orders", use=use, revoked=revoked)
    return key, Signer(id, secret.private_bytes_raw())


async def asked(root: Path, ground: Ground, clock: Clock, *keys: Key) -> None:
    """What a process learns that believes these keys."""
    write_keys(root / "keys.toml", keys)
    sealing = Sealing(Keyring(root / "keys.toml", Halves(), clock), Modes({}), Counting(), "billing")
    known = published.Published(ground.place, clock, partial(disbelief, sealing))
    known.guards.append(SchemaGuard(fetches=True))
    await known.learn(SchemaUnknown(known.guards[0], "orders/order/placed/v1", "sha256-nobodys"), 999.0)


async def test_where_signatures_are_on_only_a_bundle_that_is_signed_for_contracts_is_believed(
    tmp_path: Path, ground: Ground
) -> None:
    clock, data = ManualClock(), packed(ground.files)
    key, mine = signer("contracts")
    for others, signed_by, words in (
        ((key,), None, "it is not signed, and signatures are on here"),
        ((), mine, "its key 'releases' is not known"),
        ((signer("contracts")[0],), mine, "its signature is not by the key"),
        ((signer("facts")[0],), mine, "signs facts, and no contracts"),
        ((signer("contracts", revoked=clock.now() - 1)[0],), mine, "was revoked"),
    ):
        publish(ground.place, data, signed_by)
        with pytest.raises(ContractsUnavailable, match=words):
            await asked(tmp_path, ground, clock, *others)
    await asked(tmp_path, ground, clock, key)
    latest = ground.root / "published" / LATEST
    pointer = pointer_in(latest.read_bytes())
    latest.write_bytes(pointer_file(msgspec.structs.replace(pointer, at=pointer.at + 1)))
    with pytest.raises(ContractsUnavailable, match="its signature is not by the key"):
        await asked(tmp_path, ground, clock, key)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://", "is no place of contracts"),
        ("https://ann:word@host/shop", "is no place of contracts"),
        ("https://host/shop?token=1", "is no place of contracts"),
        ("ftp://host/shop", "no place is called 'ftp'"),
    ],
)
def test_what_is_no_place_of_contracts_is_refused(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        published.source_at(url)


async def test_a_place_that_answers_ever_so_slowly_is_as_good_as_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "WITHIN", 0.5)
    over = threading.Event()

    class Slow(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            while not over.wait(0.1):
                self.wfile.write(b" ")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        known = published.Published(published.source_at(f"http://127.0.0.1:{server.server_address[1]}"), ManualClock())
        with pytest.raises(ContractsUnavailable, match="no whole answer within"):
            await known.learn(SchemaUnknown(SchemaGuard(fetches=True), "orders/order/placed/v1", "sha256-x"), 0.0)
    finally:
        over.set()
        server.shutdown()
        server.server_close()


async def test_whoever_is_sent_elsewhere_does_not_go(tmp_path: Path) -> None:
    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:1/latest.json")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        known = published.Published(published.source_at(f"http://127.0.0.1:{server.server_address[1]}"), ManualClock())
        with pytest.raises(ContractsUnavailable, match="was answered with 302"):
            await known.learn(SchemaUnknown(SchemaGuard(fetches=True), "orders/order/placed/v1", "sha256-x"), 0.0)
    finally:
        server.shutdown()
        server.server_close()
