"""Terminal: a screen of its own that is drawn over and over without flicker, and given back as it was, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from posthouse.cli.screen.drawing import BARS

ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
"""The other screen, no cursor, no line that goes on in the next, nothing on it."""
LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"

USUAL = os.terminal_size((80, 24))


class Terminal:
    """Draws on a stream that is a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._console = Console(file=stream, force_terminal=True, markup=False, highlight=False, emoji=False)
        self._typed: list[int | list[bytes | int]] | None = None
        self._shown = False

    @property
    def size(self) -> os.terminal_size:
        """Columns and lines, as they are now."""
        with contextlib.suppress(OSError):
            found = os.get_terminal_size(self._stream.fileno())
            if found.columns > 0 and found.lines > 0:
                return found
        return USUAL

    @property
    def fancy(self) -> bool:
        """Whether it can show more than ASCII."""
        try:
            BARS.encode(self._stream.encoding)
        except (LookupError, UnicodeEncodeError):
            return False
        return True

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """The screen is ours for the block."""
        self._take()
        try:
            yield
        finally:
            self.give_back()

    def draw(self, lines: Sequence[Text]) -> None:
        """Over what is there: in one write, and nothing is erased that is not overwritten in it. Nothing when it was given back."""
        if not self._shown:
            return
        columns, height = self.size
        parts = []
        for number, line in enumerate(lines[:height], 1):
            parts.append(f"\x1b[{number};1H{self._coloured(line)}")
            if line.cell_len < columns:  # at the last column it would erase the last character
                parts.append("\x1b[K")
        if len(lines) < height:
            parts.append(f"\x1b[{len(lines) + 1};1H\x1b[J")
        self._write("".join(parts))

    def pause(self) -> None:
        """Ctrl-Z: the terminal is given back until the process goes on."""
        self.give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()

    def give_back(self) -> None:
        """As it was; a second time does nothing."""
        if not self._shown:
            return
        self._shown = False
        with contextlib.suppress(OSError, ValueError):  # it may be gone
            self._write(LEAVE)
        if self._typed is not None:
            with contextlib.suppress(OSError, ValueError, termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._typed)
            self._typed = None

    def _take(self) -> None:
        self._shown = True
        self._typed = _without_echo()
        self._write(ENTER)

    def _coloured(self, line: Text) -> str:
        with self._console.capture() as caught:
            self._console.print(line, end="", soft_wrap=True)
        return caught.get()

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _without_echo() -> list[int | list[bytes | int]] | None:
    """What is typed is not shown; how it was before, where somebody can type at all."""
    try:
        before = termios.tcgetattr(sys.stdin.fileno())
    except (OSError, ValueError, termios.error):
        return None
    now = [*before]
    now[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, now)
    return before
