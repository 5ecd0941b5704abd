"""Several processes register at once: one winner for each schema, ids without gaps."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

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
