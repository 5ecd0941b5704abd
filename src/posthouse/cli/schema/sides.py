"""The two sides of the gate: the frozen folder as it is, and what it is compared with."""

from __future__ import annotations

from pathlib import Path

import msgspec

from posthouse.errors import ConfigurationError
from posthouse.governance.bundle import Bundle, is_part, read_bundle
from posthouse.governance.folder import read_folder
from posthouse.governance.local.archives import files_in, is_archive
from posthouse.governance.local.git import Repository


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle, and in words where it is from."""

    bundle: Bundle
    said: str


def past(against: str | None, folder: Path) -> Side:
    """What to compare with: an archive, a folder, a git ref, or what the work at hand goes back to."""
    if against is not None and is_archive(Path(against)):
        return Side(bundle=_held(read_bundle(files_in(Path(against))), against), said=against)
    if against is not None and Path(against).is_dir():
        return Side(bundle=_held(read_folder(Path(against)), against, is_folder=True), said=against)
    repository = Repository(folder)
    commit = repository.base() if against is None else repository.commit(against)
    files = repository.files(commit, folder)
    try:
        bundle = read_bundle({path: data for path, data in files.items() if is_part(path)})
    except ConfigurationError as error:
        raise ConfigurationError(*(f"{commit.said}: {problem}" for problem in error.problems)) from error
    said = commit.said if bundle.schemas else f"{commit.said}, where {folder} held no schemas yet"
    return Side(bundle=bundle, said=said)


def present(folder: Path) -> Bundle:
    """The folder as it is. Raises ConfigurationError when it holds nothing."""
    if not folder.is_dir():
        raise ConfigurationError(f"there is no folder {folder}: run `posthouse catalog freeze`, or name it with --dir")
    return read_folder(folder)


def _held(bundle: Bundle, against: str, *, is_folder: bool = False) -> Bundle:
    if bundle.schemas:
        return bundle
    hint = f"; if you mean the branch, write refs/heads/{against}" if is_folder and "/" not in against else ""
    raise ConfigurationError(f"{against} holds no frozen schemas, so there is nothing to compare with{hint}")
