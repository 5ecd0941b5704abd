"""Folder: a place for files that are written once, whole or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from posthouse.clock import new_id
from posthouse.errors import ArchiveUnavailable, ConfigurationError, did_you_mean

KNOWN = ("file",)


class Folder(Protocol):
    """Files by name, with slashes. ArchiveUnavailable where it cannot be reached or has no room."""

    async def put(self, name: str, data: bytes) -> bool:
        """Write a file that is not there yet. True once it is there for good; False, and nothing changed, when one of that name
        was there already."""
        ...


class LocalFolder:
    """A folder of this machine, or one that is mounted here."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def put(self, name: str, data: bytes) -> bool:
        try:
            return await asyncio.to_thread(_write, self.path / name, data)
        except OSError as error:
            raise ArchiveUnavailable(
                f"{self.path / name} cannot be written: {error.strerror or error}: make room, or give the right to write there"
            ) from error


def folder_at(url: str) -> LocalFolder:
    """What a URL names. Raises ConfigurationError."""
    parts = urlsplit(url)
    if parts.scheme not in KNOWN:
        hint = did_you_mean(parts.scheme, KNOWN) if parts.scheme else " Write file:///var/posthouse/rows."
        raise ConfigurationError(f"{url!r} is no place for files.{hint}")
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ConfigurationError(f"{url!r} names no folder of this machine: write file:/// and the whole path")
    return LocalFolder(Path(unquote(parts.path)))


def _write(path: Path, data: bytes) -> bool:
    """First beside it and onto the disk, then under its name, which a link takes only where it is free."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.parent / f".posthouse-{new_id()}"
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(beside, path)
        except FileExistsError:
            return False
        finally:
            _sync(path.parent)
        return True
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)


def _sync(folder: Path) -> None:
    """So that the name is there after a power cut too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
