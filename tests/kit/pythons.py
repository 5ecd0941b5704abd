"""Environments of other versions of Python: with interpreters of this system, of pyenv, or of Debian's packages, unpacked.

POSTHOUSE_TEST_PYTHON_312 … _314 name an interpreter instead. Of what is installed here an environment shares what is written in
Python; what is compiled comes from the package index, and is kept in `.cache`, so that a machine asks once.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from tests.kit.servers.debian import unpacked
from tests.kit.servers.once import CACHE, once
from tests.kit.servers.table import give_up, report

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
SUITE = "forky"
"""Where Debian has those that are younger than the system."""
PATIENCE = 180.0
"""Seconds for the package index."""


def needed(*names: str, said: Mapping[str, Sequence[str]] | None = None) -> Iterator[metadata.Distribution]:
    """The distributions that these need at run time, each once, without themselves; with the extras that they ask of each other.
    `said`: what some of them say that they need, where that may be newer than what is installed here."""
    found, wanted = set(names), [(name, "") for name in names]
    seen = set(wanted)
    while wanted:
        name, extra = wanted.pop()
        for line in (said or {}).get(name) or metadata.requires(name) or ():
            requirement = Requirement(line)
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            asked = {(requirement.name, one) for one in ("", *requirement.extras)} - seen
            seen |= asked
            wanted += asked
            if requirement.name not in found:
                found.add(requirement.name)
                yield metadata.distribution(requirement.name)


def share(distributions: Sequence[metadata.Distribution], packages: Path) -> None:
    """Let a folder of packages have what is installed here."""
    for found in distributions:
        for top in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(found.locate_file(top))))


def environment(version: str, folder: Path, *names: str) -> Path:
    """The interpreter of a new environment with these distributions, all but ours, and what they need at run time. Where
    it cannot be had, the test is skipped and says why."""
    python = _made(version, folder)
    wanted = [*needed(*names), *(metadata.distribution(name) for name in names if name != "posthouse")]
    compiled = [found for found in wanted if "Root-Is-Purelib: false" in (found.read_text("WHEEL") or "")]
    packages = folder / "lib" / f"python{version}" / "site-packages"
    if f"{sys.version_info.major}.{sys.version_info.minor}" != version:
        for top in _compiled(version, compiled).iterdir():
            (packages / top.name).symlink_to(top)
        wanted = [found for found in wanted if found not in compiled]
    share(wanted, packages)
    return python


def _made(version: str, folder: Path) -> Path:
    python = folder / "bin" / "python"
    for found in _installed(version):
        made = subprocess.run([found, "-m", "venv", "--without-pip", folder], capture_output=True, check=False)
        if made.returncode == 0 and (said := _said(python)).startswith(f"{version}."):
            report(f"python {version}", "real", f"{said} of this system")
            return python
        shutil.rmtree(folder, ignore_errors=True)
    server, machine = f"python {version}", platform.machine()
    root = unpacked(server, f"python{version}", suite=SUITE)
    libraries = root / "usr" / "lib" / f"{machine}-linux-gnu"
    loader = next(libraries.glob("ld-linux*.so*"), None)
    if loader is None:
        give_up(server, f"Debian's has no loader for {machine}")
    (folder / "bin").mkdir(parents=True)
    (folder / "lib" / f"python{version}" / "site-packages").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {root / 'usr' / 'bin'}\ninclude-system-site-packages = false\n")
    program = root / "usr" / "bin" / f"python{version}"
    python.write_text(f'#!/bin/sh\nexec {loader} --library-path {libraries} --argv0 "$0" {program} "$@"\n')
    python.chmod(0o755)
    report(server, "real", f"{_said(python)} of Debian's packages")
    return python


def _installed(version: str) -> Iterator[str]:
    given = os.environ.get(f"POSTHOUSE_TEST_PYTHON_{version.replace('.', '')}")
    if given:
        yield given
        return
    if sys.version.startswith(f"{version}."):
        yield sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(map(str, pyenv.glob(f"versions/{version}.*/bin/python")))
    if found := shutil.which(f"python{version}"):
        yield found


def _said(python: Path) -> str:
    told = subprocess.run([python, "-c", "import sys; print(sys.version.split()[0])"], capture_output=True, check=False)
    return told.stdout.decode().strip()


def _compiled(version: str, wanted: Sequence[metadata.Distribution]) -> Path:
    """A folder with what is compiled for that version, at the releases that are installed here."""
    names = sorted(f"{found.name}=={found.version}" for found in wanted)
    place = CACHE / "pythons" / version / "-".join(names)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install", "--no-deps", "--no-compile"]
    with once(f"python-{version}"):
        if not place.exists():
            shutil.rmtree(place.parent, ignore_errors=True)
            fetched = place.parent / "fetched"
            options = ["--only-binary=:all:", "--python-version", version, "--target", str(fetched)]
            done = subprocess.run(
                [*command, *options, *names], capture_output=True, text=True, check=False, timeout=PATIENCE
            )
            if done.returncode:
                give_up(f"python {version}", f"no packages for it: {done.stderr[-300:]}", registry_silent=True)
            fetched.rename(place)
    return place
