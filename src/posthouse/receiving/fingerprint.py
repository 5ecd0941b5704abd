"""Fingerprint: the same words for alike failures, so that thousands of held events are a few causes."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from pathlib import PurePath
from types import FrameType
from typing import Final

from posthouse.redaction import storable
from posthouse.seam.failures import OURS

LONGEST = 200
"""Characters."""

FORK: Final = "fork"
FORGED: Final = "forged"
UNREADABLE: Final = "unreadable"
REFUSED: Final = "refused"
CRASH: Final = "crash"
NO_HANDLER: Final = "no handler"
ASIDE: Final = "set aside"

_STANDARD = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
_INSTALLED = {"site-packages", "dist-packages"}


def fingerprint(error: BaseException) -> str:
    """The type of the error, and the place in the application that is nearest to it: file and function. No line, which every
    release moves, and no words of the error, which tell of one event.

    The application is what our code calls first, the package that this is in, and what is not installed."""
    handler, nearest = "", None
    trace = error.__traceback__
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        parts = PurePath(frame.f_code.co_filename).parts
        if _is_certainly_not(frame.f_code.co_filename, parts):
            continue
        handler = handler or _package(frame)
        if _INSTALLED.isdisjoint(parts) or _package(frame) == handler:
            nearest = frame
    place = "" if nearest is None else f" in {_file(nearest)}:{nearest.f_code.co_qualname}"
    return storable(f"{type(error).__name__}{place}")[:LONGEST]


def reason_word(reason: str, *, read: bool) -> str:
    """What stands for a reason where nothing was raised; `read`: somebody could read the event."""
    for word in (FORK, FORGED, UNREADABLE):
        if reason.startswith(word):
            return word
    return ASIDE if read else REFUSED


def _is_certainly_not(file: str, parts: Sequence[str]) -> bool:
    """Installed packages lie below the standard library."""
    return file.startswith((OURS, "<")) or (_INSTALLED.isdisjoint(parts) and file.startswith(_STANDARD))


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _file(frame: FrameType) -> str:
    """As it is imported, without the folders of this machine."""
    path = PurePath(frame.f_code.co_filename)
    module = str(frame.f_globals.get("__name__") or "")
    depth = module.count(".") + 1 + (path.name == "__init__.py")
    return "/".join(path.parts[-depth:])
