"""Doors and a vendor that fails: it is asked a few times, and after trouble whether it was done after all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec

from melmastoon.facts.lock_integration import Vendor, lock_integration
from melmastoon.lock_integration.devices import vendor_of
from melmastoon.lock_integration.keys import Key
from melmastoon.pace import seconds
from melmastoon.vendors.lock import Credential, CredentialState, encoder, lock_vendor
from melmastoon.vendors.weather import VendorTrouble
from melmastoon.vendors.world import world
from posthouse import Policy

TRIES = 4
PAUSE = 1.0
"""Seconds of the house before the second try; it doubles."""

QUICK = Policy(deadline=120.0)
"""For handlers that ask a vendor: what fails goes to the manual queue, so that nothing of the booking waits behind it."""
PATIENT = Policy(max_attempts=60, first_delay=seconds(10.0), last_delay=seconds(300.0), deadline=120.0)
"""For what is tried again until it is done."""
APART = replace(PATIENT, order="none")
"""The same, where one key's troubles need not wait for each other."""


class Asked(msgspec.Struct, frozen=True):
    """What became of it: the turn of the key that was asked for, whether anything was asked, and the trouble, if any."""

    turn: int
    vendor: Vendor
    trouble: str = ""
    skipped: bool = False


async def put(tenant: str, key: Key, wanted: Credential | None = None) -> Asked:
    """Have the vendor's doors open for a key."""
    vendor = await _vendor(tenant, key)
    cloud, credential = lock_vendor(vendor), wanted or key.credential(tenant)
    trouble = await _persuade(lambda: cloud.put(credential), lambda: cloud.find(credential.id), credential)
    return Asked(key.turn, vendor, trouble)


async def revoke(tenant: str, key: Key) -> Asked:
    """Have no door open for a key any more: by the vendor, or by the house's own encoder where it was cut by hand."""
    vendor = await _vendor(tenant, key)
    cloud, id = lock_vendor(vendor), key.credential(tenant).id
    if key.manual:
        await encoder().block(id)
        return Asked(key.turn, vendor)
    return Asked(key.turn, vendor, await _persuade(lambda: cloud.revoke(id), lambda: cloud.find(id), "revoked"))


async def _persuade(
    ask: Callable[[], Awaitable[None]],
    find: Callable[[], Awaitable[Credential | CredentialState | None]],
    wanted: Credential | CredentialState,
) -> str:
    """Ask until it is done; the trouble when it was not."""
    trouble = ""
    for number in range(TRIES):
        try:
            await ask()
            return ""
        except VendorTrouble as error:
            trouble = error.reason
        try:
            if await find() == wanted:
                return ""
        except VendorTrouble:
            pass
        await world().wait(PAUSE * 2**number)
    return trouble


async def _vendor(tenant: str, key: Key) -> Vendor:
    async with lock_integration.transaction(tenant) as tx:
        return await vendor_of(tx, key.property_id)
