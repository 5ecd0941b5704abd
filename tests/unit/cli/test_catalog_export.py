"""`posthouse catalog export` writes the catalogue for other tools."""

from __future__ import annotations

import json

import pytest

from posthouse.governance.exports import FORMATS
from tests.unit.cli.conftest import SHOP, Project


def test_one_file_goes_to_stdout(project: Project) -> None:
    result = project.run("catalog", "export", "asyncapi", "shop")
    assert result.exit_code == 0
    assert list(json.loads(result.stdout)["channels"]) == ["shop.orders.order"]
    assert project.run("catalog", "export", "markdown", "shop:orders").stdout.startswith("# Events of shop\n")


@pytest.mark.parametrize("format", FORMATS)
def test_files_are_written_once_and_not_touched_again(project: Project, format: str) -> None:
    first = project.run("catalog", "export", format, "shop", "--out", "made")
    assert first.exit_code == 0, first.output
    files = sorted(path for path in (project.folder / "made").rglob("*") if path.is_file())
    assert files
    assert f"{len(files)} changed" in first.stdout
    before = {path: path.stat().st_mtime_ns for path in files}
    again = project.json("catalog", "export", format, "shop", "--out", "made")
    assert isinstance(again, dict)
    assert (len(again["files"]), again["touched"]) == (len(files), [])
    assert {path: path.stat().st_mtime_ns for path in files} == before


def test_the_versions_of_frozen_schemas_are_shown_and_exported(project: Project) -> None:
    assert "1.0.0" not in project.run("catalog", "show", "shop").stdout
    project.run("catalog", "freeze", "shop", "--dir", "frozen")
    assert "1.0.0" in project.run("catalog", "show", "shop", "--dir", "frozen").stdout
    told = "`shop.orders.order.placed.v1` 1.0.0"
    assert told in project.run("catalog", "export", "markdown", "shop", "--dir", "frozen").stdout
    assert told not in project.run("catalog", "export", "markdown", "shop").stdout


def test_several_files_need_a_folder(project: Project) -> None:
    result = project.run("catalog", "export", "terraform", "shop")
    assert result.exit_code == 2
    assert "these are 3 files: say --out and a folder" in result.stderr
    assert project.json("catalog", "export", "terraform", "shop") == project.json(
        "catalog", "export", "terraform", "shop:orders"
    )


def test_a_catalogue_comes_from_frozen_files_or_from_what_show_printed(project: Project) -> None:
    project.run("catalog", "freeze", "shop")
    project.write("all.json", project.run("catalog", "show", "shop", "--json").stdout)
    direct = project.run("catalog", "export", "types", "shop").stdout
    assert project.run("catalog", "export", "types", "--from", "all.json").stdout == direct
    frozen = json.loads(project.run("catalog", "export", "types", "--from", "event-schemas").stdout)
    assert [entry["type"] for entry in frozen["types"]] == ["shop.orders.order.placed.v1"]
    assert "retentionclass" not in frozen["types"][0]
    refused = project.run("catalog", "export", "terraform", "--from", "event-schemas", "--out", "tf")
    assert refused.exit_code == 2
    assert "do not say which data must stay where" in refused.stderr
    assert not (project.folder / "tf").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("asyncapi",), "name services as module:service, or say --from"),
        (("asyncapi", "shop", "--from", "event-schemas"), "one of both"),
        (("asynapi", "shop"), "Did you mean 'asyncapi'?"),
        (("types", "--from", "nowhere.json"), "cannot read nowhere.json"),
        (("types", "--from", "shop.py"), "this is not a catalogue"),
        (("types", "shop", "--out", "shop.py"), "cannot write"),
    ],
)
def test_what_cannot_be_done_is_said(project: Project, arguments: tuple[str, ...], said: str) -> None:
    result = project.run("catalog", "export", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_the_broker_of_a_service_is_the_server_without_its_password(project: Project) -> None:
    project.write("shop.py", SHOP + 'from posthouse import App\n\nApp(orders, broker="nats://me:secret@n1:4222")\n')
    made = project.run("catalog", "export", "asyncapi", "shop").stdout
    assert json.loads(made)["servers"] == {"nats": {"host": "n1:4222", "protocol": "nats"}}
    assert "secret" not in made
