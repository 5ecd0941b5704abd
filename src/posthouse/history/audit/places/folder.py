"""A folder: each file is written beside its place, brought to the disk, and linked there, which only one can do."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from posthouse.errors import AuditUnavailable
from posthouse.history.once import put_once

LOCK = ".lock"


class Folder:
    """`root` is made when the first file is put there."""

    def __init__(self, root: Path) -> None:
        self.name = str(root)
        self._root = root

    def get(self, path: str) -> bytes | None:
        try:
            return (self._root / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._away(error) from error

    def put(self, path: str, data: bytes) -> bool:
        try:
            there = put_once(lambda: self._put(self._root / path, data), lambda: self.get(path))
            _settle((self._root / path).parent)  # whoever put it may be about to
        except OSError as error:
            raise self._away(error) from error
        return there in (None, data)

    def replace(self, path: str, data: bytes, expected: bytes | None) -> bool:
        target = self._root / path
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            with (self._root / LOCK).open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if self.get(path) != expected:
                    return False
                with self._written(target, data) as new:
                    os.replace(new, target)
                _settle(target.parent)
        except OSError as error:
            raise self._away(error) from error
        return True

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        try:
            yield from self._below(prefix.rstrip("/"), after)
        except OSError as error:
            raise self._away(error) from error

    def _below(self, path: str, after: str) -> Iterator[str]:
        try:
            entries = list(os.scandir(self._root / path))
        except (FileNotFoundError, NotADirectoryError):
            return
        # In the order of the whole paths, as buckets list them: a folder sorts with the slash behind its name.
        for name, is_folder in sorted((entry.name + "/" * entry.is_dir(), entry.is_dir()) for entry in entries):
            found = f"{path}/{name.rstrip('/')}"
            if is_folder:
                if not after or f"{found}/" >= after[: len(found) + 1]:
                    yield from self._below(found, after)
            elif found > after and not name.startswith("."):
                yield found

    def _put(self, target: Path, data: bytes) -> bool:
        if target.exists():
            return False
        with self._written(target, data) as new:
            try:
                os.link(new, target)
            except FileExistsError:
                return False
        return True

    @contextlib.contextmanager
    def _written(self, target: Path, data: bytes) -> Iterator[str]:
        if not target.parent.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            for folder in (target.parent, *target.parent.parents):
                _settle(folder)
                if folder in (self._root, self._root.parent):
                    break
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o644)
            yield name
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)

    def _away(self, error: OSError) -> AuditUnavailable:
        return AuditUnavailable(f"the audit log in {self.name}: {error.strerror or error}")


def _settle(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
