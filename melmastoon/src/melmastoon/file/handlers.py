"""What file-storage-service does by itself: every upload is scanned."""

from __future__ import annotations

import base64

from melmastoon.facts.file import FileScanned, FileUploaded, file
from melmastoon.file.commands import CONTENT
from melmastoon.file.scanning import found_in
from melmastoon.tables import run, typed
from posthouse import Event, Tx

JUDGE = "UPDATE file_object SET verdict = ? WHERE tenant = ? AND file_id = ?"


@file.on(FileUploaded, reads=["file_id"])
async def scan(event: Event[FileUploaded], tx: Tx) -> FileScanned:
    file_id = event.data.file_id
    [(content, _)] = typed(await run(tx, CONTENT, tx.tenant, file_id), tuple[str, str])
    signature = found_in(base64.b64decode(content))
    scanned = FileScanned(file_id=file_id, verdict="infected" if signature else "clean", signature=signature)
    await run(tx, JUDGE, scanned.verdict, tx.tenant, file_id)
    return scanned
