"""The console's interface, built from its sources by Node. Packages are fetched once per machine, by the versions that are pinned."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.kit.servers.once import CACHE, once
from tests.kit.servers.table import give_up, report

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "console"
STATIC = ROOT / "src" / "posthouse" / "console" / "static"
FETCHING = 180.0
"""Seconds for the registry."""


class Workshop:
    """A copy of the sources with the packages beside them: nothing of the checkout is written to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "console"
        npm, node = shutil.which("npm"), shutil.which("node")
        if npm is None or node is None:
            give_up("node", "node and npm are not installed: the interface of the console was NOT built")
        self._npm = npm
        shutil.copytree(SOURCES, self.folder, ignore=shutil.ignore_patterns("node_modules"))
        (self.folder / "node_modules").symlink_to(packages())
        report("node", "real", f"{self._said(node, '--version')} on this machine")

    def build(self, into: Path) -> Path:
        """The files that a wheel holds."""
        self._said(self._npm, "run", "build", "--", str(into))
        return into

    def check(self) -> str:
        """What the types say, empty where they are right."""
        return self._complaint("check")

    def test(self) -> str:
        """What the tests of what needs no browser say, empty where they pass."""
        return self._complaint("test")

    def _complaint(self, script: str) -> str:
        done = self._run(self._npm, "run", "--silent", script)
        return "" if done.returncode == 0 else done.stdout + done.stderr

    def _said(self, *command: str) -> str:
        done = self._run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=60, check=False)


def packages() -> Path:
    """The folder of what npm brings; or the tests that need it are skipped."""
    npm = shutil.which("npm")
    if npm is None:
        give_up("node", "node and npm are not installed: nothing of the interface was looked at")
    manifest = SOURCES / "package.json"
    home = CACHE / f"console-{hashlib.sha256(manifest.read_bytes()).hexdigest()[:12]}"
    with once("console"):
        if (home / "whole").exists():
            return home / "node_modules"
        home.mkdir(exist_ok=True)
        shutil.copy(manifest, home)
        command = [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
        try:
            subprocess.run(
                command, cwd=home, check=True, capture_output=True, text=True, timeout=FETCHING, env=os.environ
            )
        except subprocess.CalledProcessError as error:
            give_up("node", f"npm did not bring the packages: {error.stderr.strip()[-300:]}", registry_silent=True)
        except subprocess.TimeoutExpired:
            give_up("node", "npm did not come back with the packages", registry_silent=True)
        (home / "whole").touch()
    return home / "node_modules"
