"""Sources: the files of Python that belong to some services."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from posthouse.errors import ConfigurationError
from posthouse.governance.policies import Source
from posthouse.service import Service

TESTS = frozenset({"test", "tests"})
"""Folders that are not looked into: tests publish whatever they like."""


def sources_of(services: Iterable[Service], modules: Iterable[str], root: Path) -> list[Source]:
    """The packages of these modules, and those in which services declare their events and handlers."""
    files: set[Path] = set()
    for module in sorted({*modules, *(name for service in services for name in _modules(service))}):
        files.update(_package_files(module))
    return _read(sorted(files), root)


def sources_in(places: Sequence[str], root: Path) -> list[Source]:
    """The files that were named, and those in the folders that were. Raises ConfigurationError for what is not there."""
    missing = [place for place in places if not (root / place).exists()]
    if missing:
        raise ConfigurationError(
            *(f"[tool.posthouse.check]: sources names {place!r}, which is not there" for place in missing)
        )
    return _read(sorted({file for place in places for file in _files(root / place)}), root)


def _modules(service: Service) -> Iterator[str]:
    for event_type in service.declared.catalogue:
        if not event_type.external:
            yield event_type.payload.cls.__module__
    for handlers in service.declared.consumers.values():
        for handler in handlers.values():
            yield handler.function.__module__


def _package_files(module: str) -> Iterator[Path]:
    """All of the outermost package; a module that stands alone is one file. Posthouse's own package is not the user's."""
    top = sys.modules.get(module.partition(".")[0])
    folders = [] if top is None or top.__name__ == "posthouse" else list(getattr(top, "__path__", []))
    for folder in folders:
        yield from _files(Path(folder))
    file = getattr(sys.modules.get(module), "__file__", None)
    if not folders and file:
        yield Path(file)


def _files(place: Path) -> Iterator[Path]:
    for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
        inside = file.relative_to(place).parts if place.is_dir() else ()
        hidden = any(part.startswith(".") or part == "site-packages" for part in inside)
        if file.suffix == ".py" and not hidden and not _is_test(inside):
            yield file


def _is_test(parts: tuple[str, ...]) -> bool:
    return bool(TESTS.intersection(parts)) or (
        bool(parts) and (parts[-1].startswith("test_") or parts[-1] == "conftest.py")
    )


def _read(files: Iterable[Path], root: Path) -> list[Source]:
    wanted = [file for file in files if "site-packages" not in file.parts]
    names = _imported_names({file.name for file in wanted})
    return [
        Source(module=names.get(file.resolve()) or _module_name(file), file=_shown(file, root), text=_text(file))
        for file in wanted
    ]


def _imported_names(files: set[str]) -> dict[Path, str]:
    """The modules that are imported from files of these names, by their place."""
    places = ((name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items()))
    return {Path(place).resolve(): name for name, place in places if place and os.path.basename(place) in files}


def _module_name(file: Path) -> str:
    """By the packages that it lies in."""
    names = [] if file.name == "__init__.py" else [file.stem]
    folder = file.parent
    while (folder / "__init__.py").exists():
        names.insert(0, folder.name)
        folder = folder.parent
    return ".".join(names)


def _shown(file: Path, root: Path) -> str:
    resolved = file.resolve()
    return resolved.relative_to(root).as_posix() if resolved.is_relative_to(root) else resolved.as_posix()


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}") from error
