"""A hotel that does something every minute; half an hour of it is due. Asked to, a process dies in the middle of it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Collection

import posthouse.processes.schedule.cron as cron
from posthouse import Policy, Run, Service, Tx
from posthouse.runtime import PARTS, Part

cron.AT_ONCE = 1  # each moment is a race of its own

hotel = Service("hotel")
WORD = sys.argv[1] if __name__ == "__main__" else "stay"
done = {"begin": 0, "run": 0}


def perhaps_die(where: str) -> None:
    """The third time, in the middle of the transaction."""
    done[where] += 1
    if where == WORD and done[where] == 3:
        os.kill(os.getpid(), signal.SIGKILL)


async def whose(tx: Tx) -> Collection[str]:
    perhaps_die("begin")
    return ["t1"]


@hotel.setup
async def tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS audit (moment TEXT, process TEXT)")


@hotel.every("* * * * *", missed="all", tenants=whose, policy=Policy(first_delay=0.1, max_attempts=50))
async def audit(run: Run, tx: Tx) -> None:
    await tx.execute(
        "INSERT INTO audit VALUES (:moment, :process)", {"moment": run.moment.isoformat(), "process": str(os.getpid())}
    )
    perhaps_die("run")


if __name__ == "__main__":
    only: tuple[Part, ...] = ("timers",) if WORD == "begin" else PARTS
    asyncio.run(hotel.run(only=only))
