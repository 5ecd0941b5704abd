"""A log that tests fill, sign and spoil."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from posthouse.broker import Frame
from posthouse.history.audit.batches import Batch, batch_path, read_batch, travelled, write_batch
from posthouse.history.audit.checkpoints import Signed
from posthouse.history.audit.log import AuditLog, Signer, seal
from posthouse.history.audit.notes import Verifier
from posthouse.history.audit.place import Place
from posthouse.history.audit.places.folder import Folder
from posthouse.history.audit.verify import Report, verify

NAME = "shop/audit"
DAY = 86_400.0
START = 1_795_000_000.0


def key_of(seed: bytes, name: str = NAME) -> Verifier:
    return Verifier(name, Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw())


SEED = bytes(range(32))
KEY = key_of(SEED)
SIGNER = Signer(NAME, SEED, [KEY])
OTHER_KEY = key_of(bytes(32))


def frame(number: int, *, body: bytes = b"") -> Frame:
    return Frame(
        topic="shop.orders.order",
        id=f"e{number}",
        key=f"t1:o{number % 7}",
        headers={"content-type": "application/cloudevents+json"},
        body=body or b'{"order_id":"o%d"}' % number,
    )


def events(start: int, end: int) -> list[bytes]:
    return [travelled(frame(number)) for number in range(start, end)]


class Spoilable:
    """A log of two places, in folders that somebody has his hands in."""

    def __init__(self, folder: Path) -> None:
        self.place: Place = Folder(folder / "log")
        self.second: Place = Folder(folder / "second")
        self.root = folder / "log"
        self.second_root = folder / "second"
        self.days = 0

    def fill(self, *ends: int, batch: int = 100) -> None:
        """Log events up to each of these numbers, and sign there."""
        for end in ends:
            log = AuditLog(self.place)
            for start in range(log.size(), end, batch):
                log.append(events(start, min(end, start + batch)))
            self.seal()

    def seal(self) -> Signed:
        self.days += 1
        return seal(self.place, self.second, SIGNER, START + self.days * DAY)

    def verify(self, *, alone: bool = False, keys: Sequence[Verifier] = (KEY,)) -> Report:
        return verify(self.place, list(keys), None if alone else self.second)

    def said(self, *, alone: bool = False) -> list[str]:
        return [finding.words for finding in self.verify(alone=alone).findings]

    def batch(self, first: int) -> Batch:
        return read_batch((self.root / batch_path(first)).read_bytes())

    def rewrite(self, first: int, events: Sequence[bytes], salts: bytes | None = None) -> None:
        """Put other events, and other salts if any, into a batch."""
        kept = self.batch(first).salts if salts is None else salts
        (self.root / batch_path(first)).write_bytes(write_batch(Batch(first, kept, events)))

    def remove(self, path: str) -> None:
        (self.root / path).unlink()
