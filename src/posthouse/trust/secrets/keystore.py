"""PORT  Where the keys of persons are kept, each wrapped by a master key; and who was erased, for ever."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from posthouse.events.limits import MAX_BYTES
from posthouse.redaction import storable


def problem_of(subject: str) -> str:
    """Why an id is none that a person can have, in every key store and in the receipt of his erasure; empty where it is one."""
    if (size := len(subject.encode(errors="replace"))) > MAX_BYTES["person"]:
        return f"has {size:,} bytes, the longest id of a person has {MAX_BYTES['person']:,}"
    return "is no text that a key store can keep" if storable(subject) != subject else ""


class StoredKey(msgspec.Struct, frozen=True):
    """The key of a person in a tenant. `wrapped` is None once he was erased, at `erased_at`, in seconds since 1970."""

    tenant: str
    subject: str
    wrapped: bytes | None
    made_at: float = 0.0
    erased_at: float | None = None


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """A tombstone: no key of this person is ever made again. `number` grows with each erasure in a key store: it
    is the time in milliseconds, or more, so that a store that was brought back from a backup gives none a second time; 0: not given yet."""

    tenant: str
    subject: str
    why: str
    by: str
    at: float
    number: int = 0


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A process that may have keys in memory. It has forgotten all that was erased up to number `forgot`, was heard of `age`
    seconds ago, and without hearing from the key store it forgets all after `lease` seconds."""

    id: str
    name: str
    forgot: int
    age: float
    lease: float


class KeyStore(Protocol):
    """A database apart from those of services, with backups of its own. Every method may raise SecretsUnavailable; each is a
    transaction of its own, in bounded time."""

    place: str
    """Where it is, without secrets."""

    async def upgrade(self) -> bool:
        """Make its tables, where they are missing; whether they were. Safe from many processes."""
        ...

    async def begin(self) -> None:
        """`present`, at the first start of a service: a file that is missing is made. Never where it had one before."""
        ...

    async def present(self) -> None:
        """Raise ConfigurationError where there are no tables, or where it lies in the database of a service."""
        ...

    async def is_new(self) -> bool:
        """Whether nobody has a key or a tombstone yet."""
        ...

    async def get(self, tenant: str, subjects: Collection[str]) -> Mapping[str, StoredKey]:
        """What there is of these persons, keys and tombstones."""
        ...

    async def add(self, tenant: str, wrapped: Mapping[str, bytes]) -> Mapping[str, StoredKey]:
        """Add the keys of these persons, together, each unless there is one or a tombstone; returns what stands then, whoever was
        first."""
        ...

    async def erase(self, erasure: Erasure) -> Erasure:
        """Destroy the key and leave a tombstone, also where there never was one; the first tombstone stands. It is durable on
        return, and its number is larger than that of whatever was committed before."""
        ...

    async def erased(self, tenant: str | None = None, subjects: Collection[str] | None = None) -> Sequence[Erasure]:
        """Tombstones, oldest first; of these persons, or all."""
        ...

    async def list(self, tenant: str, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        """Keys and tombstones of a tenant by the ids of persons."""
        ...

    async def hear(self, holder: Holder) -> tuple[int, Sequence[tuple[str, str]]]:
        """A sign of life of a process that may hold keys, with what it forgot so far; the last number there is, and the (tenant,
        person) of each erasure since. A process says so before it gets its first key, with -1: it has nothing to forget. A last
        number below what it forgot: the key store was brought back from a backup. It is 0 where no erasure has the number up to which it
        forgot: there have been others since."""
        ...

    async def holders(self) -> Sequence[Holder]:
        """Processes that may hold keys, those first that were heard of last."""
        ...

    async def leave(self, id: str) -> None:
        """A process holds no keys any more."""
        ...

    async def aclose(self) -> None:
        """Idempotent; it can be used again."""
        ...
