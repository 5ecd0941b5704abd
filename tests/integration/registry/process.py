"""A registry in a process of its own, as users run it."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

PATIENCE = 30.0
"""Seconds for a registry to start or to end."""

ADDRESS = re.compile(r"listens on (\S+)")


@contextlib.contextmanager
def registry_process(store: str, *options: str) -> Iterator[str]:
    """`posthouse registry serve` on a free port of the loopback; its URL. It is ended as an operator would."""
    command = [sys.executable, "-W", "error", "-m", "posthouse", "registry", "serve", "--store", store, "--port", "0"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield _address(process, [*command, *options])
        finally:
            process.terminate()
            try:
                _, errors = process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
    assert process.returncode == 0, errors
    assert "Traceback" not in errors, errors


class Worker(NamedTuple):
    """A process that compares for a registry, as Linux shows it."""

    pid: int

    @property
    def alive(self) -> bool:
        return Path(f"/proc/{self.pid}").exists()

    @property
    def worked(self) -> float:
        """Seconds of processor time."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def workers_of(store: str) -> list[Worker]:
    """The workers of the registry that this process runs on the store."""
    registries = [pid for pid in _children(os.getpid()) if store in _command(pid)]
    found = [pid for registry in registries for pid in _children(registry)]
    return [Worker(pid) for pid in found if "posthouse.governance.registry.worker" in _command(pid)]


def _children(parent: int) -> list[int]:
    tasks = Path(f"/proc/{parent}/task").glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text().split()]


def _command(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def _address(process: subprocess.Popen[str], command: Sequence[str]) -> str:
    assert process.stdout is not None
    assert process.stderr is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and process.poll() is None:
            if selector.select(timeout=0.2):
                found = ADDRESS.search(process.stdout.readline())
                if found:
                    return found[1]
    process.kill()
    raise AssertionError(f"{' '.join(command)} did not start: {process.stderr.read()}")
