"""One of several processes that register schemas at the same time: prints the id that each one got."""

from __future__ import annotations

import asyncio
import json
import sys

from posthouse.governance.registry.formats import known_formats
from posthouse.governance.registry.ledgers import open_ledger
from posthouse.governance.registry.registry import Registry, SchemaRequest


def schema(number: int) -> str:
    return json.dumps({"type": "record", "name": f"N{number}", "fields": []})


async def main(url: str, numbers: list[int]) -> None:
    ledger = open_ledger(url)
    await ledger.open()
    registry = Registry(ledger, known_formats())
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        found = await asyncio.gather(*(register(registry, number) for number in numbers))
    finally:
        await ledger.aclose()
    print(json.dumps(found))


async def register(registry: Registry, number: int) -> tuple[int, int, int]:
    """A subject of its own for each schema, and one that all of them fight for."""
    request = SchemaRequest(schema=schema(number))
    own = await registry.register(f"own-{number}", request, normalize=False)
    shared = await registry.register("shared", request, normalize=False)
    assert own.schema_id == shared.schema_id
    return number, own.schema_id, shared.version


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], [int(word) for word in sys.argv[2:]]))
