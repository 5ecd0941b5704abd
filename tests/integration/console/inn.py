"""An inn with secrets, rights and grants, for the console to show: a guest whose name no handler may read, one who was erased, and a
desk of three people who ask each other. Whoever asks says so in a header: the tests of doors are elsewhere."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import uvicorn
from starlette.requests import Request
from starlette.types import Scope

from posthouse import App, Event, Payload, Personal, Policy, Rights, Service, subject_erased
from posthouse.console.access import Access, Who
from posthouse.console.application import console
from posthouse.erasure import erase
from posthouse.store import HeldFilter
from posthouse.store import Scope as Covers
from posthouse.trust.rights import Asked, signed_in
from posthouse.trust.secrets import Secrets
from posthouse.watch.status import drained
from tests.kit.waiting import eventually

NAME = "Zahra-of-Kandahar"
FOLDER = Path(os.environ.get("INN", "."))
PEOPLE = {
    "ada": Who(name="ada", roles=frozenset(("admin",)), payloads=True),
    "ben": Who(name="ben", roles=frozenset(("admin",)), payloads=True),
    "eve": Who(name="eve", roles=frozenset(("reader",))),
}

inn = Service("inn", namespace="town")
ledger = Service("ledger", namespace="town")


@inn.event("guest.arrived.v1", key="guest_id", about="guest_id")
class GuestArrived(Payload):
    guest_id: str
    name: Annotated[str, Personal("identity")]
    born: Annotated[int | None, Personal("identity")] = None
    room: str = "12"


subject_erased(inn)


@ledger.event("bill.opened.v1", key="guest_id")
class BillOpened(Payload):
    guest_id: str


@ledger.on(GuestArrived, policy=Policy(max_attempts=1))
async def bill(event: Event[GuestArrived]) -> None:
    raise ValueError("no such room")


app = App(
    inn,
    ledger,
    store=f"sqlite:///{FOLDER}/inn.db",
    broker=f"embedded:///{FOLDER}/log.db",
    secrets=Secrets(keys=f"sqlite:///{FOLDER}/keys.db", master=f"file:{FOLDER}/master.key"),
    rights=Rights(
        read={"town.inn.*": ["ledger"]},
        replay={"town.inn.*": [], "town.ledger.*": ["ledger", "audit"]},
        publish={"town.ledger.*": ["old-till"]},
        grants=True,
    ),
)


def who_asks(scope: Scope) -> Who | None:
    return PEOPLE.get(Request(scope).headers.get("x-who", ""))


async def fill() -> None:
    await app.store.upgrade()
    async with inn.transaction("t1") as tx:
        tx.publish(GuestArrived(guest_id="g1", name=NAME, born=1990))
        tx.publish(GuestArrived(guest_id="g2", name="Gone-Forever", born=1950))
    async with app.running():
        await eventually(
            lambda: app.store.held.find(HeldFilter(state="dead")), right=lambda found: len(found) == 2, within=60
        )
        await drained(inn)
    await erase(inn, "t1", "g2", why="he asked")
    with signed_in(True):
        for scope, why in (
            (Covers(tenant="t1", consumer="ledger"), "ticket 7: the till was down"),
            (Covers(), "ticket 8: all of last night again"),
            (Covers(tenant="t1"), "ticket 9: by mistake"),
        ):
            asked = Asked(service="ledger", verb="replay", scope=scope, minutes=45, most=120, rate=10)
            grant = await app.grants.request(asked, by="ben", why=why)
            if "8" in why:
                await app.grants.approve(grant.id, by="cat", why="seen")
                await app.grants.draw("ledger", "replay", Covers(), "ben", 3)
            elif "9" in why:
                await app.grants.revoke(grant.id, by="cat", why="not this")
    await app.aclose()


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        asyncio.run(fill())
    else:
        uvicorn.run(console(app, access=Access(who=who_asks)), port=int(sys.argv[1]), log_level="warning")
