"""`python -m tests`: every test, three processes side by side, because most of them wait for servers most of the time.
`python -m tests quick`: those that need no server and little time, in two.

Side by side they take processors from each other, and some tests wait for real clocks: up to `FEW` that failed then run
once more, alone. One that fails again fails the run; one that does not is named at the end, its first failure above.
What is said after it goes to pytest, each time: `python -m tests -x`. Paths are for `pytest` itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

from tests.kit.servers.memory import in_memory

ROOT = Path(__file__).parents[1]
SHARES = {
    "faults": ("tests/faults",),
    "brokers": ("tests/conformance",),
    "together": ("tests/integration",),
    "docs": ("tests/docs",),
    "units": ("tests", *(f"--ignore=tests/{other}" for other in ("faults", "conformance", "integration", "docs"))),
}
"""The longest first; each brings servers of its own. The last has whatever is in no other."""
AT_ONCE = 3
"""How many run side by side. The next begins when one has ended, so that no share decides alone how long it takes."""
BESIDE = ("cli", "melmastoon", "processes", "testing", "receiving", "stores")
QUICK = {
    "some": (*(f"tests/unit/{room}" for room in BESIDE), "tests/conformance/test_sqlite.py"),
    "others": (
        "tests/unit",
        "tests/conformance/test_embedded.py",
        "tests/conformance/test_memory.py",
        *(f"--ignore=tests/unit/{room}" for room in BESIDE),
    ),
}
"""Unit tests, and the contracts on what needs no server: half of the work each."""
FEW = 5
"""More failures than this are no bad luck of the clock."""
ENDING = re.compile(r"=+ (.* in [\d.]+s.*?) =+")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {
    "PYTHONPYCACHEPREFIX": str(ROOT / ".cache/bytecode")
}
"""Thousands of processes are started and killed: none of them should compile again what another one has compiled."""
running: list[subprocess.Popen[str]] = []


@dataclass
class Share:
    """One process of pytest: what it runs, what it remembers, how it ended."""

    name: str
    paths: tuple[str, ...]
    memory: Path
    ending: str = "no word from pytest"
    code: int = 0
    unsteady: list[str] = field(default_factory=list)

    def run(self, *options: str) -> None:
        """Run to the end, saying each line under the name of the share."""
        command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={self.memory}", *self.paths, *options]
        with subprocess.Popen(
            command,
            cwd=ROOT,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            running.append(process)
            assert process.stdout is not None
            for line in process.stdout:
                print(f"{self.name:8} | {line}", end="", flush=True)
                if ending := ENDING.match(line):
                    self.ending = ending[1]
        self.code = process.returncode
        running.remove(process)

    def failed(self) -> list[str]:
        """The tests that failed, by their ids."""
        remembered = self.memory / "v/cache/lastfailed"
        return sorted(json.loads(remembered.read_text())) if remembered.exists() else []

    def look_again(self, *options: str) -> None:
        """Run the few that failed once more; a failure that has no test, like a missing server, stays one."""
        failed = self.failed()
        if self.code == 1 and 0 < len(failed) <= FEW:
            first = self.ending
            self.run(*options, "--last-failed", "--last-failed-no-failures=none")
            self.ending = f"{first}; those that failed, alone: {self.ending}"
            self.unsteady = [test for test in failed if test not in self.failed()]


def main(options: list[str]) -> int:
    """Run all shares to their end; 0 when all passed."""
    quick = options[:1] == ["quick"]
    with tempfile.TemporaryDirectory(prefix="posthouse-tests-", dir=in_memory() if quick else None) as folder:
        if quick:
            shares = [
                Share(name, (*paths, "-m", "not slow", f"--basetemp={folder}/{name}"), Path(folder) / f"memory {name}")
                for name, paths in QUICK.items()
            ]
        else:
            shares = [Share(name, paths, Path(folder) / name) for name, paths in SHARES.items()]
        options = options[quick:]
        waiting = list(shares)
        runs = [threading.Thread(target=_run_next, args=(waiting, options)) for _ in range(AT_ONCE)]
        for run in runs:
            run.start()
        try:
            for run in runs:
                run.join()
            for share in shares:
                share.look_again(*options)
        except KeyboardInterrupt:
            waiting.clear()
            for process in running:
                os.killpg(process.pid, signal.SIGINT)  # each ends its servers by itself
            for run in runs:
                run.join()
            return 130
        for share in shares:
            for test in share.unsteady:
                print(f"UNSTEADY {test}: failed beside the other shares, passed alone")
            for test in share.failed():
                print(f"FAILED {test}")
            print(f"{share.name}: {share.ending} (exit code {share.code})")
        return max(abs(share.code) for share in shares)


def _run_next(waiting: list[Share], options: list[str]) -> None:
    """Run one share after the other, until none is left."""
    with contextlib.suppress(IndexError):
        while True:
            waiting.pop(0).run(*options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
