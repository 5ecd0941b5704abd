"""A ledger whose read model notes every posting once: whoever feeds one twice breaks its primary key, and what is missing
is missed. Parts of it run in processes of their own, to be killed."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from posthouse import Event, Payload, Policy, Service
from posthouse.app import app_of
from posthouse.processes import Aggregate, Model, Plan
from posthouse.processes.projection import bulk, rebuilding
from posthouse.processes.stream import STREAM_VERSION

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


def _told(word: str) -> bool:
    return Path(word).exists()


async def write(number: int) -> None:
    """Post until the file `stop` is there, to accounts that others post to as well."""
    chance = random.Random(number)
    while not _told("stop"):
        name, tenant = f"a{chance.randrange(12)}", f"t{chance.randrange(3)}"
        many = chance.randrange(1, 4)
        await accounts.execute(name, lambda _: [Posted(account_id=name, amount=1)] * many, tenant=tenant)  # noqa: B023 - awaited here
        await asyncio.sleep(chance.random() * 0.01)
    await ledger.aclose()


async def serve() -> None:
    """Run the service until the file `end` is there."""
    async with ledger.running():
        while not _told("end"):  # noqa: ASYNC110 - another process makes the file
            await asyncio.sleep(0.02)


async def rebuild(source: str) -> None:
    """Build a generation, or go on with one."""
    await app_of(ledger).open()
    done = await app_of(ledger).projections.rebuild(
        "entries", Plan(source="log" if source == "log" else "streams", drop_after=2.0)
    )
    print(done.generation, flush=True)
    await ledger.aclose()


if __name__ == "__main__":
    os.environ.setdefault("POSTHOUSE_BROKER", "embedded:///log.db?single_host=true")
    match sys.argv[1:]:
        case ["write", number]:
            asyncio.run(write(int(number)))
        case ["serve"]:
            asyncio.run(serve())
        case ["rebuild", source]:
            asyncio.run(rebuild(source))
