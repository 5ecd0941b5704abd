"""The aggregate that these tests are about: a guest's bill."""

from __future__ import annotations

from collections.abc import Callable

from posthouse import App, Payload, Service
from posthouse.processes import Aggregate, Conflicts


class Folio(Payload):
    """What a guest owes."""

    guest: str = ""
    cents: int = 0
    charges: tuple[int, ...] = ()
    open: bool = False


class Closed(Exception):
    """Nothing can be charged any more."""


class Billing:
    """A service with folios, and the classes of its events. Each test has one of its own."""

    def __init__(
        self,
        *,
        store: str = "sqlite://",
        broker: str = "memory://?single_host=true",
        snapshot_every: int | None = None,
        revision: int = 1,
        conflicts: Conflicts | None = None,
    ) -> None:
        self.service = Service("billing")
        App(self.service, store=store, broker=broker)
        event = self.service.event
        self.folios: Aggregate[Folio, FolioOpened | Charged | FolioClosed] = self.service.aggregate(
            "folio",
            initial=Folio,
            evolve=evolve,
            events=(
                event("folio.opened.v1", key="folio_id")(FolioOpened),
                event("folio.charged.v1", key="folio_id")(Charged),
                event("folio.closed.v1", key="folio_id")(FolioClosed),
            ),
            snapshot_every=snapshot_every,
            revision=revision,
            conflicts=conflicts,
        )


class FolioOpened(Payload):
    """A guest arrived."""

    folio_id: str
    guest: str


class Charged(Payload):
    """Something was put on the bill."""

    folio_id: str
    cents: int


class FolioClosed(Payload):
    """The bill was paid."""

    folio_id: str


def evolve(folio: Folio, event: FolioOpened | Charged | FolioClosed) -> Folio:
    match event:
        case FolioOpened(guest=guest):
            return Folio(guest=guest, open=True)
        case Charged(cents=cents):
            return Folio(folio.guest, folio.cents + cents, (*folio.charges, cents), folio.open)
        case FolioClosed():
            return Folio(folio.guest, folio.cents, folio.charges, open=False)


def opening(folio: Folio) -> FolioOpened | None:
    return None if folio.guest else FolioOpened("f1", "Ann")


def charging(cents: int) -> Callable[[Folio], Charged]:
    def charge(folio: Folio) -> Charged:
        if not folio.open:
            raise Closed("the folio is closed")
        return Charged("f1", cents)

    return charge
