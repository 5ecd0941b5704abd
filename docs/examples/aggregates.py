"""A folio whose state is the sum of its facts: decisions are pure, appending is publishing."""

import asyncio

from posthouse import Event, Payload, Service, StreamDeleted, Tx, VersionConflict
from posthouse.testing import Harness, deciding

billing = Service("billing")
ledger = Service("ledger")

heard: list[str] = []


@billing.event("folio.opened.v1", key="folio_id")
class FolioOpened(Payload):
    folio_id: str
    guest: str


@billing.event("folio.charged.v1", key="folio_id")
class FolioCharged(Payload):
    folio_id: str
    cents: int


@billing.event("folio.closed.v1", key="folio_id")
class FolioClosed(Payload):
    folio_id: str


@billing.event("folio.erased.v1", key="folio_id")
class FolioErased(Payload):
    folio_id: str


class Folio(Payload):
    folio_id: str = ""
    cents: int = 0
    open: bool = False


class FolioIsClosed(Exception):
    pass


class FolioIsOpen(Exception):
    pass


def evolve(folio: Folio, event: FolioOpened | FolioCharged | FolioClosed | FolioErased) -> Folio:
    match event:
        case FolioOpened():
            return Folio(event.folio_id, open=True)
        case FolioCharged():
            return Folio(folio.folio_id, folio.cents + event.cents, folio.open)
        case FolioClosed():
            return Folio(folio.folio_id, folio.cents, open=False)
        case FolioErased():
            return Folio()


def erase(folio: Folio) -> FolioErased:
    if folio.open:
        raise FolioIsOpen
    return FolioErased(folio.folio_id)


folios = billing.aggregate(
    "folio",
    initial=Folio,
    evolve=evolve,
    events=(FolioOpened, FolioCharged, FolioClosed, FolioErased),
    snapshot_every=100,
    delete=erase,
)


def charge(folio: Folio, cents: int) -> FolioCharged:
    if not folio.open:
        raise FolioIsClosed
    return FolioCharged(folio.folio_id, cents)


def close(folio: Folio) -> FolioClosed | None:
    return FolioClosed(folio.folio_id) if folio.open else None


@ledger.on(FolioOpened, FolioCharged, FolioClosed, FolioErased)
async def enter(event: Event[FolioOpened | FolioCharged | FolioClosed | FolioErased], tx: Tx) -> None:
    heard.append(f"{event.key} {event.extensions['streamversion']}: {event.data}")


@billing.external("minibar.bottle.taken.v1", key="folio_id")
class BottleTaken(Payload):
    folio_id: str
    cents: int


@billing.on(BottleTaken)
async def charge_bottle(event: Event[BottleTaken], tx: Tx) -> None:
    await folios.decide(tx, event.data.folio_id, lambda folio: charge(folio, event.data.cents))


def test_a_closed_folio_takes_no_charge() -> None:
    folio = deciding(folios).given(FolioOpened("f1", "Ada"), FolioCharged("f1", 1200))
    folio = folio.when(close).then(FolioClosed("f1"))
    folio.when(close).then()
    folio.when(lambda folio: charge(folio, 450)).then(FolioIsClosed)
    assert folio.state.cents == 1200


async def main() -> None:
    async with Harness(billing, ledger) as harness:
        async with billing.transaction(tenant="t1") as tx:
            await folios.append(tx, "f1", [FolioOpened("f1", "Ada")], expected="new")

        folio = await folios.execute("f1", lambda folio: charge(folio, 1200), tenant="t1")
        print(f"owes {folio.cents}")

        await harness.publish(BottleTaken("f1", 450))
        await harness.settled()

        async with billing.transaction(tenant="t1") as tx:
            loaded = await folios.load(tx, "f1")
            print(f"owes {loaded.state.cents} at version {loaded.version}")
            try:
                await folios.append(tx, "f1", [FolioClosed("f1")], expected=1)
            except VersionConflict as conflict:
                print(conflict)

        await folios.execute("f1", close, tenant="t1")
        async with billing.transaction(tenant="t1") as tx:
            await folios.archive(tx, "f1")
            print(f"owed {(await folios.load(tx, 'f1')).state.cents}")
            await folios.delete(tx, "f1")
        await harness.settled()
        async with billing.transaction(tenant="t1") as tx:
            try:
                await folios.load(tx, "f1")
            except StreamDeleted as gone:
                print(gone)
        print(*heard, sep="\n")


if __name__ == "__main__":
    test_a_closed_folio_takes_no_charge()
    asyncio.run(main())
