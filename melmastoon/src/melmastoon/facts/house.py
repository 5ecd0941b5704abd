"""How a service of the house is made, and the values that many facts share."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec.structs import replace

from melmastoon.production import broker_of, is_production, settings_of
from melmastoon.rights import RIGHTS
from melmastoon.secrets import secrets_of
from melmastoon.tenancy import tenant_class
from posthouse import App, Payload, Personal, Service, Settings
from posthouse.trust.secrets import ERASED

NAMESPACE = "melmastoon"
CURRENCY = "USD"
HOME = "me-central1"
"""The region where the platform runs, and which its data does not leave."""


def service(token: str, *, owner: str) -> Service:
    """One of the 22, under the short name that its subjects carry. All speak the envelope of the platform, and their figures tell
    its classes of tenants apart."""
    made = Service(token, namespace=NAMESPACE, owner=owner, envelope="melmastoon")
    App(
        made,
        broker=broker_of(token, region=HOME) if is_production() else None,
        tenant_class=tenant_class,
        settings=settings_of(token, region=HOME) if is_production() else Settings(region=HOME, residency=HOME),
        rights=RIGHTS,
        secrets=secrets_of(token),
    )
    return made


class Guest(Payload):
    """Who stays, and where to write to. `guest_id` says nothing about the person: it stays when all else is erased."""

    guest_id: str
    name: Annotated[str, Personal("identity", of="guest_id")]
    email: Annotated[str, Personal("contact", of="guest_id")]
    phone: Annotated[str, Personal("contact", of="guest_id")]
    locale: str = "en"

    def erased(self) -> Guest:
        """The same guest, of whom nothing is known any more."""
        return replace(self, name=ERASED, email=ERASED, phone=ERASED)


Rail = Literal["card", "paypal", "mfs", "cash_pending"]
"""How money moves; `cash_pending`: on arrival, at the front desk."""

Purpose = Literal["stay", "delta", "balance"]
"""What money is taken for: the stay at booking, the difference of a date change, what is open at check-out."""
