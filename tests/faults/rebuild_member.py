"""A ledger whose read model notes every posting once: whoever feeds one twice breaks its primary key, and what is missing
is missed. Parts of it run in processes of their own, to be killed."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from posthouse import Event, Payload, Policy, Service
from posthouse.app import app_of
from posthouse.processes import Aggregate, Model, Plan
from posthouse.processes.projection import bulk, rebuilding
from posthouse.processes.stream import STREAM_VERSION

E = TypeVar("E")

ledger = Service("ledger")
bulk.PAGE = 25
rebuilding.LEASE = 1.0  # a rebuild that was killed is gone on with soon


@ledger.event("account.posted.v1", key="account_id")
class Posted(Payload):
    """Something was put into an account."""

    account_id: str
    amount: int


accounts: Aggregate[int, Posted] = ledger.aggregate(
    "account", initial=int, evolve=lambda total, event: total + event.amount, events=(Posted,)
)
entries = ledger.projection("entries")


@entries.setup
async def tables(model: Model) -> None:
    await model.execute(
        f"CREATE TABLE {model.table('entry')} (tenant TEXT, account TEXT, version INTEGER, after INTEGER, "
        "PRIMARY KEY (tenant, account, version))"
    )


@entries.on(Posted, policy=Policy(grouped=True, max_attempts=100, first_delay=0.2, last_delay=0.4))
async def note(events: Sequence[Event[Posted]], model: Model) -> None:
    """Each posting once, and in order: `after` is the posting before it."""
    table = model.table("entry")
    places = "$1, $2, $3" if "postgresql" in app_of(ledger).opened.ports.store_url else "?1, ?2, ?3"
    account = (
        "tenant = $1 AND account = $2"
        if "postgresql" in app_of(ledger).opened.ports.store_url
        else "tenant = ?1 AND account = ?2"
    )
    for event in events:
        version = int(event.extensions[STREAM_VERSION])
        await model.execute(
            f"INSERT INTO {table} SELECT {places}, coalesce(max(version), 0) FROM {table} WHERE {account}",
            (event.tenant, event.data.account_id, version),
        )


def told(word: str) -> bool:
    """Whether somebody has made this file."""
    return Path(word).exists()


async def write(
    service: Service, accounts: Aggregate[int, E], posting: Callable[[str], E], number: int, pause: float
) -> None:
    """Post until the file `stop` is there, to accounts that others post to as well; with pauses of so many seconds at most."""
    chance = random.Random(number)
    while not told("stop"):
        name, tenant = f"a{chance.randrange(12)}", f"t{chance.randrange(3)}"
        events = [posting(name)] * chance.randrange(1, 4)
        await accounts.execute(name, lambda _: events, tenant=tenant)  # noqa: B023 - awaited here
        await asyncio.sleep(chance.random() * pause)
    await service.aclose()


async def serve(service: Service) -> None:
    """Run the service until the file `end` is there."""
    async with service.running():
        while not told("end"):  # noqa: ASYNC110 - another process makes the file
            await asyncio.sleep(0.02)


async def rebuild(service: Service, model: str, source: str) -> None:
    """Build a generation, or go on with one."""
    await app_of(service).open()
    done = await app_of(service).projections.rebuild(
        model, Plan(source="log" if source == "log" else "streams", drop_after=2.0)
    )
    print(done.generation, flush=True)
    await service.aclose()


async def play(
    service: Service, accounts: Aggregate[int, E], posting: Callable[[str], E], words: Sequence[str]
) -> None:
    """The part that a process was started for."""
    match words:
        case ["write", number, pause]:
            await write(service, accounts, posting, int(number), float(pause))
        case ["serve"]:
            await serve(service)
        case ["rebuild", model, source]:
            await rebuild(service, model, source)


if __name__ == "__main__":
    os.environ.setdefault("POSTHOUSE_BROKER", "embedded:///log.db?single_host=true")
    asyncio.run(play(ledger, accounts, lambda name: Posted(account_id=name, amount=1), sys.argv[1:]))
