"""A Pub/Sub for the tests: Google's pstest with a delivery of our own (tests/kit/servers/pstest), built with Go into .cache,
on the loopback, ended by its own process id. It keeps nothing when it ends. POSTHOUSE_TEST_PUBSUB names an emulator
(host:port) to use in its place."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.servers.once import CACHE, once
from tests.kit.servers.process import Server, folder_of, listens, started
from tests.kit.servers.table import give_up, report

SOURCE = Path(__file__).with_name("pstest")
BUILD_PATIENCE = 900.0


class PubSubServer(Server):
    """`plain` is pstest as it is."""

    def __init__(self, program: Path, folder: Path, *, plain: bool = False) -> None:
        super().__init__(folder)
        self._program = [str(program), *(["-plain"] if plain else [])]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"pubsub://shop?emulator={self.address}"

    def _command(self) -> list[str]:
        return [*self._program, "-listen", self.address]

    def _answers(self) -> bool:
        return listens(self.port)


class Given:
    """An emulator that somebody else runs."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.url = f"pubsub://shop?emulator={address}"
        self.port = int(address.rsplit(":", 1)[1])


def program() -> Path:
    """The binary, built when its sources are new; or the tests that need it are skipped."""
    with once("pstest"):
        return _built()


def _built() -> Path:
    sources = [*sorted(SOURCE.glob("*.go")), SOURCE / "go.mod", SOURCE / "go.sum"]
    mark = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    built = CACHE / f"pstest-{mark}"
    if built.exists():
        return built
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        give_up("pubsub", "no go to build pstest with: install Go 1.26 or later")
    for command in (["mod", "download"], ["build", "-o", f"{built}.new", "."]):
        done = subprocess.run([go, *command], cwd=SOURCE, capture_output=True, text=True, timeout=BUILD_PATIENCE)
        if done.returncode != 0:
            give_up("pubsub", f"go {command[0]}: {done.stderr.strip()[-500:]}", registry_silent=command[0] == "mod")
    Path(f"{built}.new").rename(built)
    return built


@contextlib.contextmanager
def running(*, plain: bool = False) -> Iterator[PubSubServer]:
    """A new server with nothing in it."""
    with folder_of("pubsub") as folder, started(PubSubServer(program(), folder, plain=plain)) as server:
        yield server


@pytest.fixture(scope="session")
def pubsub_server() -> Iterator[PubSubServer | Given]:
    """One server for the whole run."""
    given = os.environ.get("POSTHOUSE_TEST_PUBSUB")
    if given is not None:
        report("pubsub", "emulated", f"by what POSTHOUSE_TEST_PUBSUB names: {given}")
        yield Given(given)
        return
    with running() as server:
        report("pubsub", "emulated", "by Google's pstest 2.8.0 with a delivery of our own, built with Go")
        yield server


@pytest.fixture(scope="session")
def plain_pubsub_server() -> Iterator[PubSubServer]:
    """Google's pstest as it is."""
    with running(plain=True) as server:
        report("pubsub, plain", "emulated", "by Google's pstest 2.8.0 as it is")
        yield server
