"""One SQLite file, several processes: they make its tables together, write, roll back, and read what others wrote."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from pathlib import Path
from textwrap import dedent

from posthouse.clock import SystemClock
from posthouse.store import OutboxRow
from posthouse.stores.sqlite import SqliteStore

WRITERS, EVENTS = 3, 150

WRITER = """
    import asyncio, random, sys
    from posthouse.clock import SystemClock, new_id
    from posthouse.store import OutboxRow
    from posthouse.stores.sqlite import SqliteStore

    async def main(path, count):
        store = SqliteStore(path, clock=SystemClock(), synchronous="NORMAL")
        await store.upgrade()
        done = 0
        while done < count:
            try:
                async with store.begin() as tx:
                    row = OutboxRow(topic="t", tenant="t1", event_id=new_id(), body=b"", key=f"k{random.randrange(5)}")
                    await store.outbox.append(tx, [row])
                    if random.random() < 0.2:
                        raise ZeroDivisionError
                done += 1
            except ZeroDivisionError:
                pass
        await store.aclose()

    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def test_events_of_many_processes_come_once_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    writers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", dedent(WRITER), str(path), str(EVENTS), stderr=asyncio.subprocess.PIPE
        )
        for _ in range(WRITERS)
    ]
    store = SqliteStore(path, clock=SystemClock(), synchronous="NORMAL")
    await store.upgrade()
    found: list[OutboxRow] = []
    async with asyncio.timeout(60):
        seen = 0
        while len(found) < WRITERS * EVENTS:
            shards = await store.outbox.lease("relay", 10)
            while (poll := await store.outbox.poll(shards, 20)).rows:
                assert await store.outbox.settle("relay", poll, [])
                found += poll.rows
            seen = await store.changed(seen, 0.2)
        for writer in writers:
            _, errors = await writer.communicate()
            assert writer.returncode == 0, errors.decode()
    assert list((await store.outbox.poll(await store.outbox.lease("relay", 10), 20)).rows) == []
    numbers: defaultdict[str | None, list[int | None]] = defaultdict(list)
    for row in found:
        numbers[row.key].append(row.sequence)
    assert all(given == list(range(1, len(given) + 1)) for given in numbers.values())
    assert len({row.event_id for row in found}) == WRITERS * EVENTS
    await store.aclose()
