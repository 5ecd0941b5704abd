"""A terminal: a command runs in it as before a person, and what it shows can be read."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

PATIENCE = 30.0
CONTROLLED = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
"""Makes stdin the terminal that Ctrl-C is pressed in."""

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_PLACE = re.compile(r"\x1b\[(\d+);1H(.*?)(?=\x1b\[\d+;1H|\x1b\[\?|$)", re.DOTALL)


class Pty:
    """A command of this Python in a terminal of so many columns and lines."""

    def __init__(
        self, arguments: Sequence[str], columns: int, lines: int, *, folder: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.terminal, self._theirs = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self.terminal)
        self.process = subprocess.Popen(
            [sys.executable, "-c", CONTROLLED, sys.executable, *arguments],
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            cwd=folder,
            env={**os.environ, "TERM": "xterm-256color", "PYTHONDONTWRITEBYTECODE": "1", **(env or {})},
            start_new_session=True,
        )
        self.output = ""

    def __enter__(self) -> Pty:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.terminal)
        os.close(self._theirs)

    def resize(self, columns: int, lines: int) -> None:
        """The kernel tells whoever runs in it."""
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.terminal, keys.encode())

    def until(self, reached: Callable[[Pty], object], what: str, within: float = PATIENCE) -> None:
        """Read on until it is so."""
        deadline = time.monotonic() + within
        while not reached(self):
            assert time.monotonic() < deadline, f"never came: {what}; on the screen:\n" + "\n".join(self.screen)
            self._read()

    def ended(self, within: float = PATIENCE) -> int:
        """The code that it ends with; all that it wrote is read."""
        self.until(lambda one: one.process.poll() is not None, "the end", within)
        while self._read():
            pass
        return self.process.wait()

    def _read(self) -> bool:
        if not select.select([self.terminal], [], [], 0.05)[0]:
            return False
        self.output += os.read(self.terminal, 1 << 16).decode(errors="replace")
        return True

    @property
    def screen(self) -> list[str]:
        """The lines of the last whole drawing: each is put at its place, and what is below the last is erased."""
        shown: dict[int, str] = {}
        whole: dict[int, str] = {}
        for place, text in _PLACE.findall(self.output):
            if place == "1":
                whole, shown = shown or whole, {}
            if "\x1b[J" not in text:
                shown[int(place)] = _STYLE.sub("", text.replace("\x1b[K", ""))
        last = shown if self.output.endswith("\x1b[J") or not whole else whole
        return [last[place] for place in sorted(last)]
