"""Door: who a request comes from, and whether they may ask for that."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import secrets
from collections import OrderedDict
from pathlib import Path
from typing import Protocol

from posthouse.governance.registry import refusal
from posthouse.governance.registry.users import Role, User, hashed, owner_of, read_users, verified

REMEMBERED = 1_000
"""Credentials that were right and need not be hashed again."""
AT_ONCE = 2
"""Hashes that are made at a time: each takes 16 MiB and a core."""


class Door(Protocol):
    """Lets requests in."""

    async def role_of(self, authorization: str) -> Role:
        """The role of whoever sent this `Authorization` header, which may be empty. Raises Refusal."""
        ...


class OpenDoor:
    """Everybody may do everything: for a registry that only its own machine can reach."""

    async def role_of(self, authorization: str) -> Role:
        return Role.ADMIN


class UsersDoor:
    """Users of a file, by basic authentication or bearer token. The file is read again when it changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = _stamp(path)
        self._users = read_users(path)
        self._nobody = User("", Role.READ, hashed(secrets.token_urlsafe(16)))
        self._key = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, Role] = OrderedDict()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def role_of(self, authorization: str) -> Role:
        claim = _claim(authorization)
        if claim is None:
            raise refusal.who_are_you()
        self._look_again()
        users = self._users
        mark = hashlib.blake2b("\0".join(claim).encode("utf-8", "surrogatepass"), key=self._key).digest()
        known = self._known.get(mark)
        if known is not None:
            self._known.move_to_end(mark)
            return known
        name, secret = claim
        user = users.get(name, self._nobody)  # a name that is not there takes as long as a wrong password
        async with self._turns:
            right = await asyncio.to_thread(verified, secret, user.secret)
        if not right or user is self._nobody:
            raise refusal.who_are_you()
        if users is self._users:
            self._known[mark] = user.role
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return user.role

    def _look_again(self) -> None:
        """A user who was taken out of the file is out at once, whatever is remembered."""
        stamp = _stamp(self._path)
        if stamp != self._stamp:
            self._users, self._stamp = read_users(self._path), stamp
            self._known = OrderedDict()


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def _claim(authorization: str) -> tuple[str, str] | None:
    """The name and the secret that a header claims."""
    scheme, _, rest = authorization.strip().partition(" ")
    if scheme.lower() == "bearer":
        owner = owner_of(rest.strip())
        return None if owner is None else (owner, rest.strip())
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, secret = base64.b64decode(rest.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return (name, secret) if colon else None
