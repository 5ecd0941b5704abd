"""Chromium for the tests: the system's, or that of Debian's package with all that it needs, unpacked without installing it; driven by
playwright, without a window, ended with the run."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

from playwright.sync_api import Browser, sync_playwright

from tests.kit.servers.debian import environment, unpacked
from tests.kit.servers.table import report

FONTS = "fonts-liberation"
"""Letters, for a machine that has none."""


@functools.cache
def program() -> tuple[Path, Path]:
    """The program, and the root that its libraries are in; or the tests that need it are skipped."""
    found = shutil.which("chromium")
    root = Path("/") if found else unpacked("chromium", "chromium", FONTS)
    path = Path(found) if found else root / "usr/lib/chromium/chromium"
    said = subprocess.run([path, "--version"], env=environment(root), capture_output=True, text=True, check=True)
    report("chromium", "real", f"{said.stdout.split()[1]}, {path}")
    return path, root


@contextmanager
def browser() -> Iterator[Browser]:
    """One browser; each test opens a context of its own in it."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(**how())
        try:
            yield running
        finally:
            running.close()


class How(TypedDict):
    """As `launch` takes it."""

    executable_path: Path
    args: list[str]
    env: dict[str, str | float | bool]


def how() -> How:
    """For those who launch it themselves."""
    path, root = program()
    return How(executable_path=path, args=["--no-sandbox"], env=_environment(root))


def _environment(root: Path) -> dict[str, str | float | bool]:
    fonts = {} if root == Path("/") else {"FONTCONFIG_PATH": f"{root}/etc/fonts", "XDG_DATA_HOME": f"{root}/usr/share"}
    return {**environment(root), **fonts}
