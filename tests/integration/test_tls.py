"""TLS with certificates on both sides, on real servers: what passes, what is refused, and what a renewed certificate costs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from google.auth.credentials import AnonymousCredentials

from posthouse import App, Event, Payload, Service, Tx
from posthouse.broker import Broker, Topology
from posthouse.brokers import open_broker
from posthouse.brokers.pubsub import PubSubBroker
from posthouse.clock import SystemClock, new_id
from posthouse.errors import BrokerError, BrokerUnavailable, StoreError
from posthouse.governance.registry.ledgers import open_ledger
from posthouse.stores import open_store
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.postgres.wal.stream import connected
from tests.kit.frames import collect, frames, ids
from tests.kit.servers.tls import Guarded, TlsPostgres, Worn, serving
from tests.kit.waiting import eventually

pytestmark = pytest.mark.slow
BROKERS = ("nats", "redis", "rabbitmq", "kafka", "postgresql", "sqs", "pubsub")
CLOCK = SystemClock()
ABOUT_US = re.compile(
    "certificate|unknown ca|unknown_ca|reset by peer|broken pipe|closed in the middle|connection was closed|socket closed",
    re.IGNORECASE,
)
"""What servers that do not want us make of it: some say why, some hang up."""
ABOUT_IT = re.compile("certificate|hostname verification", re.IGNORECASE)
"""What we say of a server that does not prove its name."""


@pytest.fixture(scope="module", params=BROKERS)
def server(request: pytest.FixtureRequest) -> Iterator[Guarded]:
    with serving(request.param) as server:
        yield server


@pytest.fixture(scope="module")
def postgresql() -> Iterator[TlsPostgres]:
    with serving("postgresql") as server:
        assert isinstance(server, TlsPostgres)
        yield server


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Broker]:
    broker = open_broker(url, clock=CLOCK)
    try:
        yield broker
    finally:
        await broker.aclose()


async def carry(broker: Broker, topic: str) -> None:
    """Frames go there and come back."""
    await broker.ensure(Topology(topics=[topic], groups={f"readers-{topic}": [topic]}))
    stream = await broker.subscribe(f"readers-{topic}", [topic])
    sent = frames(topic, 3)
    verdicts = await broker.publish(sent)
    assert all(verdict.accepted for verdict in verdicts)
    assert sorted(ids(await collect(stream, 3))) == sorted(frame.id for frame in sent)
    await stream.aclose()


def a_topic() -> str:
    return f"shop.orders.order{new_id()[-6:]}"


async def refused(url: str) -> str:
    """What is said where a connection must not come about."""
    async with opened(f"{url}&timeout=2" if not url.startswith("postgresql") else url) as broker:
        with pytest.raises(BrokerError) as caught:
            await broker.ensure(Topology(topics=[a_topic()]))
    return str(caught.value)


async def test_frames_pass_with_certificates_on_both_sides(server: Guarded) -> None:
    server.wear("good")
    async with opened(server.url_with()) as broker:
        await carry(broker, a_topic())


async def test_key_and_certificate_may_stand_in_one_file(server: Guarded) -> None:
    server.wear("good")
    both = server.clothes.client.with_name("both-of-client.pem")
    both.touch(0o600)
    both.write_bytes(server.clothes.client_key.read_bytes() + server.clothes.client.read_bytes())
    async with opened(server.url_with(tls_cert=str(both), tls_key=None)) as broker:
        await broker.ensure(Topology(topics=[a_topic()]))


async def test_nothing_passes_in_plain_text(server: Guarded) -> None:
    server.wear("good")
    said = await refused(server.url_with(tls="false", tls_ca=None, tls_cert=None, tls_key=None))
    assert re.search(server.refusal, said, re.IGNORECASE), said
    async with opened(server.url_with()) as broker:  # so it was not away
        await broker.ensure(Topology(topics=[a_topic()]))


async def test_a_client_without_a_certificate_is_refused(server: Guarded) -> None:
    server.wear("good")
    assert ABOUT_US.search(await refused(server.url_with(tls_cert=None, tls_key=None)))


async def test_a_client_with_a_strangers_certificate_is_refused(server: Guarded) -> None:
    server.wear("good")
    strange = {"tls_cert": str(server.clothes.strange_client), "tls_key": str(server.clothes.strange_key)}
    assert ABOUT_US.search(await refused(server.url_with(**strange)))


async def test_a_server_of_an_authority_that_is_not_known_is_refused(server: Guarded) -> None:
    server.wear("good")
    assert ABOUT_IT.search(await refused(server.url_with(tls_ca=str(server.clothes.stranger.certificate))))
    assert ABOUT_IT.search(await refused(server.url_with(tls="true", tls_ca=None)))


async def test_work_goes_on_when_the_server_has_a_new_certificate(server: Guarded) -> None:
    server.wear("good")
    topic = a_topic()
    async with opened(server.url_with()) as broker:
        await broker.ensure(Topology(topics=[topic], groups={"readers": [topic]}))
        stream = await broker.subscribe("readers", [topic])
        before, after = frames(topic, 3), frames(topic, 3)
        await broker.publish(before)
        await asyncio.to_thread(server.wear, "renewed")
        async with asyncio.timeout(60):
            while True:
                try:
                    verdicts = await broker.publish(after)
                    if all(verdict.accepted for verdict in verdicts):
                        break
                except BrokerUnavailable:
                    await asyncio.sleep(0.1)  # the relay would ask again so
        seen: set[str] = set()
        async with asyncio.timeout(60):
            while not seen >= {frame.id for frame in (*before, *after)}:
                try:
                    batch = await stream.receive(10, 5.0)
                    await stream.ack(batch)
                    seen |= set(ids(batch))
                except BrokerUnavailable:
                    await asyncio.sleep(0.1)
        await stream.aclose()


@pytest.mark.parametrize("worn", ["expired", "other-name"])
async def test_a_server_with_a_bad_certificate_is_refused(server: Guarded, worn: Worn) -> None:
    server.wear(worn)
    assert ABOUT_IT.search(await refused(server.url_with()))


class Said(Payload):
    key: str


async def test_a_service_works_on_a_database_that_asks_for_certificates(postgresql: TlsPostgres) -> None:
    """The store's pool, its LISTEN connection and the log's."""
    postgresql.wear("good")
    service, heard = Service("shop"), list[str]()
    service.event("thing.said.v1", key="key")(Said)

    @service.on(Said)
    async def hear(event: Event[Said], tx: Tx) -> None:
        found = await tx.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
        heard.append(f"{event.data.key} {found.scalar()}")

    url = postgresql.url_with()
    app = App(service, store=f"{url}&schema=tls", broker=f"{url}&schema=tls_log&partitions=1")
    await app.store.upgrade()
    async with app.running():
        async with service.transaction() as tx:
            tx.publish(Said(key="k"))
        await eventually(lambda: heard == ["k True"])
        assert any("listen" in check.found.lower() for check in await app.store.checks())
        with psycopg.connect(postgresql.maintenance) as looking:
            plain = looking.execute(
                "SELECT a.application_name FROM pg_stat_activity a JOIN pg_stat_ssl s USING (pid) WHERE a.usename = 'shop' AND NOT s.ssl"
            ).fetchall()
    assert plain == []


async def test_a_registry_is_kept_on_a_database_that_asks_for_certificates(postgresql: TlsPostgres) -> None:
    postgresql.wear("good")
    ledger = open_ledger(postgresql.url_with())
    await ledger.open()
    async with ledger.reading() as session:
        assert await session.fetch("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == [(True,)]
    await ledger.aclose()


async def test_the_reader_of_the_log_shows_its_certificate_too(postgresql: TlsPostgres) -> None:
    postgresql.wear("good")
    store = PostgresStore(postgresql.url_with())
    async with connected(store._database.url, "slot", 10.0, "posthouse") as stream:
        answer = await stream._connection.execute("IDENTIFY_SYSTEM")
        assert await answer.fetchone()
    await store.aclose()


async def test_a_store_says_why_its_server_is_not_believed(postgresql: TlsPostgres) -> None:
    postgresql.wear("good")
    for words, says in (
        ({"tls_ca": str(postgresql.clothes.stranger.certificate)}, "certificate verify failed"),
        ({"tls_cert": None, "tls_key": None}, "certificate"),
        ({"tls": "false", "tls_ca": None, "tls_cert": None, "tls_key": None}, "no encryption"),
    ):
        store = open_store(postgresql.url_with(**words), clock=CLOCK)
        with pytest.raises(StoreError, match=says):
            await store.upgrade()
        await store.aclose()


async def test_an_endpoint_of_ones_own_has_an_authority_of_ones_own() -> None:
    """For Pub/Sub: Google's credentials go there too, so it must prove its name first."""
    with serving("pubsub") as server:
        for words, believed in (({}, True), ({"tls_ca": str(server.clothes.stranger.certificate)}, False)):
            async with opened(server.url_with(**words).replace("emulator=", "endpoint=")) as broker:
                assert isinstance(broker, PubSubBroker)
                broker._client._driver["credentials"] = AnonymousCredentials()  # type: ignore[no-untyped-call]  # google's
                if believed:
                    await carry(broker, a_topic())
                else:
                    with pytest.raises(BrokerUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
                        await broker.ensure(Topology(topics=[a_topic()]))


async def test_nats_says_nothing_to_a_server_that_offers_no_tls() -> None:
    """Whoever stands between may say so to get the password."""
    heard = bytearray()

    async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.12.0","max_payload":1048576,"auth_required":true}\r\n')
        heard.extend(await reader.read(4096))
        writer.close()

    async with await asyncio.start_server(between, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        broker = open_broker(f"nats://shop:word@127.0.0.1:{port}?tls=true&timeout=1", clock=CLOCK)
        with pytest.raises(BrokerUnavailable, match="offers none"):
            await broker.ensure(Topology(topics=[a_topic()]))
        await broker.aclose()
    assert heard == b""
