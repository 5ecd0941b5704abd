"""redis-py with hiredis as fast as it goes on its public API: pipelines of 1,000, and groups that read 500 at a time."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from redis.asyncio import Redis

from posthouse.broker import Frame
from posthouse.clock import new_id
from tests.kit.servers.redis import running

LANES = 8
PULL = 500


class RedisBare:
    def __init__(self, client: Any) -> None:  # the driver says of most answers that they may be anything
        self._client = client

    async def publish(self, topic: str, frames: Sequence[Frame]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for number, frame in enumerate(frames):
            fields = {"id": frame.id, "key": frame.key or "", **frame.headers, "body": frame.body}
            pipeline.xadd(f"{topic}:{number % LANES}", fields)
        await pipeline.execute()

    async def consume(self, topic: str, count: int) -> None:
        group, lanes = f"bare-{new_id()}", [f"{topic}:{lane}" for lane in range(LANES)]
        for lane in lanes:
            await self._client.xgroup_create(lane, group, 0)
        left = count
        while left:
            found = await self._client.xreadgroup(group, "one", dict.fromkeys(lanes, ">"), count=PULL)
            pipeline = self._client.pipeline(transaction=False)
            for lane, entries in found:
                pipeline.xack(lane, group, *(entry for entry, _ in entries))
                left -= len(entries)
            await pipeline.execute()
        for lane in lanes:
            await self._client.xgroup_destroy(lane, group)


class RedisPlug:
    """redis-server with `appendonly yes` and `appendfsync always`: an answer means that the disk has it."""

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        with running() as server:
            yield server.url

    @contextlib.asynccontextmanager
    async def bare(self, url: str) -> AsyncIterator[RedisBare]:
        client = Redis.from_url(url, protocol=2)
        yield RedisBare(client)
        await client.aclose()
