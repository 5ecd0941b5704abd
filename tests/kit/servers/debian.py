"""Programs of Debian's packages, unpacked without installing them: no root is needed, and nothing of the system changes.

What is fetched is kept in `.cache/debian`, so that a machine asks its registry once.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.kit.servers.once import CACHE, once
from tests.kit.servers.table import give_up

FETCHING = 300.0
"""Seconds for the registry."""
WHOLE = "whole"
"""A file that says that all packages of a folder are there."""
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def unpacked(server: str, *packages: str, suite: str = "", alone: bool = False) -> Path:
    """A root folder with these packages and what they need that is not on the system; it goes when the run ends. From
    another suite than the system's they come with everything that they need, the C library too; `alone`: without. Where they cannot be had,
    the tests that need them are skipped."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        give_up(server, f"not on this machine, which is no Debian that could bring it: install {packages[0]}")
    try:
        with once("apt"):
            fetched = _fetched(packages, suite)
        place = Path(tempfile.mkdtemp(prefix=f"posthouse-{packages[0]}-"))
        atexit.register(shutil.rmtree, place, ignore_errors=True)
        place.chmod(0o755)  # some servers run as another user
        for package in fetched:
            if alone and package.name.partition("_")[0] not in packages:
                continue
            _run(place, "dpkg-deb", "--extract", str(package), str(place))
    except subprocess.CalledProcessError as error:
        give_up(server, f"apt-get did not bring {packages[0]}: {error.stderr[-500:]}", registry_silent=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        give_up(server, f"apt-get did not bring {packages[0]}: {error}", registry_silent=True)
    return place


def kept(server: str, package: str) -> Path:
    """A root folder with this package alone, for programs that need nothing else; unpacked once for all runs from this folder."""
    place = CACHE / "debian" / package / "root"
    if not (place / WHOLE).exists():
        root = unpacked(server, package, alone=True)
        with once(package):
            if not (place / WHOLE).exists():
                shutil.copytree(root, place, symlinks=True, dirs_exist_ok=True)
                (place / WHOLE).touch()
    return place


def libraries(root: Path) -> str:
    """Where programs of an unpacked root find their libraries, as `LD_LIBRARY_PATH` has it."""
    folders = [folder for usr in (root, root / "usr") for folder in (usr / "lib").glob("*-linux-gnu")]
    private = [folder / "pulseaudio" for folder in folders]  # named by an absolute path, which is not there
    return ":".join(str(folder) for folder in (*folders, *private))


def environment(root: Path) -> dict[str, str]:
    """This process's environment, with the libraries of an unpacked root; `/` has its own."""
    return dict(os.environ) if root == Path("/") else {**os.environ, "LD_LIBRARY_PATH": libraries(root)}


def _fetched(packages: Sequence[str], suite: str) -> list[Path]:
    place = CACHE / "debian" / packages[0]
    if not (place / WHOLE).exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        if suite:
            _download_anew(place, packages, suite, *_elsewhere(suite))
        else:
            try:
                _download(place, packages)
            except subprocess.CalledProcessError:  # no list of packages yet, or an old one: a list of our own
                _download_anew(place, packages, "lists")
        (place / WHOLE).touch()
    return sorted(place.glob("*.deb"))


def _download_anew(place: Path, packages: Sequence[str], name: str, *options: str) -> None:
    """By a list of packages of our own."""
    lists = CACHE / "debian" / name
    (lists / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (lists / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    own = (*options, "-o", f"Dir::State::Lists={lists / 'lists'}", "-o", f"Dir::Cache={lists / 'cache'}")
    _run(place, "apt-get", "update", "-qq", *own)
    _download(place, packages, *own)


def _elsewhere(suite: str) -> tuple[str, ...]:
    """Ask this system's registry for another suite, as if nothing were installed."""
    apt = Path("/etc/apt")
    sources = [file.read_text() for file in (apt / "sources.list", *apt.glob("sources.list.d/*")) if file.is_file()]
    found = re.search(r"https?://\S+/debian/?(?=\s)", "\n".join(sources))
    if found is None:
        raise OSError("no registry of Debian's packages among this system's sources")
    place = CACHE / "debian" / suite
    place.mkdir(parents=True, exist_ok=True)
    signed = f"[signed-by={KEYS}] " if Path(KEYS).exists() else ""
    (place / "sources.list").write_text(f"deb {signed}{found[0]} {suite} main\n")
    (place / "status").touch()
    settings = {"Dir::Etc::SourceList": place / "sources.list", "Dir::Etc::SourceParts": "/dev/null"}
    return tuple(
        word
        for name, value in {**settings, "Dir::State::Status": place / "status"}.items()
        for word in ("-o", f"{name}={value}")
    )


def _download(place: Path, packages: Sequence[str], *options: str) -> None:
    """The packages, and those that they need and the system lacks: `install` says which, and changes nothing."""
    wanted = _run(
        place,
        "apt-get",
        "install",
        "--print-uris",
        "--reinstall",
        "--no-install-recommends",
        "-y",
        "-qq",
        *options,
        *packages,
    )
    names = [line.split()[1].partition("_")[0] for line in wanted.splitlines() if line.startswith("'")]
    _run(place, "apt-get", "download", "-qq", *options, *(names or packages))


def _run(place: Path, command: str, *arguments: str) -> str:
    unlocked = ("-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root") if command == "apt-get" else ()
    return subprocess.run(
        [command, *arguments, *unlocked], cwd=place, timeout=FETCHING, capture_output=True, text=True, check=True
    ).stdout
