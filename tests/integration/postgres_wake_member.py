"""A producer on what passes for another machine, run by `test_postgres_wake.py`: its notifier lies in another folder.

For each line on its input it commits an event, and prints the moment by the clock that all processes share.
"""

import asyncio
import sys
import time

from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract.samples import row
from posthouse.testing.store_contract.steps import add


async def main(url: str) -> None:
    store = PostgresStore(url)
    await store.outbox.stuck()  # connected, and the tables looked at
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        await add(store, row("k"))
        print(time.monotonic(), flush=True)
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
