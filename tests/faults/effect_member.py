"""A desk whose read model says a fact of every posting: one that is repeated or lost around a swap is seen in what was heard. Parts
of it run in processes of their own, to be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from posthouse import Event, Payload, Policy, Service, Swap, Tx
from posthouse.processes import Aggregate, Model
from posthouse.processes.stream import STREAM_VERSION
from tests.faults.rebuild_member import play, told

desk = Service("desk")


@desk.event("account.posted.v1", key="account_id")
class Posted(Payload):
    """Something was put into an account."""

    account_id: str


accounts: Aggregate[int, Posted] = desk.aggregate(
    "account", initial=int, evolve=lambda count, _: count + 1, events=(Posted,)
)


@desk.event("account.noted.v1", key="account_id")
class Noted(Payload):
    """A posting can be seen: said once for each, whatever is rebuilt."""

    account_id: str
    version: int


notices = desk.projection("notices", publishes=[Noted])


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
        if told(word):
            os.unlink(word)
            os.kill(os.getpid(), signal.SIGKILL)


@desk.setup
async def own_tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS swapped (generation INTEGER)")
    await tx.execute("CREATE TABLE IF NOT EXISTS heard (tenant TEXT, account TEXT, version INTEGER)")


@desk.on(Noted)
async def hear(event: Event[Noted], tx: Tx) -> None:
    """Two facts of one posting would be two rows."""
    await tx.execute(
        "INSERT INTO heard VALUES (:tenant, :account, :version)",
        {"tenant": event.tenant, "account": event.data.account_id, "version": event.data.version},
    )


if __name__ == "__main__":
    os.environ.setdefault("POSTHOUSE_BROKER", "embedded:///log.db?single_host=true")
    asyncio.run(play(desk, accounts, lambda name: Posted(account_id=name), sys.argv[1:]))
