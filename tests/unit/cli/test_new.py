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


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--fastapi"], "say so with `posthouse new bakery --postgres --fastapi`"),
        (["--postgres", "--django", "--flask"], "--django and --flask: an application has one framework"),
        (["--postgres", "--fastpi"], "--fastapi"),
        (["--postgress"], "--postgres"),
    ],
)
def test_flags_that_do_not_fit_get_a_sentence_and_nothing_is_written(
    project: Project, tmp_path: Path, flags: list[str], sentence: str
) -> None:
    result = project.run("new", "bakery", *flags)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert not (tmp_path / "bakery").exists()


@pytest.mark.parametrize(("name", "flag"), [("app", "--fastapi"), ("engine", "--flask"), ("json", "--django")])
def test_a_name_that_means_something_else_in_the_code_gets_a_better_one(project: Project, name: str, flag: str) -> None:
    result = project.run("new", name, "--postgres", flag)
    assert result.exit_code == 2
    assert f"Did you mean '{name}_service'?" in result.stderr


def test_an_application_is_not_written_over_what_is_there(project: Project, tmp_path: Path) -> None:
    (tmp_path / "bakery").mkdir()
    (tmp_path / "bakery" / "Dockerfile").write_text("mine")
    result = project.run("new", "bakery", "--postgres", "--django")
    assert result.exit_code == 2
    assert [file.read_text() for file in (tmp_path / "bakery").iterdir()] == ["mine"]


def test_a_name_that_begins_as_the_recipes_do_is_written_as_it_was_given(project: Project, tmp_path: Path) -> None:
    assert project.run("new", "shop_two", "--postgres", "--flask").exit_code == 0
    assert 'shop_two = Service("shop_two")' in (tmp_path / "shop_two" / "app.py").read_text()
    assert (tmp_path / "shop_two" / "README.md").read_text().startswith("# shop_two\n")
    assert "shop_two_two" not in (tmp_path / "shop_two" / "compose.yaml").read_text()
