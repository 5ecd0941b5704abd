"""What an audit log takes of the processor: to verify one beside bare hashlib, and to append to it beside writing the same bytes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.reading import Reading, Round, Scale, compare
from posthouse.broker import Frame
from posthouse.history.audit.batches import SALT, travelled
from posthouse.history.audit.log import AuditLog, Signer, seal
from posthouse.history.audit.notes import Verifier
from posthouse.history.audit.places.folder import Folder
from posthouse.history.audit.verify import verify

EVENTS, BATCH, SIZE = 100_000, 2_000, 1_024
VERIFY = 0.5
"""The share of the limit's speed that is wanted."""
SEED = bytes(32)
KEY = Verifier("shop/audit", Ed25519PrivateKey.from_private_bytes(SEED).public_key().public_bytes_raw())
SIGNER = Signer(KEY.name, SEED, [KEY])


async def auditing(folder: Path, scale: Scale) -> list[Reading]:
    """Events of 1 KiB, appended in batches of 2,000 and signed; then verified from the files."""
    count = scale.count(EVENTS)
    events = [travelled(Frame(topic="shop.orders.order", id=f"{n:032x}", body=_body(n))) for n in range(count)]
    batches = [events[at : at + BATCH] for at in range(0, count, BATCH)]

    def append(number: int) -> None:
        place = Folder(folder / f"log{number}")
        log = AuditLog(place)
        for batch in batches:
            log.append(batch)
        seal(place, None, SIGNER, 1.0)

    def write(number: int) -> None:
        place = Folder(folder / f"bare{number}")
        for at, batch in enumerate(batches):
            place.put(f"events/{at}", b"".join(batch))

    def look(number: int) -> None:
        report = verify(Folder(folder / "log0"), [KEY])
        assert not report.findings
        assert report.signed == count

    def hash(number: int) -> None:
        """Each file is read, each event, entry and node hashed, and nothing is compared."""
        for path in (folder / "log0").rglob("*"):
            if path.is_file():
                path.read_bytes()
        pair, salt = bytes(65), bytes(SALT)
        for event in events:
            entry = sha256(salt + event).digest()
            sha256(b"\x00" + entry + b"%032x").digest()
            sha256(pair).digest()

    appended = await compare("audit append", _round(append), _round(write), rounds=scale.turns(3), count=count)
    verified = await compare(
        "audit verify", _round(look), _round(hash), rounds=scale.turns(5), count=count, goal=VERIFY
    )
    return [appended, verified]


def _body(number: int) -> bytes:
    return (b"%d " % number + os.urandom(16).hex().encode() * 32)[:SIZE]


def _round(work: Callable[[int], None]) -> Round:
    async def done(number: int) -> float:
        began = time.process_time()
        work(number)
        return time.process_time() - began

    return done
