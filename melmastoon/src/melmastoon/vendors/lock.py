"""PORT: the clouds of four lock vendors, and the encoder at the front desk, which needs no cloud."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from melmastoon.vendors.world import World, world

CredentialState = Literal["active", "suspended", "revoked"]


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A key as a lock knows it. `id` is ours and is the same for a booking, whatever its room and window become."""

    id: str
    tenant: str
    booking_id: str
    room_id: str
    check_in: str
    check_out: str
    state: Literal["active", "suspended"] = "active"


class LockVendor(Protocol):
    """One vendor's cloud. Every method is idempotent and raises VendorTrouble; then nobody knows what was done."""

    async def put(self, credential: Credential) -> None:
        """Have this credential open this room in this window, and no other; suspended, it opens nothing."""
        ...

    async def revoke(self, credential_id: str) -> None:
        """The credential opens nothing any more. Not to know it is fine."""
        ...

    async def find(self, credential_id: str) -> Credential | CredentialState | None:
        """The credential as it is now, or that it was revoked, or None when the vendor does not know it."""
        ...


class Encoder(Protocol):
    """The device at the desk that writes cards, and programs locks at the door. It always works."""

    async def cut(self, credential: Credential) -> None:
        """Write a card."""
        ...

    async def block(self, credential_id: str) -> None:
        """No door obeys this credential any more, whatever any cloud says."""
        ...


def lock_vendor(name: str) -> LockVendor:
    """The cloud of a vendor."""
    return SimulatedLockVendor(name, world())


def encoder() -> Encoder:
    """The device of the house."""
    return SimulatedEncoder(world())


_PUT = """
INSERT INTO credentials (id, vendor, tenant, booking_id, room_id, check_in, check_out, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET vendor = excluded.vendor, room_id = excluded.room_id, check_in = excluded.check_in,
    check_out = excluded.check_out, state = excluded.state
"""

_BLOCK = """
INSERT INTO credentials VALUES (?, 'encoder', '', '', '', '', '', 'revoked', 1) ON CONFLICT (id) DO UPDATE SET blocked = 1
"""


class SimulatedLockVendor:
    """A cloud that keeps its own books, in a mood that the weather decides."""

    def __init__(self, name: str, outside: World) -> None:
        self._name = name
        self._outside = outside

    async def put(self, credential: Credential) -> None:
        await self._outside.ask("put", credential.id, lambda: _put(self._outside, self._name, credential))

    async def revoke(self, credential_id: str) -> None:
        def work() -> None:
            with self._outside.ledger.writing() as books:
                books.execute("UPDATE credentials SET state = 'revoked' WHERE id = ?", (credential_id,))

        await self._outside.ask("revoke", credential_id, work)

    async def find(self, credential_id: str) -> Credential | CredentialState | None:
        def work() -> Credential | CredentialState | None:
            sql = "SELECT id, tenant, booking_id, room_id, check_in, check_out, state FROM credentials WHERE id = ?"
            rows = self._outside.ledger.read(sql, credential_id)
            if not rows:
                return None
            id, tenant, booking_id, room_id, check_in, check_out, state = (str(value) for value in rows[0])
            if state == "revoked":
                return "revoked"
            return Credential(
                id=id,
                tenant=tenant,
                booking_id=booking_id,
                room_id=room_id,
                check_in=check_in,
                check_out=check_out,
                state="suspended" if state == "suspended" else "active",
            )

        return await self._outside.ask("find", credential_id, work)


class SimulatedEncoder:
    """Writes into the same books, under its own name."""

    def __init__(self, outside: World) -> None:
        self._outside = outside

    async def cut(self, credential: Credential) -> None:
        _put(self._outside, "encoder", credential)

    async def block(self, credential_id: str) -> None:
        with self._outside.ledger.writing() as books:
            books.execute(_BLOCK, (credential_id,))


def _put(outside: World, vendor: str, credential: Credential) -> None:
    values = msgspec.structs.astuple(credential)
    with outside.ledger.writing() as books:
        books.execute(_PUT, (values[0], vendor, *values[1:]))
