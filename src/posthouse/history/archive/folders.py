"""A folder of this machine, or of one that is mounted here, as a place."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TypeVar

from posthouse.clock import new_id
from posthouse.errors import ArchiveUnavailable
from posthouse.history.archive.places import Object

T = TypeVar("T")

WRITING = ".writing"
"""Where an object is until it is whole. What is left there belongs to nobody."""


class Folder:
    """An object is written whole beside the others, forced to the disk, and then linked to its name, which fails where there is one."""

    def __init__(self, url: str, path: str) -> None:
        self.url = url
        self.path = Path(path)

    def put_new(self, name: str, data: bytes) -> bool:
        return self._mapped(name, lambda: self._put(self.path / name, data))

    def get(self, name: str) -> bytes | None:
        def read() -> bytes | None:
            with contextlib.suppress(FileNotFoundError):
                return (self.path / name).read_bytes()
            return None

        return self._mapped(name, read)

    def size(self, name: str) -> int | None:
        def look() -> int | None:
            with contextlib.suppress(FileNotFoundError):
                return (self.path / name).stat().st_size
            return None

        return self._mapped(name, look)

    def open(self, name: str, size: int) -> IO[bytes]:
        return (self.path / name).open("rb")

    def names(self, prefix: str) -> Iterator[Object]:
        for folder, _, files in os.walk(self.path / prefix):
            for file in files:
                path = Path(folder, file)
                with contextlib.suppress(FileNotFoundError):
                    yield Object(path.relative_to(self.path).as_posix(), path.stat().st_size)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._mapped(name, lambda path=self.path / name: path.unlink(missing_ok=True))  # type: ignore[misc]

    def _put(self, path: Path, data: bytes) -> bool:
        if path.exists():
            return False
        self._make(path.parent)
        part = self.path / WRITING / new_id()
        self._make(part.parent)
        try:
            with part.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(part, path)
            except FileExistsError:
                return False
            _sync(path.parent)
            return True
        finally:
            part.unlink(missing_ok=True)

    def _make(self, folder: Path) -> None:
        """With all that it is in; each is on the disk before anything in it is."""
        missing = []
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for made in reversed(missing):
            made.mkdir(exist_ok=True)
            _sync(made.parent)

    def _mapped(self, name: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            raise ArchiveUnavailable(f"{self.path / name}: {error.strerror or error}") from error


def _sync(folder: Path) -> None:
    """Have its list of names on the disk, where a folder can be asked that."""
    with contextlib.suppress(PermissionError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
