"""What file-storage-service can be asked to do."""

from __future__ import annotations

import base64
import hashlib
from typing import Literal

from melmastoon.facts.file import FileUploaded
from melmastoon.tables import run, typed
from posthouse import Reject, Tx

LARGEST = 10 * 1024 * 1024
NEW_OBJECT = """INSERT INTO file_object (tenant, file_id, purpose, media_type, sha256, content, verdict)
    VALUES (?, ?, ?, ?, ?, ?, '') ON CONFLICT DO NOTHING"""
HASH = "SELECT sha256 FROM file_object WHERE tenant = ? AND file_id = ?"
CONTENT = "SELECT content, verdict FROM file_object WHERE tenant = ? AND file_id = ?"


async def upload(
    tx: Tx,
    file_id: str,
    content: bytes,
    *,
    purpose: Literal["room_picture", "guest_document", "report", "logo"],
    media_type: str,
) -> bool:
    """Store an object. False when the same one is there already; another one under its id is refused."""
    if len(content) > LARGEST:
        raise Reject(f"{file_id} has {len(content):,} bytes, and {LARGEST:,} are the most")
    sha256 = hashlib.sha256(content).hexdigest()
    values = (tx.tenant, file_id, purpose, media_type, sha256, base64.b64encode(content).decode())
    if not (await run(tx, NEW_OBJECT, *values)).rowcount:
        if typed(await run(tx, HASH, tx.tenant, file_id), tuple[str]) == [(sha256,)]:
            return False
        raise Reject(f"{file_id} is another file already: files are never changed")
    uploaded = FileUploaded(
        file_id=file_id, purpose=purpose, media_type=media_type, size_bytes=len(content), sha256=sha256
    )
    tx.publish(uploaded, idempotency_key=f"file:upload:{file_id}")
    return True


async def download(tx: Tx, file_id: str) -> bytes:
    """What was stored, once a scan found nothing in it."""
    found = typed(await run(tx, CONTENT, tx.tenant, file_id), tuple[str, str])
    if not found:
        raise Reject(f"there is no file {file_id} in this tenant")
    content, verdict = found[0]
    if verdict != "clean":
        raise Reject(f"{file_id} {'was not scanned yet' if not verdict else 'is infected'} and is not given out")
    return base64.b64decode(content)
