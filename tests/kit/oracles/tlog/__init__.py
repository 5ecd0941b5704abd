"""The logs of Go's checksum database (golang.org/x/mod/sumdb), as a program built with Go into .cache."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kit.servers.once import CACHE, once
from tests.kit.servers.table import give_up, report

SOURCE = Path(__file__).parent
BUILD_PATIENCE = 900.0
PATIENCE = 100.0


class TlogOracle:
    """Answers what main.go says that it answers; what it refuses begins with REFUSED."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def ask(self, *words: str, given: str = "") -> str:
        done = subprocess.run(
            [self._program, *words], input=given, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert not done.stderr, done.stderr
        return done.stdout

    def roots(self, entries: Sequence[bytes]) -> list[bytes]:
        """The root of each size."""
        return [bytes.fromhex(line) for line in self.ask("roots", given=_lines(entries)).split()]

    def proofs(self, entries: Sequence[bytes]) -> dict[tuple[str, int], list[bytes]]:
        """The proofs of this size: by `record` and index, by `tree` and size."""
        found = {}
        for line in self.ask("proofs", str(len(entries)), given=_lines(entries)).splitlines():
            kind, number, *hashes = line.split()
            found[kind, int(number)] = [bytes.fromhex(one) for one in hashes]
        return found


def _lines(entries: Sequence[bytes]) -> str:
    return "".join(f"{entry.hex()}\n" for entry in entries)


@pytest.fixture(scope="session")
def tlog_oracle() -> TlogOracle:
    with once("tlog"):
        oracle = TlogOracle(_built())
    report("sumdb", "real", "golang.org/x/mod 0.42.0, built with Go")
    return oracle


def _built() -> Path:
    mark = hashlib.sha256(b"".join((SOURCE / name).read_bytes() for name in ("main.go", "go.mod", "go.sum")))
    built = CACHE / f"tlog-{mark.hexdigest()[:16]}"
    if built.exists():
        return built
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        give_up("sumdb", "no go to build it with: install Go 1.26 or later")
    for command in (["mod", "download"], ["build", "-o", f"{built}.new", "."]):
        done = subprocess.run(
            [go, *command], cwd=SOURCE, capture_output=True, text=True, timeout=BUILD_PATIENCE, check=False
        )
        if done.returncode != 0:
            give_up("sumdb", f"go {command[0]}: {done.stderr.strip()[-500:]}", registry_silent=command[0] == "mod")
    Path(f"{built}.new").rename(built)
    return built
