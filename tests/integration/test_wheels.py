"""The two distributions, as somebody installs them: each wheel holds its own, and Melmastoon's plugs itself in."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("posthouse", "melmastoon", "_editable")


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of each, built from this tree."""
    folder = tmp_path_factory.mktemp("wheels")
    sources = [str(ROOT), str(ROOT / "melmastoon")]
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), *sources)
    return {wheel.name.partition("-")[0]: wheel for wheel in folder.glob("*.whl")}


class Environment:
    """One with everything that both depend on, and none of them."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self._folder = folder
        self._python = folder / "bin" / "python"
        self.packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
        for found in Path(sysconfig.get_path("purelib")).iterdir():
            if not found.name.startswith(OURS) and found.suffix != ".pth":
                (self.packages / found.name).symlink_to(found)

    def install(self, wheel: Path) -> None:
        pip("--python", str(self._python), "install", "--no-deps", "--no-index", str(wheel))

    def python(self, program: str) -> subprocess.CompletedProcess[str]:
        return self._run("python", "-c", program)

    def posthouse(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run("posthouse", *arguments)

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._folder / "bin" / program), *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self._folder,
        )


@pytest.fixture(scope="module")
def alone(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Posthouse without Melmastoon."""
    made = Environment(tmp_path_factory.mktemp("alone"))
    made.install(wheels["posthouse"])
    return made


@pytest.fixture(scope="module")
def both(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made = Environment(tmp_path_factory.mktemp("both"))
    made.install(wheels["posthouse"])
    made.install(wheels["melmastoon"])
    return made


@pytest.mark.parametrize("name", ["posthouse", "melmastoon"])
def test_a_wheel_holds_its_own_package_whole_and_nothing_else(name: str, wheels: dict[str, Path]) -> None:
    held = set(zipfile.ZipFile(wheels[name]).namelist())
    assert {file.partition("/")[0].partition("-")[0] for file in held} == {name}
    source = {"posthouse": ROOT, "melmastoon": ROOT / "melmastoon"}[name] / "src"
    wanted = {str(file.relative_to(source)) for file in (source / name).rglob("*") if file.is_file()}
    assert {file for file in wanted if "__pycache__" not in file} - held == set()


def test_posthouse_works_alone(alone: Environment) -> None:
    told = alone.python("from posthouse import Service; print(Service('orders').name, Service.__module__)")
    assert told.stdout.split() == ["orders", "posthouse.service"], told.stderr
    assert str(alone.packages) in alone.python("import posthouse; print(posthouse.__file__)").stdout
    assert alone.posthouse("--version").stdout.startswith("posthouse ")
    assert "demo" not in alone.posthouse("--help").stdout


def test_without_melmastoon_there_is_neither_its_verb_nor_its_envelope(alone: Environment) -> None:
    assert "No such command 'demo'" in alone.posthouse("demo").stderr
    refused = alone.python("from posthouse import Service; Service('orders', envelope='melmastoon')").stderr
    assert "'melmastoon'. Known: binary, structured." in refused


def test_melmastoon_plugs_its_verb_and_its_envelope_in(both: Environment) -> None:
    assert "22 services" in both.posthouse("--help").stdout
    told = both.python("from posthouse import Service; print(Service('orders', envelope='melmastoon').envelope)")
    assert told.stdout == "melmastoon\n", told.stderr


def test_the_demonstration_plays_from_the_wheels(both: Environment) -> None:
    played = both.posthouse("demo", "--bookings", "2", "--no-kills", "--json")
    assert played.returncode == 0, played.stderr
    assert '"duplicated": 0' in played.stdout
