"""The archive over real brokers, which have to wait for what a member has in hand longer than they do for a handler."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from posthouse import App, Payload, Service
from posthouse.archives import status
from posthouse.broker import Broker
from posthouse.brokers.kafka import KafkaBroker
from posthouse.brokers.nats import NatsBroker
from posthouse.brokers.postgres import PostgresBroker
from posthouse.brokers.redis import RedisBroker
from posthouse.clock import SystemClock, new_id
from posthouse.history.archive import Range
from posthouse.history.archive.places import open_place
from posthouse.history.archive.settings import ArchiveSettings
from posthouse.history.archive.verifying import verify
from posthouse.settings import Settings
from tests.kit.servers.kafka import KafkaServer
from tests.kit.servers.nats import NatsServer
from tests.kit.servers.redis import RedisServer
from tests.kit.waiting import eventually

LEASE, EVERY = 1.0, 4.0
"""Seconds after which a broker takes a silent member for dead, and that events wait for others before files are made."""
EVENTS, KEYS = 400, 20


@pytest.fixture(params=["postgres", "nats", "kafka", "redis"])
def broker(request: pytest.FixtureRequest, postgres_url: str) -> Broker:
    """One with a lease that is over long before a file is made."""
    if request.param == "postgres":
        return PostgresBroker(postgres_url, clock=SystemClock(), lease=LEASE)
    server: NatsServer | KafkaServer | RedisServer = request.getfixturevalue(f"{request.param}_server")
    if isinstance(server, KafkaServer):
        return KafkaBroker(server.servers, clock=SystemClock(), lease=6 * LEASE)
    kind = NatsBroker if isinstance(server, NatsServer) else RedisBroker
    return kind(server.url, clock=SystemClock(), lease=LEASE)


@pytest.mark.slow
async def test_what_a_member_holds_for_long_is_archived_once_and_in_order(
    broker: Broker, postgres_url: str, tmp_path: Path
) -> None:
    name = f"s{new_id().replace('-', '')[-12:]}"
    service = Service(name, namespace="shop")

    @service.event("order.placed.v1", key="order_id")
    class OrderPlaced(Payload):
        order_id: str
        number: int

    app = App(
        service,
        store=f"{postgres_url}{'&' if '?' in postgres_url else '?'}schema={name}",
        broker=broker,
        archive=f"file://{tmp_path}/archive",
        settings=Settings(archive=ArchiveSettings(every=EVERY)),
    )
    await app.store.upgrade()
    async with app.running():
        began = time.monotonic()
        for part in range(4):
            async with service.transaction(tenant="t1") as tx:
                for number in range(part * EVENTS // 4, (part + 1) * EVENTS // 4):
                    tx.publish(OrderPlaced(order_id=f"o{number % KEYS}", number=number))
        archive = app.archive
        assert archive is not None
        await eventually(lambda: archive.count(Range()), right=lambda count: count >= EVENTS, within=60.0, pause=0.2)
        assert time.monotonic() - began > EVERY - 1.0, "they waited for each other, beyond the lease"
        found = await eventually(lambda: status(app), right=lambda it: not any(one.pending for one in it.topics))
        assert found.gaps == []
        numbers: dict[str, list[int]] = {}
        async for events in archive.read(Range()):
            for event in events:
                numbers.setdefault(str(event.key), []).append(event.sequence or 0)
    assert numbers == {f"o{key}": list(range(1, EVENTS // KEYS + 1)) for key in range(KEYS)}
    verified = verify(open_place(f"file://{tmp_path}/archive"))
    assert verified.sound, verified.findings
    assert verified.events == EVENTS
