"""Where servers of the tests keep their files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM = 2_000_000_000
"""Bytes that must be free there."""


def in_memory() -> Path | None:
    """In memory, where the system has room: a server that is killed loses what it has not written, here or on a disk, and nobody
    waits for a disk. None: the usual place."""
    return MEMORY if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM else None
