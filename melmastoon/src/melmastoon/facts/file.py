"""file-storage-service: documents and pictures, and whether they are safe to open. Its facts have no aggregate."""

from __future__ import annotations

from typing import Literal

from melmastoon.facts.house import service
from posthouse import Payload

file = service("file", owner="storage")


@file.event("uploaded.v1", key="file_id", retention="warm", idempotency="required")
class FileUploaded(Payload):
    """An object was stored. It is not shown to anybody before it was scanned."""

    file_id: str
    purpose: Literal["room_picture", "guest_document", "report", "logo"]
    media_type: str
    size_bytes: int
    sha256: str


@file.event("scanned.v1", key="file_id", retention="warm", idempotency="required")
class FileScanned(Payload):
    """A scanner looked at it. `signature` names what was found, empty when nothing was."""

    file_id: str
    verdict: Literal["clean", "infected"]
    signature: str = ""
