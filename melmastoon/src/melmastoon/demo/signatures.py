"""Signatures of a play: a key for each service, made at its start, and the file by which all of them know each other."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from posthouse import Service, Signing
from posthouse.trust.signatures.keys import Key, replace_file, write_keys


def make_keys(folder: Path, services: Iterable[Service]) -> None:
    """A key for each service, unless the folder has them. Its private half is in a file that this service alone is given."""
    if (public := _public(folder)).exists():
        return
    keys = []
    for service in services:
        secret, id = Ed25519PrivateKey.generate(), f"{service.name}-1"
        half = base64.b64encode(secret.private_bytes_raw()).decode()
        replace_file(_private(folder, service), f"{id}:{half}\n", mode=0o600)
        own = f"{service.namespace}.{service.name}"
        keys.append(
            Key(
                id=id,
                public=secret.public_key().public_bytes_raw(),
                source=f"/{service.namespace}/{service.name}",
                topics=(own, f"{own}.*"),
            )
        )
    write_keys(public, keys)


def signing_of(folder: Path, service: Service) -> Signing:
    """What a service says: it signs with its key, and requires a signature of whatever it reads."""
    return Signing(keys=_public(folder), private=_private(folder, service))


def _public(folder: Path) -> Path:
    return folder / "keys.toml"


def _private(folder: Path, service: Service) -> Path:
    return folder / "private" / service.name
