"""Several processes register at once: one winner for each schema, ids without gaps."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from posthouse.governance.registry.books import Reference
from posthouse.governance.registry.formats import known_formats
from posthouse.governance.registry.ledger import Ledger, Session
from posthouse.governance.registry.ledgers import open_ledger
from posthouse.governance.registry.refusal import Refusal
from posthouse.governance.registry.registry import Registry, SchemaRequest
from tests.integration.registry.client import ORDER, Client, schema_body, served

ROOT = Path(__file__).parents[3]
PROCESSES, SCHEMAS = 8, 12
PATIENCE = 60.0


@pytest.mark.timeout(180)
async def test_processes_that_register_the_same_schemas_agree_on_dense_ids(store_url: str) -> None:
    async with served(store_url) as client:
        await client.ask("PUT", "/config", {"compatibility": "NONE"})
        found = await asyncio.to_thread(_race, store_url)
        ids = {number: {id for other, id, _ in found if other == number} for number in range(SCHEMAS)}
        assert all(len(several) == 1 for several in ids.values()), ids
        assert sorted(id for several in ids.values() for id in several) == list(range(1, SCHEMAS + 1))
        assert await client.get("/subjects/shared/versions") == list(range(1, SCHEMAS + 1))
        versions = {(number, version) for number, _, version in found}
        assert len(versions) == SCHEMAS
        assert await client.register("next", ORDER) == SCHEMAS + 1


def _race(url: str) -> list[tuple[int, int, int]]:
    """All processes begin when all are ready; each goes through the schemas in another order."""
    orders = [[(start + step) % SCHEMAS for step in range(SCHEMAS)] for start in range(PROCESSES)]
    with contextlib.ExitStack() as stack:
        racers = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.integration.registry.racer", url, *map(str, numbers)],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for numbers in orders
        ]
        try:
            for racer in racers:
                assert racer.stdout is not None
                assert racer.stdout.readline() == "ready\n"
            outputs = [_finished(racer) for racer in _started(racers)]
        finally:
            for racer in racers:
                racer.kill()
    return [tuple(row) for output in outputs for row in json.loads(output)]


def _started(racers: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    return racers


def _finished(racer: subprocess.Popen[str]) -> str:
    output, _ = racer.communicate(timeout=PATIENCE)
    assert racer.returncode == 0
    return output


async def test_requests_that_come_at_once_get_one_id(registry: Client) -> None:
    answers = await asyncio.gather(
        *(registry.ask("POST", f"/subjects/s{number % 4}/versions", schema_body(ORDER)) for number in range(40))
    )
    assert {answer.json()["id"] for answer in answers} == {1}
    assert await registry.get("/schemas/ids/1/versions") == [{"subject": f"s{n}", "version": 1} for n in range(4)]


async def test_of_two_versions_that_cannot_both_be_one_is_refused(registry: Client) -> None:
    """Each is compatible with what was there, and not with the other: whoever is second must be told so."""
    await registry.register("a", {"type": "record", "name": "R", "fields": []})
    added = [
        {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind, "default": value}]}
        for kind, value in (("int", 0), ("string", ""))
    ]
    answers = await asyncio.gather(
        *(registry.ask("POST", "/subjects/a/versions", schema_body(schema)) for schema in added)
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    assert await registry.get("/subjects/a/versions") == [1, 2]


class Interrupted:
    """A ledger on which something happens just before a writer's turn."""

    def __init__(self, ledger: Ledger, happens: Callable[[], Awaitable[object]]) -> None:
        self._ledger = ledger
        self._happens = happens

    async def open(self) -> None:
        await self._ledger.open()

    async def aclose(self) -> None:
        await self._ledger.aclose()

    def reading(self) -> AbstractAsyncContextManager[Session]:
        return self._ledger.reading()

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[Session]:
        await self._happens()
        async with self._ledger.writing() as session:
            yield session


async def test_what_is_referred_to_may_not_go_before_the_reference_is_written(store_url: str) -> None:
    async with served(store_url) as client:
        await client.register("payment", {"type": "enum", "name": "Payment", "symbols": ["CARD"]})
        ledger = Interrupted(open_ledger(store_url), lambda: client.ask("DELETE", "/subjects/payment"))
        await ledger.open()
        order = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "paid", "type": "Payment"}]})
        request = SchemaRequest(schema=order, references=(Reference("Payment", "payment", 1),))
        with pytest.raises(Refusal, match="not there"):
            await Registry(ledger, known_formats()).register("order", request, normalize=False)
        await ledger.aclose()
        assert await client.get("/subjects") == []
