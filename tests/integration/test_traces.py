"""One trace through several processes, and from the libraries that people have their transactions with."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from django.db import transaction
from opentelemetry import trace

from posthouse import App, Payload, Service
from posthouse.clock import SystemClock
from posthouse.stores import open_store
from tests.integration.django_site import django_on_sqlite
from tests.integration.trace_member import Placed, orders, shop, tracing
from tests.kit.servers.nats import NatsServer
from tests.kit.spans import Collected
from tests.kit.waiting import eventually

ROOT = Path(__file__).parents[2]


def told(folder: Path) -> list[dict[str, object]]:
    """What all processes told, in the order of time."""
    lines = [line for file in folder.glob("*.spans") for line in file.read_text().splitlines()]
    return sorted((json.loads(line) for line in lines), key=lambda span: str(span["start_time"]))


def id_of(span: dict[str, object], which: str = "span_id") -> str:
    context = span["context"]
    assert isinstance(context, dict)
    return str(context[which])


def linked(span: dict[str, object]) -> list[str]:
    links = span["links"]
    assert isinstance(links, list)
    return [link["context"]["span_id"] for link in links]


@pytest.fixture
def parts(postgres_url: str, nats_server: NatsServer, tmp_path: Path) -> Iterator[tuple[str, str, Path]]:
    """The relay and the consumers, in a process each."""
    broker = nats_server.url
    asyncio.run(_upgrade(postgres_url))
    with ExitStack() as ending:
        for part in ("relay", "consumers"):
            command = [
                "-m",
                "tests.integration.trace_member",
                postgres_url,
                broker,
                part,
                str(tmp_path / f"{part}.spans"),
            ]
            process = subprocess.Popen([sys.executable, *command], cwd=ROOT)
            ending.callback(process.wait, 30)
            ending.callback(process.terminate)
        yield postgres_url, broker, tmp_path


async def _upgrade(url: str) -> None:
    store = open_store(url, clock=SystemClock())
    await store.upgrade()
    await store.aclose()


def test_a_request_a_relay_and_a_consumer_in_three_processes_tell_of_one_trace(parts: tuple[str, str, Path]) -> None:
    store, broker, folder = parts
    provider = tracing(folder / "web.spans")

    async def request() -> list[dict[str, object]]:
        app = App(*shop(store, broker).services, store=store, broker=broker, tracer_provider=provider)
        with provider.get_tracer("web").start_as_current_span("POST /orders"):
            async with orders.transaction("t1") as tx:
                tx.publish(Placed(order_id="o1"))
        await app.aclose()
        names = ("posthouse.send", "posthouse.create")
        return await eventually(
            lambda: told(folder), right=lambda spans: sum(span["name"] in names for span in spans) == 4
        )

    spans = asyncio.run(request())
    parents = {id_of(span): span["parent_id"] for span in spans}
    [asked] = [span for span in spans if span["name"] == "POST /orders"]
    placed, issued = [span for span in spans if span["name"] == "posthouse.create"]
    [processed] = [span for span in spans if span["name"] == "posthouse.process"]
    [select] = [span for span in spans if span["name"] == "SELECT"]
    assert parents[id_of(asked)] is None
    assert parents[id_of(placed)] == f"0x{int(id_of(asked), 16):016x}"
    assert parents[id_of(processed)] == id_of(placed)
    assert parents[id_of(select)] == parents[id_of(issued)] == id_of(processed)
    assert linked(processed) == [id_of(placed)]
    assert len({id_of(span, "trace_id") for span in (asked, placed, processed, select, issued)}) == 1
    sent = [span for span in spans if span["name"] == "posthouse.send"]
    assert [linked(span) for span in sent] == [[id_of(placed)], [id_of(issued)]]


def test_a_transaction_of_djangos_has_its_facts_below_the_span_of_its_view(tmp_path: Path) -> None:
    collected = Collected()
    service = Service("shop")

    @service.event("order.placed.v1", key="order_id")
    class OrderPlaced(Payload):
        order_id: str

    url = f"sqlite:///{tmp_path}/shop.db"
    App(service, store=url, broker=f"embedded:///{tmp_path}/log.db", tracer_provider=collected.provider)
    asyncio.run(_upgrade(url))
    with (
        django_on_sqlite(tmp_path / "shop.db") as connection,
        collected.tracer.start_as_current_span("view"),
        transaction.atomic(using=connection.alias),
        service.outbox.joined(connection) as tx,
    ):
        tx.publish(OrderPlaced(order_id="o1"))
        with contextlib.suppress(KeyError), transaction.atomic(using=connection.alias):
            tx.publish(OrderPlaced(order_id="o2"))
            raise KeyError
    assert collected.tree() == ["view", "  create order.placed.v1 [rolled back]", "  create order.placed.v1 [written]"]
    assert not trace.get_current_span().get_span_context().is_valid
