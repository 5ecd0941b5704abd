"""Folder: bundles in folders. Files are replaced whole or not at all, and not touched when they say the same already."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from posthouse.contracts.lock import LOCK
from posthouse.errors import ConfigurationError
from posthouse.governance.bundle import Bundle, Files, is_part, read_bundle


def read_folder(folder: Path) -> Bundle:
    """The bundle in a folder; an empty one when there is no such folder. Raises ConfigurationError."""
    return read_bundle(_files(folder))


def write_folder(folder: Path, files: Files, removed: Iterable[str] = ()) -> list[str]:
    """Write what differs and remove what must go; returns the paths that were touched. The lock comes last: whoever
    reads in between sees a file that it does not know yet, never the other way round. Raises ConfigurationError, before
    anything is touched, for a path that leads out of the folder."""
    removed = list(removed)
    _check_inside(folder, [*files, *removed])
    touched = []
    try:
        for path in sorted(files, key=lambda path: (path == LOCK, path)):
            if _replace(folder / path, files[path]):
                touched.append(path)
        for path in removed:
            if (folder / path).exists():
                (folder / path).unlink()
                _remove_empty(folder / path, folder)
                touched.append(path)
    except OSError as error:
        raise ConfigurationError(f"cannot write {error.filename or folder}: {error.strerror}") from error
    return touched


def _check_inside(folder: Path, paths: Iterable[str]) -> None:
    """Paths come from files that others may have written; links on the way count as where they lead."""
    root = folder.resolve()
    outside = [
        path
        for path in paths
        if Path(path).is_absolute()
        or ".." in Path(path).parts
        or not (folder / path).parent.resolve().is_relative_to(root)
    ]
    if outside:
        raise ConfigurationError(*(f"{path!r} leads out of {folder}: nothing was touched" for path in outside))


def _files(folder: Path) -> Files:
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    try:
        return {name: path.read_bytes() for name, path in found.items() if is_part(name)}
    except OSError as error:
        raise ConfigurationError(f"cannot read {error.filename}: {error.strerror}") from error


def _replace(path: Path, data: bytes) -> bool:
    try:
        if path.read_bytes() == data:
            return False
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return True


def _umask() -> int:
    """The only way to ask for it is to set it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _remove_empty(path: Path, folder: Path) -> None:
    for parent in path.parents:
        if parent == folder or any(parent.iterdir()):
            return
        parent.rmdir()
