"""A ledger whose read model notes every posting once: whoever feeds one twice breaks its primary key, and what is missing
is missed. Parts of it run in processes of their own, to be killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from posthouse import Event, Payload, Policy, Service, Swap, Tx
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


@ledger.event("account.noted.v1", key="account_id")
class Noted(Payload):
    """A posting can be seen: said once for each, whatever is rebuilt."""

    account_id: str
    version: int


notices = ledger.projection("notices", publishes=[Noted])


@notices.setup
async def notice_tables(model: Model) -> None:
    await model.execute(
        f"CREATE TABLE {model.table('notice')} (tenant TEXT, account TEXT, version INTEGER, "
        "PRIMARY KEY (tenant, account, version))"
    )


@notices.on(Posted, policy=Policy(grouped=True, max_attempts=100, first_delay=0.2, last_delay=0.4))
async def notice(event: Event[Posted], model: Model) -> None:
    account, version = event.data.account_id, int(event.extensions[STREAM_VERSION])
    await model.execute(
        f"INSERT INTO {model.table('notice')} VALUES (:tenant, :account, :version)",
        {"tenant": event.tenant, "account": account, "version": version},
    )
    model.publish(Noted(account_id=account, version=version))


@notices.swapped
async def swapped(model: Model, swap: Swap) -> None:
    """In the middle of the swap it dies as often as it was told to."""
    await model.execute("INSERT INTO swapped VALUES (:generation)", {"generation": swap.generation})
    for word in ("die", "die-again"):
        if _told(word):
            os.unlink(word)
            os.kill(os.getpid(), signal.SIGKILL)


@ledger.setup
async def own_tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS swapped (generation INTEGER)")
    await tx.execute("CREATE TABLE IF NOT EXISTS heard (tenant TEXT, account TEXT, version INTEGER)")


@ledger.on(Noted)
async def hear(event: Event[Noted], tx: Tx) -> None:
    """Two facts of one posting would be two rows."""
    await tx.execute(
        "INSERT INTO heard VALUES (:tenant, :account, :version)",
        {"tenant": event.tenant, "account": event.data.account_id, "version": event.data.version},
    )


def _told(word: str) -> bool:
    return Path(word).exists()


async def write(number: int, pause: float) -> None:
    """Post until the file `stop` is there, to accounts that others post to as well; with pauses of so many seconds at most."""
    chance = random.Random(number)
    while not _told("stop"):
        name, tenant = f"a{chance.randrange(12)}", f"t{chance.randrange(3)}"
        many = chance.randrange(1, 4)
        await accounts.execute(name, lambda _: [Posted(account_id=name, amount=1)] * many, tenant=tenant)  # noqa: B023 - awaited here
        await asyncio.sleep(chance.random() * pause)
    await ledger.aclose()


async def serve() -> None:
    """Run the service until the file `end` is there."""
    async with ledger.running():
        while not _told("end"):  # noqa: ASYNC110 - another process makes the file
            await asyncio.sleep(0.02)


async def rebuild(model: str, source: str) -> None:
    """Build a generation, or go on with one."""
    await app_of(ledger).open()
    done = await app_of(ledger).projections.rebuild(
        model, Plan(source="log" if source == "log" else "streams", drop_after=2.0)
    )
    print(done.generation, flush=True)
    await ledger.aclose()


if __name__ == "__main__":
    os.environ.setdefault("POSTHOUSE_BROKER", "embedded:///log.db?single_host=true")
    match sys.argv[1:]:
        case ["write", number, pause]:
            asyncio.run(write(int(number), float(pause)))
        case ["serve"]:
            asyncio.run(serve())
        case ["rebuild", model, source]:
            asyncio.run(rebuild(model, source))
