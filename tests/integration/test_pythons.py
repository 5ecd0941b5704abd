"""A new project, on every version of Python that we say we support."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.kit.pythons import VERSIONS, environment

SOURCE = Path(__file__).parents[2] / "src"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_project_passes_its_own_check_and_its_own_tests(version: str, tmp_path: Path) -> None:
    python = environment(version, tmp_path / "python", "posthouse", "pytest")
    (tmp_path / "python" / "lib" / f"python{version}" / "site-packages" / "posthouse").symlink_to(SOURCE / "posthouse")

    def run(*arguments: str, folder: Path = tmp_path) -> str:
        command = [str(python), "-W", "error", "-m", *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    run("posthouse", "new", "bakery")
    run("posthouse", "check", "app", "--strict", folder=tmp_path / "bakery")
    assert "1 passed" in run("pytest", "-q", "-W", "error", folder=tmp_path / "bakery")
