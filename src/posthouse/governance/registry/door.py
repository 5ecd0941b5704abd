"""Door: who a request comes from, and whether they may ask for that."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import msgspec
from starlette.datastructures import Headers
from starlette.types import Scope

from posthouse.governance.registry import refusal
from posthouse.governance.registry.users import Role, User, hashed, owner_of, read_users, verified

REMEMBERED = 1_000
"""Credentials that were right and need not be hashed again."""
AT_ONCE = 2
"""Hashes that are made at a time: each takes 16 MiB and a core."""


class Guest(msgspec.Struct, frozen=True):
    """Who was let in, and what they may do."""

    name: str
    role: Role


Known = Callable[[Scope], Awaitable[Guest | None]]
"""From the ASGI scope of a request to who sent it; None for nobody. Raises Refusal."""


class Door(Protocol):
    """Lets requests in."""

    @property
    def challenge(self) -> str:
        """What a stranger is asked for, as `WWW-Authenticate` says it."""
        ...

    async def let_in(self, scope: Scope) -> Guest:
        """Whoever sent the request of this ASGI scope. Raises Refusal."""
        ...


BASIC = 'Basic realm="posthouse registry", charset="UTF-8"'


class OpenDoor:
    """Everybody may do everything: for a registry that only its own machine can reach."""

    challenge = BASIC

    async def let_in(self, scope: Scope) -> Guest:
        return Guest("somebody", Role.ADMIN)


class KnownDoor:
    """Whom a function knows, beside the users of a file. Who names a user is judged as that user, and as nobody else."""

    def __init__(self, known: Known, users: UsersDoor | None) -> None:
        self._known, self._users = known, users
        self.challenge = f"{BASIC}, Bearer" if users else "Bearer"

    async def let_in(self, scope: Scope) -> Guest:
        if self._users is not None and _claim(_authorization(scope)) is not None:
            return await self._users.let_in(scope)
        guest = await self._known(scope)
        if guest is None:
            raise refusal.who_are_you()
        return guest


class UsersDoor:
    """Users of a file, by basic authentication or bearer token. The file is read again when it changes."""

    challenge = BASIC

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = _stamp(path)
        self._users = read_users(path)
        self._nobody = User("", Role.READ, hashed(secrets.token_urlsafe(16)))
        self._key = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, Guest] = OrderedDict()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def let_in(self, scope: Scope) -> Guest:
        claim = _claim(_authorization(scope))
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
        guest = Guest(user.name, user.role)
        if users is self._users:
            self._known[mark] = guest
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return guest

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


def _authorization(scope: Scope) -> str:
    return Headers(scope=scope).get("authorization", "")


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
