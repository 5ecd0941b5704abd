"""A relay process of `test_postgres_partitions.py`: `<url> <owner> <report>` publishes into one file until it is killed.

The broker is the file: one line per event, written before its page is settled.
"""

import asyncio
import contextlib
import os
import sys

from posthouse.errors import StoreError
from posthouse.stores.postgres import PostgresStore

LEASE = 1.5
PAGE = 100


async def relay(url: str, owner: str, report_path: str) -> None:
    report = os.open(report_path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    store = PostgresStore(url)
    while True:
        await asyncio.sleep(0.01)
        with contextlib.suppress(StoreError):
            shards = await store.outbox.lease(owner, LEASE)
            for _ in range(10):
                poll = await store.outbox.poll(shards, PAGE)
                os.write(report, "".join(f"{row.key} {row.sequence} {row.event_id}\n" for row in poll.rows).encode())
                if not await store.outbox.settle(owner, poll, []):
                    break
                if not poll.rows:
                    await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(relay(*sys.argv[1:4]))
