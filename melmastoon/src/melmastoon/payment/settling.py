"""Money and a vendor that does not answer: it is asked until it is known what happened, and never charged twice.

Every request carries the key of its intent. After trouble the vendor is asked what became of the key before anything is tried
again; after the last try the key is voided, and only then is it said that no money was moved. While the vendor answers nothing
at all the event waits, in order, and the whole of this runs again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from melmastoon.pace import seconds
from melmastoon.vendors.payment import Answer, Gateway, Refused
from melmastoon.vendors.weather import VendorTrouble
from melmastoon.vendors.world import world
from posthouse import Policy, RetryLater

T = TypeVar("T")

TRIES = 4
PAUSE = 1.0
"""Seconds of the house before the second try; it doubles."""

PATIENT = Policy(max_attempts=60, first_delay=seconds(2.0), last_delay=seconds(60.0), deadline=120.0)
"""For handlers that move money: a vendor that is down is waited for."""


async def settle(gateway: Gateway, key: str, move: Callable[[], Awaitable[Answer]]) -> Answer:
    """What became of the money that `move` asks for under `key`. Raises RetryLater while that cannot be known."""
    for number in range(TRIES):
        try:
            return await move()
        except VendorTrouble:
            known = await _asked_once(gateway, key)
            if known is not None:
                return known
        await world().wait(PAUSE * 2**number)
    return await withdraw(gateway, key)


async def withdraw(gateway: Gateway, key: str) -> Answer:
    """See to it that nothing happens under `key` any more; Moved when it had happened already."""
    for number in range(TRIES):
        try:
            answer = await gateway.void(key)
        except VendorTrouble:
            await world().wait(PAUSE * 2**number)
        else:
            return Refused("vendor_unavailable") if answer == Refused("voided") else answer
    raise RetryLater(f"the vendor does not say what became of {key}")


async def _asked_once(gateway: Gateway, key: str) -> Answer | None:
    try:
        return await gateway.look(key)
    except VendorTrouble:
        return None
