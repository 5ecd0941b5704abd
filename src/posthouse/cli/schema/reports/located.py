"""Where an objection is to be shown: a file of the repository, and a line in it."""

from __future__ import annotations

from pathlib import Path

from posthouse.errors import ConfigurationError
from posthouse.governance.gate import Objection
from posthouse.governance.gate.lines import line_of
from posthouse.governance.local.git import Repository


class Located:
    """Paths as the repository says them, from its top; without a repository, from the working directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self._prefix = Repository(folder).path_of(folder)
        except ConfigurationError:
            self._prefix = folder.as_posix()

    def path(self, file: str) -> str:
        """A file of the bundle."""
        return f"{self._prefix}/{file}" if self._prefix else file

    def line(self, one: Objection) -> int:
        """The line that is meant; 1 for a file that is gone."""
        try:
            text = (self._folder / one.file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return 1
        return line_of(text, one.path)
