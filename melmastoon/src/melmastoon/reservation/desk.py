"""One click of the front desk on a saga that waits for somebody. Each is a transaction of its own; DeskError says why a
verb does not fit. They are the desk's to press, and need no grant: what an operator does about a saga does."""

from __future__ import annotations

from melmastoon.facts.reservation import reservation
from posthouse import app_of


async def abandon(tenant: str, booking_id: str) -> None:
    """The guest left the payment page: the hold is dropped, and what was taken goes back."""
    await app_of(reservation).sagas.cancel("booking", booking_id, "guest", tenant=tenant, command=True)


async def retry_check_in(tenant: str, booking_id: str, *, by: str = "") -> None:
    """Ask once more for the folio, the key or the welcome that is missing."""
    await app_of(reservation).sagas.retry("check_in", booking_id, tenant=tenant, by=by, command=True)


async def call_off_check_in(tenant: str, booking_id: str, *, by: str = "") -> None:
    """The guest does not come in after all; the booking is confirmed, as before."""
    await app_of(reservation).sagas.cancel("check_in", booking_id, "called off", tenant=tenant, by=by, command=True)


async def retry_check_out(tenant: str, booking_id: str, *, by: str = "") -> None:
    """Ask once more for the balance that is pending."""
    await app_of(reservation).sagas.retry("check_out", booking_id, tenant=tenant, by=by, command=True)


async def call_off_check_out(tenant: str, booking_id: str, *, by: str = "") -> None:
    """The guest stays after all, and may leave later; unless the key is to end already, which makes it a check-out."""
    await app_of(reservation).sagas.cancel("check_out", booking_id, "called off", tenant=tenant, by=by, command=True)


async def retry_date_change(tenant: str, change_id: str, *, by: str = "") -> None:
    """Ask once more for the rooms, the price or the key that are missing."""
    await app_of(reservation).sagas.retry("date_change", change_id, tenant=tenant, by=by, command=True)


async def call_off_date_change(tenant: str, change_id: str, *, by: str = "") -> None:
    """The guest keeps the dates, unless the nights are swapped already."""
    await app_of(reservation).sagas.cancel("date_change", change_id, "called off", tenant=tenant, by=by, command=True)
