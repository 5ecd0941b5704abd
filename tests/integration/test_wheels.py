"""The two distributions, as somebody builds and installs them: each wheel holds its own, and Melmastoon's plugs itself in."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Mapping
from email import message_from_bytes
from email.message import Message
from filecmp import dircmp
from pathlib import Path

import pytest

from tests.kit.pythons import needed, share
from tests.kit.waiting import until

ROOT = Path(__file__).parents[2]
SOURCES = {"posthouse": ROOT, "melmastoon": ROOT / "melmastoon"}
RELATIVE = re.compile(r"\]\((?!https?://|#)")


def call(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of each, built from the source distribution that was built from this tree."""
    folder = tmp_path_factory.mktemp("dist")
    for source in SOURCES.values():
        call("build", "--no-isolation", "--outdir", str(folder), str(source))
    assert len(list(folder.glob("*.tar.gz"))) == len(SOURCES)
    return {wheel.name.partition("-")[0]: wheel for wheel in folder.glob("*.whl")}


class Environment:
    """One with what both depend on at run time, and nothing else."""

    def __init__(self, folder: Path, wheels: Mapping[str, Path]) -> None:
        venv.create(folder / "venv", symlinks=True)
        self._bin = folder / "venv" / "bin"
        self.packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "venv")}))
        self.work, self.temporary = folder / "work", folder / "temporary"
        self.work.mkdir()
        self.temporary.mkdir()
        said = {name: said_of(wheel).get_all("Requires-Dist", []) for name, wheel in wheels.items()}
        share([*needed(*SOURCES, said=said)], self.packages)

    def install(self, wheel: Path) -> None:
        call("pip", "-q", "--python", str(self._bin / "python"), "install", "--no-deps", "--no-index", str(wheel))

    def python(self, program: str) -> subprocess.CompletedProcess[str]:
        return self._run("python", "-c", program)

    def posthouse(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run("posthouse", *arguments)

    def started(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(self._bin / "posthouse"), *arguments]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=self.work, env=self._environment)

    def left_behind(self) -> list[Path]:
        """What is there that was not there before, beside the installed programs."""
        return [*self.work.iterdir(), *self.temporary.iterdir()]

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "TMPDIR": str(self.temporary)}

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self._bin / program), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=self.work, env=self._environment
        )


@pytest.fixture(scope="module")
def alone(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Posthouse without Melmastoon."""
    made = Environment(tmp_path_factory.mktemp("alone"), wheels)
    made.install(wheels["posthouse"])
    return made


@pytest.fixture(scope="module")
def both(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made = Environment(tmp_path_factory.mktemp("both"), wheels)
    made.install(wheels["posthouse"])
    made.install(wheels["melmastoon"])
    return made


def said_of(wheel: Path) -> Message:
    """Its metadata."""
    with zipfile.ZipFile(wheel) as held:
        [name] = [name for name in held.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(held.read(name))


@pytest.mark.parametrize("name", SOURCES)
def test_a_wheel_holds_its_own_package_whole_and_nothing_else(name: str, wheels: dict[str, Path]) -> None:
    held = set(zipfile.ZipFile(wheels[name]).namelist())
    assert {file.partition("/")[0].partition("-")[0] for file in held} == {name}
    source = SOURCES[name] / "src"
    folders = os.walk(source / name, followlinks=True)  # the recipes are templates too
    present = {str((Path(folder) / file).relative_to(source)) for folder, _, files in folders for file in files}
    wanted = {file for file in present if "__pycache__" not in file}
    assert {file for file in held if ".dist-info/" not in file} == wanted
    assert f"{name}/py.typed" in held
    assert any(file.endswith(".dist-info/licenses/LICENSE") for file in held)


@pytest.mark.parametrize("name", SOURCES)
def test_the_tree_and_its_source_distribution_build_the_same_wheel(
    name: str, wheels: dict[str, Path], tmp_path: Path
) -> None:
    call("build", "--no-isolation", "--wheel", "--outdir", str(tmp_path), str(SOURCES[name]))
    [wheel] = tmp_path.glob("*.whl")
    assert wheel.read_bytes() == wheels[name].read_bytes()


@pytest.mark.parametrize("name", SOURCES)
def test_an_index_is_told_for_which_pythons_it_is_and_gets_no_link_that_leads_nowhere(
    name: str, wheels: dict[str, Path]
) -> None:
    said = said_of(wheels[name])
    versions = [f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13, 14)]
    assert [line for line in said.get_all("Classifier", []) if re.search(r":: 3\.\d", line)] == versions
    assert said["Description-Content-Type"] == "text/markdown"
    description = str(said.get_payload())
    assert len(description.splitlines()) > 3
    assert not RELATIVE.search(description)


def test_links_of_the_readme_become_absolute_where_the_source_is_known() -> None:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    said: dict[str, object] = {"version": "1.2.3", "urls": {"Source": "https://source.test/posthouse"}}
    hook.IndexReadme(str(ROOT), {}).update(said)
    text = said["readme"]["text"]  # type: ignore[index]
    places = re.findall(r"\]\(https://source\.test/posthouse/blob/v1\.2\.3/([^)#]+)", text)
    assert len(places) > 20
    assert [place for place in places if not (ROOT / place).exists()] == []
    assert not RELATIVE.search(text)


def test_posthouse_works_alone(alone: Environment) -> None:
    told = alone.python("from posthouse import Service; print(Service('orders').name, Service.__module__)")
    assert told.stdout.split() == ["orders", "posthouse.service"], told.stderr
    assert str(alone.packages) in alone.python("import posthouse; print(posthouse.__file__)").stdout
    assert alone.posthouse("--version").stdout.startswith("posthouse ")
    assert "demo" not in alone.posthouse("--help").stdout


def test_the_quickstart_needs_no_clone_and_leaves_nothing_behind(alone: Environment) -> None:
    played = alone.posthouse("quickstart", "--orders", "12", "--json")
    assert played.returncode == 0, played.stderr
    figures = json.loads(played.stdout)
    assert (figures["committed"], figures["applied"], figures["workers_killed"]) == (36, 36, 1)
    assert alone.left_behind() == []


def test_a_quickstart_that_is_told_to_end_leaves_nothing_behind_either(alone: Environment) -> None:
    with alone.started("quickstart") as process:
        until(lambda: list(alone.temporary.glob("*/workers.log")), "its workers did not start")
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 130
    assert alone.left_behind() == []


def test_a_new_application_comes_out_of_the_wheel_as_out_of_the_tree(alone: Environment, tmp_path: Path) -> None:
    for folder, posthouse in ((alone.temporary, alone.posthouse), (tmp_path, None)):
        arguments = ("new", "bakery", "--postgres", "--django", "--directory", str(folder))
        call("posthouse", *arguments) if posthouse is None else posthouse(*arguments)
    differing = dircmp(alone.temporary / "bakery", tmp_path / "bakery")
    assert (differing.left_only, differing.right_only, differing.diff_files) == ([], [], [])
    assert {"manage.py", "Dockerfile", "bakery"} <= set(differing.common)
    shutil.rmtree(alone.temporary / "bakery")


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


def test_two_builds_of_one_tree_are_the_same_bytes(tmp_path: Path) -> None:
    """Wherever the tree lies, and whenever its files were written: so anybody can build what we published, and compare."""
    built: list[dict[str, str]] = []
    for number, epoch in enumerate((0, 10_000_000)):
        tree = tmp_path / f"tree{number}"
        shutil.copytree(
            ROOT, tree, ignore=shutil.ignore_patterns(".*", "node_modules", "__pycache__", "dist"), symlinks=True
        )
        for file in tree.rglob("*"):
            if not file.is_symlink():
                os.utime(file, (1_700_000_000 + epoch, 1_700_000_000 + epoch))
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
        for each in (tree, tree / "melmastoon"):
            command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tree / "dist"), str(each)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
        built.append({file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in (tree / "dist").iterdir()})
    assert len(built[0]) == 4
    assert built[0] == built[1]
