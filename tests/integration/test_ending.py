"""A script that ends without closing: asyncio.run ends its loop, and what was committed is all that is to be seen of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from posthouse.stores.postgres import PostgresStore

SCRIPT = """
import asyncio, sys
import sqlalchemy.ext.asyncio as sa
from posthouse import App, Payload, Service

store, brokers, ways = sys.argv[1:]
shop = Service("shop")


@shop.event("order.placed.v1", key="order_id")
class Placed(Payload):
    order_id: str


async def begun():
    async with shop.transaction(tenant="t1") as tx:
        tx.publish(Placed(order_id="o1"))


async def joined():
    driver = store.replace("postgresql:", "postgresql+asyncpg:").replace("sqlite:", "sqlite+aiosqlite:")
    engine = sa.create_async_engine(driver)
    async with sa.AsyncSession(engine) as session, session.begin():
        await shop.outbox.add(session, Placed(order_id="o1"), tenant="t1")
    await engine.dispose()


async def cancelled():
    task = asyncio.create_task(long())
    while not sleeping:
        await asyncio.sleep(0.01)


sleeping = []


async def long():
    async with shop.transaction(tenant="t1") as tx:
        sleeping.append(True)
        await tx.execute("SELECT pg_sleep(30)")


async def last_words():
    task = asyncio.create_task(says_at_the_end())
    await begun()


async def says_at_the_end():
    try:
        await asyncio.sleep(60)
    finally:
        await begun()


for broker in brokers.split("+"):
    App(shop, store=store, broker=broker)
    for way in ways.split("+"):
        asyncio.run(globals()[way]())
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("script") / "script.py"
    file.write_text(SCRIPT)
    return file


def words_of(script: Path, store: str, brokers: str, ways: str) -> str:
    """What it says on its way, all warnings being errors."""
    command = [sys.executable, "-W", "error", str(script), store, brokers, ways]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=script.parent)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr


@pytest.mark.parametrize("way", ["begun", "begun+joined+begun", "cancelled", "last_words"])
async def test_a_script_on_postgresql_that_never_closes_ends_without_a_word(
    store: PostgresStore, postgres_url: str, script: Path, way: str
) -> None:
    assert words_of(script, postgres_url, postgres_url, way) == ""


def test_a_script_on_sqlite_that_never_closes_ends_without_a_word(tmp_path: Path, script: Path) -> None:
    store, broker = f"sqlite:///{tmp_path}/shop.db", f"embedded:///{tmp_path}/log.db"
    assert words_of(script, store, broker, "begun+joined+last_words+begun") == ""


async def test_no_broker_has_the_last_word_of_a_script_that_only_publishes(
    store: PostgresStore, postgres_url: str, script: Path
) -> None:
    brokers = "+".join(f"{scheme}://127.0.0.1:1" for scheme in ("nats", "kafka", "redis", "rabbitmq"))
    assert words_of(script, postgres_url, f"{brokers}+sqs://eu-central-1", "begun") == ""
