"""Users of a registry: a file with one line each, `name:role:secret`, where the secret is hashed.

A password is for HTTP's basic authentication. A token is made by `posthouse registry user add --token`, carries the name of
its user, and is sent as a bearer token. Lines that begin with # say nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
import tempfile
from enum import IntEnum
from pathlib import Path

import msgspec

from posthouse.errors import ConfigurationError, did_you_mean

COST, BLOCK, PARALLEL = 2**14, 8, 1
"""Of scrypt: 16 MiB and some tens of milliseconds for each guess."""
MEMORY = 64 * 1024 * 1024
LONGEST_SECRET = 1_000
SHORTEST_PASSWORD = 8
TOKEN = "phr"
"""The first word of a token: those who look for leaked secrets find it by this."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@\-]{0,99}")


class Role(IntEnum):
    """What a user may do. Each may do what those before it may."""

    READ = 1
    """See schemas, look them up and ask whether they would be compatible."""
    WRITE = 2
    """Register schemas, and delete them softly."""
    ADMIN = 3
    """Change levels and modes, and delete for ever."""


class User(msgspec.Struct, frozen=True):
    """One line of the file."""

    name: str
    role: Role
    secret: str

    def knows(self, secret: str) -> bool:
        """Whether this is the user's secret. Takes the same time whatever is wrong with it."""
        return verified(secret, self.secret)


def hashed(secret: str) -> str:
    """The secret as it is kept: `scrypt$cost$block$parallel$salt$hash`."""
    salt = secrets.token_bytes(16)
    digest = _digest(secret, salt, COST, BLOCK, PARALLEL)
    return f"scrypt${COST}${BLOCK}${PARALLEL}${_text(salt)}${_text(digest)}"


def verified(secret: str, kept: str) -> bool:
    """Whether a secret is the one that was kept."""
    _, cost, block, parallel, salt, digest = kept.split("$")
    made = _digest(secret[:LONGEST_SECRET], _bytes(salt), int(cost), int(block), int(parallel))
    return hmac.compare_digest(made, _bytes(digest)) and len(secret) <= LONGEST_SECRET


def new_token(name: str) -> str:
    """A token that nobody can guess; it says whose it is."""
    return f"{TOKEN}.{_text(name.encode())}.{secrets.token_urlsafe(32)}"


def owner_of(token: str) -> str | None:
    """The name that a token claims."""
    parts = token.split(".")
    if len(parts) != 3 or parts[0] != TOKEN:
        return None
    try:
        return _bytes(parts[1]).decode()
    except (ValueError, binascii.Error):
        return None


def read_users(path: Path) -> dict[str, User]:
    """Every user of a file, by name. Raises ConfigurationError with every line that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the users in {path} cannot be read: {error}") from error
    users: dict[str, User] = {}
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        user = _parsed(line)
        if isinstance(user, str):
            problems.append(f"{path}, line {number}: {user}")
        elif user.name in users:
            problems.append(f"{path}, line {number}: the user {user.name!r} is there twice")
        else:
            users[user.name] = user
    if problems:
        raise ConfigurationError(*problems)
    return users


def keep_user(path: Path, user: User) -> None:
    """Add a user to a file, or replace the one of this name. The file is swapped in one piece and only we may read it."""
    users = read_users(path) if path.exists() else {}
    users[user.name] = user
    text = "".join(f"{u.name}:{u.role.name.lower()}:{u.secret}\n" for u in users.values())
    _swap(path, f"# name:role:secret, written by `posthouse registry user add`\n{text}")


def drop_user(path: Path, name: str) -> None:
    """Take a user out of a file. Raises ConfigurationError when there is none of this name."""
    users = read_users(path)
    if name not in users:
        raise ConfigurationError(f"there is no user {name!r} in {path}.{did_you_mean(name, users)}")
    text = "".join(f"{u.name}:{u.role.name.lower()}:{u.secret}\n" for u in users.values() if u.name != name)
    _swap(path, f"# name:role:secret, written by `posthouse registry user add`\n{text}")


def role_named(word: str) -> Role:
    """The role of this name. Raises ConfigurationError."""
    try:
        return Role[word.upper()]
    except KeyError as error:
        names = [role.name.lower() for role in Role]
        raise ConfigurationError(f"there is no role {word!r}.{did_you_mean(word, names)}") from error


def check_name(name: str) -> None:
    """Raises ConfigurationError for a name that no user may have."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"{name[:100]!r} is not a user's name: up to 100 letters, digits and . _ @ -")


def check_password(password: str) -> None:
    """Raises ConfigurationError for a password that is none."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_SECRET:
        raise ConfigurationError(f"a password has {SHORTEST_PASSWORD} to {LONGEST_SECRET:,} characters")


def _parsed(line: str) -> User | str:
    """A user, or a sentence on what is wrong. The secret is never repeated."""
    parts = line.strip().split(":")
    if len(parts) != 3:
        return "a line is name:role:secret"
    name, role, secret = parts
    if not _NAME.fullmatch(name):
        return "the name is not one"
    if role.upper() not in Role.__members__:
        return f"there is no role {role!r}.{did_you_mean(role, [known.name.lower() for known in Role])}"
    return User(name, Role[role.upper()], secret) if _is_hash(secret) else "the secret is not hashed with scrypt"


def _is_hash(secret: str) -> bool:
    match secret.split("$"):
        case ["scrypt", cost, block, parallel, salt, digest]:
            numbers = all(part.isascii() and part.isdigit() and len(part) < 9 for part in (cost, block, parallel))
            if not numbers or int(cost) < 2 or int(cost) & (int(cost) - 1) or not int(block) or not int(parallel):
                return False
            within = 128 * int(cost) * int(block) * int(parallel) < MEMORY
            try:
                return within and len(_bytes(salt)) >= 8 and len(_bytes(digest)) == 32
            except (ValueError, binascii.Error):
                return False
        case _:
            return False


def _swap(path: Path, text: str) -> None:
    """Only the owner may read the new file: mkstemp makes it so."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _digest(secret: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    data = secret.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(data, salt=salt, n=cost, r=block, p=parallel, maxmem=MEMORY, dklen=32)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
