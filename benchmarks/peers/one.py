"""`python -m benchmarks.peers.one NAME URL COUNT`: one library; prints the seconds it took to add and to work off."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys


async def _measured(name: str, url: str, count: int) -> dict[str, float]:
    peer = importlib.import_module(f"benchmarks.peers.by_{name}")
    await peer.prepare(url)
    return {"add": await peer.add(url, count), "drain": await peer.drain(url, count)}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_measured(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
