"""LocalMaster: a master key of 32 bytes in a file or in the environment; each tenant has one of its own, made of it."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
from functools import cached_property, lru_cache
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from posthouse.clock import new_id
from posthouse.errors import ConfigurationError, SecretsUnavailable
from posthouse.trust.secrets.master import Master

SIZE = 32
NONCE = 12


def open_at(kind: str, rest: str, patience: float) -> Master:
    """`file:PATH`, or `env:NAME`."""
    return LocalMaster(Path(rest)) if kind == "file" else LocalMaster(None, rest)


class LocalMaster:
    """`path` is the file, or `variable` the name in the environment; there it is base64."""

    def __init__(self, path: Path | None, variable: str = "") -> None:
        self._path = path
        self._variable = variable
        self.place = f"env:{variable}" if path is None else f"file:{path}"
        self._of_tenant = lru_cache(1_000)(self._derived)

    async def begin(self) -> None:
        if self._path is not None and not self._path.exists():
            _make(self._path)

    async def wrap(self, tenant: str, subject: str, key: bytes) -> bytes:
        nonce = os.urandom(NONCE)
        return nonce + self._of_tenant(tenant).encrypt(nonce, key, _context(tenant, subject))

    async def unwrap(self, tenant: str, subject: str, wrapped: bytes) -> bytes:
        try:
            return self._of_tenant(tenant).decrypt(wrapped[:NONCE], wrapped[NONCE:], _context(tenant, subject))
        except (InvalidTag, ValueError):
            raise ConfigurationError(
                f"the master key {self.place} did not wrap the key of {subject!r} of tenant {tenant!r}: is it the one that this "
                "key store was begun with?"
            ) from None

    async def aclose(self) -> None: ...

    def _derived(self, tenant: str) -> AESGCM:
        info = b"posthouse.tenant.1 " + tenant.encode()
        return AESGCM(HKDF(algorithm=SHA256(), length=SIZE, salt=None, info=info).derive(self._key))

    @cached_property
    def _key(self) -> bytes:
        if self._path is None:
            return _checked(os.environ.get(self._variable, "").encode(), self.place)
        try:
            return _checked(self._path.read_bytes(), self.place)
        except (OSError, ConfigurationError) as error:
            what = (
                "is not there" if isinstance(error, FileNotFoundError) else "cannot be read, or is not the whole of it"
            )
            raise SecretsUnavailable(
                f"the master key {self.place} {what}: mount it where it was, or bring it back from where you keep it: a new one "
                "would open nothing"
            ) from error


def _checked(text: bytes, place: str) -> bytes:
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != SIZE:
        raise ConfigurationError(
            f"the master key {place} is not {SIZE} bytes in base64: make one with `openssl rand -base64 32`, once, and keep it"
        )
    return key


def _make(path: Path) -> None:
    """Complete or not at all, and whoever is first makes it."""
    beside = path.with_name(f"{path.name}.{new_id()}")
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(base64.b64encode(os.urandom(SIZE)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(beside, path)
    except OSError as error:
        raise ConfigurationError(f"the master key file:{path} cannot be made: {error.strerror}") from error
    finally:
        beside.unlink(missing_ok=True)


def _context(tenant: str, subject: str) -> bytes:
    return msgspec.json.encode(("posthouse.key.1", tenant, subject))
