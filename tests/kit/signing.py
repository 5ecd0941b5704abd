"""Keys for tests: a public file and the private halves, in a folder."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from posthouse import Event, Signing
from posthouse.store.outbox import Number
from posthouse.trust.signatures.keys import Key, read_keys, write_keys

REQUIRED = {"*": "require"}


class Keys:
    """Public keys in a file, private ones here."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "keys.toml"
        self.secrets: dict[str, Ed25519PrivateKey] = {}
        write_keys(self.file, [])

    def make(self, id: str, source: str = "/shop", **terms: Any) -> Key:
        """A key of a source, known to every reader."""
        self.secrets[id] = Ed25519PrivateKey.generate()
        key = Key(id=id, public=self.secrets[id].public_key().public_bytes_raw(), source=source, **terms)
        self.change(key)
        return key

    def change(self, key: Key) -> None:
        """A key as it stands from now on."""
        write_keys(self.file, {**read_keys(self.file), key.id: key}.values())

    def signing(self, *ids: str, verify: Mapping[str, str] = REQUIRED) -> Signing:
        """What a service says that has these private halves."""
        path = self.file.with_name(f"private-{'-'.join(ids) or 'none'}")
        halves = [(id, base64.b64encode(self.secrets[id].private_bytes_raw()).decode()) for id in ids]
        path.write_text("".join(f"{id}:{half}\n" for id, half in halves))
        return Signing(keys=self.file, private=path, verify=verify)


def numbered(event: Event[bytes], number: Number) -> Event[bytes]:
    """A fact as its readers will see it: with what the relay stamps from the columns."""
    return msgspec.structs.replace(event, sequence=number.sequence, lineage=number.lineage)
