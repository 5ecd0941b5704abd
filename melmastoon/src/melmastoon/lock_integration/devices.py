"""Which vendor's locks a house has. All locks of a house are of one vendor."""

from __future__ import annotations

from typing import cast

from melmastoon.facts.lock_integration import DevicePaired, Vendor
from melmastoon.tables import run
from posthouse import Reject, Tx

USUAL: Vendor = "ttlock"
"""The vendor of a house whose locks were not paired one by one."""

VENDOR = "SELECT vendor FROM property_vendors WHERE tenant = ? AND property_id = ?"
CHOOSE = "INSERT INTO property_vendors (tenant, property_id, vendor) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
PAIR = """
INSERT INTO devices (tenant, device_id, property_id, room_id, vendor) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""


async def vendor_of(tx: Tx, property_id: str) -> Vendor:
    """The vendor of a house."""
    rows = await run(tx, VENDOR, tx.tenant, property_id)
    return cast("Vendor", str(rows.scalar())) if rows else USUAL


async def pair_device(tx: Tx, device_id: str, *, property_id: str, room_id: str, vendor: Vendor) -> bool:
    """A lock belongs to a room from now on. The first one decides on the vendor of the house; raises Reject for a lock of
    another. False: it was paired already."""
    await run(tx, CHOOSE, tx.tenant, property_id, vendor)
    known = await vendor_of(tx, property_id)
    if known != vendor:
        raise Reject(
            f"{property_id} has locks of {known}: {device_id} is of {vendor}, which cannot be mixed in a house"
        )
    if (await run(tx, PAIR, tx.tenant, device_id, property_id, room_id, vendor)).rowcount == 0:
        return False
    paired = DevicePaired(device_id=device_id, property_id=property_id, room_id=room_id, vendor=vendor)
    tx.publish(paired, idempotency_key=f"lock:pair:{device_id}")
    return True
