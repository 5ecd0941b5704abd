"""Checkout: which commit git has checked out around a folder. Read from git's own files: no program is run."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

CHANGED = "-worktree"
"""Behind the commit: what runs is a working tree, which may have been changed since."""

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_INSTALLED = frozenset(("site-packages", "dist-packages"))


@lru_cache(maxsize=256)
def checked_out(folder: Path) -> str:
    """As `<commit>-worktree`; empty where there is no working tree, and for what was installed into one."""
    try:
        for place in (folder, *folder.parents):
            if place.name in _INSTALLED:
                return ""
            if (place / ".git").exists():
                commit = _head(place / ".git")
                return f"{commit}{CHANGED}" if commit else ""
    except (OSError, UnicodeError):  # not ours to read, or not git's
        pass
    return ""


def _head(git: Path) -> str:
    if git.is_file():  # of a linked working tree
        git = (git.parent / git.read_text().removeprefix("gitdir:").strip()).resolve()
    head = (git / "HEAD").read_text().strip()
    if not head.startswith("ref:"):
        return head if _COMMIT.fullmatch(head) else ""
    name = head.removeprefix("ref:").strip()
    common = git / "commondir"
    shared = (git / common.read_text().strip()).resolve() if common.is_file() else git
    for place in (git / name, shared / name):
        if place.is_file():
            commit = place.read_text().strip()
            return commit if _COMMIT.fullmatch(commit) else ""
    packed = shared / "packed-refs"
    lines = packed.read_text().splitlines() if packed.is_file() else []
    return next((line[: -len(name)].strip() for line in lines if line.endswith(f" {name}")), "")
