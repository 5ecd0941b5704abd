"""PORT  A master key: wraps the keys of persons, so that a key store alone opens nothing."""

from __future__ import annotations

from typing import Protocol


class Master(Protocol):
    """May raise SecretsUnavailable, and ConfigurationError for a master key that did not wrap what it is given."""

    place: str
    """What it is, without secrets."""

    async def begin(self) -> None:
        """Make it where it is missing and can be made: for a key store that never had a key."""
        ...

    async def wrap(self, tenant: str, subject: str, key: bytes) -> bytes:
        """The key as the key store may see it; bound to this tenant and person."""
        ...

    async def unwrap(self, tenant: str, subject: str, wrapped: bytes) -> bytes:
        """The key again."""
        ...

    async def aclose(self) -> None:
        """Idempotent; it can be used again."""
        ...
