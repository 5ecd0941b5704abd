"""Archives: a frozen catalogue that was packed with a release. Read in memory; nothing is unpacked onto the disk."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from posthouse.contracts.lock import LOCK
from posthouse.errors import ConfigurationError
from posthouse.governance.bundle import Files, is_part

ENDINGS = (".tar.gz", ".tgz", ".tar", ".zip")
MOST_BYTES = 200_000_000
"""What an archive may hold in all: one that was made to fill the memory is refused."""


def is_archive(path: Path) -> bool:
    """Whether a name says so."""
    return path.name.lower().endswith(ENDINGS)


def files_in(path: Path) -> Files:
    """The files of the bundle in an archive, by their path in it. Raises ConfigurationError.

    The bundle may lie in a folder: its lock says which.
    """
    try:
        packed = dict(_zipped(path) if path.name.lower().endswith(".zip") else _tarred(path))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from error
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, RuntimeError, NotImplementedError) as error:
        raise ConfigurationError(f"{path} is not a whole archive: {error}") from error
    root = _root(packed)
    return {name.removeprefix(root): data for name, data in packed.items() if is_part(name.removeprefix(root))}


def _root(packed: Files) -> str:
    """The folder of the outermost lock, with a slash at its end."""
    locks = [name for name in packed if name == LOCK or name.endswith(f"/{LOCK}")]
    return min(locks, key=lambda name: (name.count("/"), name)).removesuffix(LOCK) if locks else ""


def _tarred(path: Path) -> Iterator[tuple[str, bytes]]:
    room = MOST_BYTES
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isreg() else None
            if file is not None:
                room = _left(path, room, member.size)
                yield member.name.removeprefix("./"), file.read()


def _zipped(path: Path) -> Iterator[tuple[str, bytes]]:
    room = MOST_BYTES
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                room = _left(path, room, member.file_size)
                yield member.filename.removeprefix("./"), archive.read(member)


def _left(path: Path, room: int, size: int) -> int:
    if size > room:
        raise ConfigurationError(f"{path} holds more than {MOST_BYTES:,} bytes: it is not a frozen catalogue")
    return room - size
