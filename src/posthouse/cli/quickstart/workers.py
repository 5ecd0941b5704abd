"""Worker processes of the demonstration, ended by their own process ids."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SHOP = "posthouse.cli.quickstart.shop"


class Workers:
    """Processes that run `posthouse run` in one folder, where their stores and the log are files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        self._environment = {k: v for k, v in os.environ.items() if k not in ("POSTHOUSE_STORE", "POSTHOUSE_BROKER")}

    def start(self, service: str) -> int:
        """Run a service of the shop; returns its process id."""
        command = [sys.executable, "-m", "posthouse", "run", f"{SHOP}:{service}"]
        with (self._folder / "workers.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=self._folder, env=self._environment, stdout=log, stderr=log)
        self._running.append(process)
        return process.pid

    def kill(self, pid: int) -> None:
        """SIGKILL: no goodbye, nothing is finished."""
        process = next(p for p in self._running if p.pid == pid)
        process.kill()
        process.wait()
        self._running.remove(process)

    def stop(self) -> list[int]:
        """SIGTERM to all; returns their exit codes."""
        for process in self._running:
            process.terminate()
        codes = []
        for process in self._running:
            try:
                codes.append(process.wait(timeout=15))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append(process.wait())
        self._running.clear()
        return codes
