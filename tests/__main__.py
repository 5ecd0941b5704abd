"""`python -m tests`: every test, in two processes side by side, because most of them wait for servers most of the time.

What is said after it goes to pytest, twice: `python -m tests -x`. Paths are for `pytest` itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONFORMANCE = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("tests/conformance/test_*.py"))]
SHARES = {
    "faults": ("tests/faults", *CONFORMANCE[::2]),
    "the rest": ("tests/integration", "tests/unit", "tests/docs", *CONFORMANCE[1::2]),
}
"""About equally long; each brings servers of its own."""


def main(options: list[str]) -> int:
    """Run both shares to their end; 0 when both passed."""
    running = {name: _start(paths, options) for name, paths in SHARES.items()}
    endings: dict[str, str] = {}
    tellers = [threading.Thread(target=_tell, args=(name, share, endings)) for name, share in running.items()]
    for teller in tellers:
        teller.start()
    try:
        for teller in tellers:
            teller.join()
    except KeyboardInterrupt:
        for share in running.values():
            os.killpg(share.pid, signal.SIGINT)  # each ends its servers by itself
        for teller in tellers:
            teller.join()
    codes = {name: share.wait() for name, share in running.items()}
    for name, code in codes.items():
        print(f"{name}: {endings.get(name, 'no word from pytest')} (exit code {code})")
    return max((abs(code) for code in codes.values()), default=0)


def _start(paths: tuple[str, ...], options: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *paths, *options]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def _tell(name: str, share: subprocess.Popen[str], endings: dict[str, str]) -> None:
    """Pass on what a share says, line by line under its name; the last line is how it ended."""
    assert share.stdout is not None
    for line in share.stdout:
        print(f"{name:8} | {line}", end="", flush=True)
        endings[name] = line.strip().strip("= ")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
