"""`posthouse new` writes a project that runs at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Project


@pytest.mark.slow
def test_a_new_project_passes_its_own_tests(project: Project, tmp_path: Path) -> None:
    assert project.run("new", "bakery").exit_code == 0
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider"],
        cwd=tmp_path / "bakery",
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout


def test_the_readme_of_a_new_project_names_its_files(project: Project, tmp_path: Path) -> None:
    files = project.json("new", "bakery", "--directory", str(tmp_path / "deep" / "down"))
    assert isinstance(files, dict)
    folder = tmp_path / "deep" / "down" / "bakery"
    assert sorted(path.name for path in folder.iterdir()) == sorted(files["files"])
    readme = (folder / "README.md").read_text()
    for name in ("app.py", "publish.py", "test_app.py", "bakery.db"):
        assert name in readme


def test_a_folder_that_holds_something_is_refused(project: Project, tmp_path: Path) -> None:
    (tmp_path / "bakery").mkdir()
    assert project.run("new", "bakery").exit_code == 0
    result = project.run("new", "bakery")
    assert result.exit_code == 2
    assert "exists and is not empty" in result.stderr


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("my-shop", "my_shop"),
        ("MyShop", "my_shop"),
        ("2shops", "shops"),
        ("class", "class_service"),
        ("shop__two", "shop_two"),
        ("Ünïcode", "n_code"),
        ("../shop", "shop"),
        ("", "orders"),
    ],
)
def test_a_name_that_cannot_be_gets_a_better_one(project: Project, name: str, better: str) -> None:
    result = project.run("new", name)
    assert result.exit_code == 2
    assert f"Did you mean '{better}'?" in result.stderr
