"""The tools that exports are for read them: AsyncAPI's parser and schema, EventCatalog's SDK, MDX and Mermaid."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from msgspec.structs import replace

from posthouse.governance.bundle import read_bundle
from posthouse.governance.exports import Source, export, thawed
from posthouse.governance.exports.flows import expected
from posthouse.governance.exports.mermaid import choreography
from posthouse.governance.exports.states import states
from posthouse.governance.freezing import freeze
from posthouse.governance.listing import catalogue_of
from tests.unit.governance.exports import hotel
from tests.unit.governance.exports.catalogues import HOSTILE, POISONED, SHOP
from tests.unit.processes.saga import hotel as stay

PACKAGES = {
    "@asyncapi/parser": "3.6.3",
    "@asyncapi/avro-schema-parser": "3.0.24",
    "@eventcatalog/sdk": "2.27.1",
    "@mdx-js/mdx": "3.1.1",
    "jsdom": "26.1.0",
    "mermaid": "11.17.2",
    "remark-gfm": "4.0.1",
}
ROOT = Path(__file__).parents[2]
HOME = ROOT / ".cache" / "js-exports"
SCRIPT = Path(__file__).parent / "js" / "exports.mjs"
OFFICIAL = HOME / "node_modules" / "@asyncapi" / "specs" / "schemas" / "3.0.0-without-$id.json"
BOTH = pytest.mark.parametrize("source", [SHOP, POISONED], ids=["shop", "hostile"])

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def node() -> str:
    """Node.js with the packages beside it, installed once into `.cache/js-exports`."""
    program, npm = shutil.which("node"), shutil.which("npm")
    if program is None or npm is None:
        reason = "node and npm are not installed: exports were NOT checked by AsyncAPI, EventCatalog, MDX and Mermaid"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    if not all(_installed(name) == version for name, version in PACKAGES.items()):
        _install(npm)
    return program


def _installed(name: str) -> str:
    manifest = HOME / "node_modules" / name / "package.json"
    return str(json.loads(manifest.read_text())["version"]) if manifest.exists() else ""


def _install(npm: str) -> None:
    HOME.mkdir(parents=True, exist_ok=True)
    (HOME / "package.json").write_text('{"private": true}')
    wanted = [f"{name}@{version}" for name, version in PACKAGES.items()]
    command = [npm, "install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", *wanted]
    try:
        subprocess.run(command, cwd=HOME, check=True, capture_output=True, text=True, timeout=300)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"THE NPM REGISTRY DID NOT GIVE {', '.join(wanted)}, the exports were NOT checked: {error}")


def ask(node: str, **task: object) -> Any:
    done = subprocess.run(
        [node, str(SCRIPT), str(HOME / "package.json")],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@BOTH
def test_the_official_parser_accepts_the_asyncapi_document(node: str, source: Source) -> None:
    text = export(source, "asyncapi")["asyncapi.json"]
    answer = ask(node, asyncapi=text)
    complaints = [one for one in answer["diagnostics"] if one["code"] != "asyncapi-latest-version"]
    assert (answer["accepted"], complaints) == (True, [])
    made = json.loads(text)
    assert answer["channels"] == sorted(made["channels"])
    assert answer["operations"] == sorted(made["operations"])
    assert answer["messages"] == sorted(entry.subject for entry in source.document.events)


def test_the_official_parser_refuses_what_is_wrong(node: str) -> None:
    made = json.loads(export(SHOP, "asyncapi")["asyncapi.json"])
    made["operations"]["orders.send.shop.orders.order"]["action"] = "shout"
    answer = ask(node, asyncapi=json.dumps(made))
    assert not answer["accepted"]


@BOTH
def test_the_document_fits_the_official_schema_of_asyncapi_3(node: str, source: Source) -> None:
    schema = jsonschema_rs.Draft7Validator(json.loads(OFFICIAL.read_text()))
    made = json.loads(export(source, "asyncapi")["asyncapi.json"])
    schema.validate(made)
    del made["channels"][next(iter(made["channels"]))]["address"]
    made["operations"][next(iter(made["operations"]))].pop("action")
    assert not schema.is_valid(made)


@BOTH
def test_eventcatalogs_own_sdk_finds_every_page(node: str, source: Source, tmp_path: Path) -> None:
    for path, text in export(source, "eventcatalog").items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    answer = ask(node, eventcatalog=str(tmp_path))
    document = source.document
    assert sorted(one["name"] for one in answer["services"]) == sorted(document.services)
    assert sorted(one["name"] for one in answer["channels"]) == sorted(topic.name for topic in document.topics)
    assert sorted((one["name"], one["version"]) for one in answer["events"]) == sorted(
        (entry.unversioned, f"{entry.version}.0.0") for entry in document.events
    )
    assert {one["name"] for one in answer["teams"]} == {entry.owner for entry in document.events} - {""}
    sends = [link for one in answer["services"] for link in one.get("sends", [])]
    assert len(sends) == len(document.events)


def test_eventcatalogs_own_sdk_finds_flows_and_sagas_and_their_pages_are_mdx(node: str, tmp_path: Path) -> None:
    document = catalogue_of([stay.reservation, stay.inventory, stay.payment])
    flow = replace(catalogue_of([hotel.bookings, hotel.rooms, hotel.money]).flows[0], service="reservation")
    saga = document.sagas[0]
    hostile = replace(
        saga, name=HOSTILE, description=HOSTILE, methods=(replace(saga.methods[0], publishes=(HOSTILE,)),)
    )
    pages = export(Source(document=replace(document, flows=(flow,), sagas=(saga, hostile))), "eventcatalog")
    for path, text in pages.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    found = {one["name"]: one for one in ask(node, eventcatalog=str(tmp_path))["flows"]}
    assert found.keys() == {f"{name} of reservation" for name in (flow.name, saga.name, HOSTILE)}
    for one in found.values():
        ids = {step["id"] for step in one["steps"]}
        assert {after["id"] for step in one["steps"] for after in step.get("next_steps", [])} <= ids
    bodies = {path: text.split("---\n", 2)[2] for path, text in pages.items() if "/flows/" in path}
    for path, made in ask(node, mdx=bodies).items():
        assert isinstance(made, str), f"{path}: {made}"
        assert "danger" not in re.sub(r'"(?:\\.|[^"\\])*"', '""', made), path


@BOTH
def test_every_page_of_the_folder_is_mdx_that_runs_nothing_of_the_text(node: str, source: Source) -> None:
    pages = export(source, "eventcatalog")
    bodies = {path: text.split("---\n", 2)[2] for path, text in pages.items() if path.endswith(".mdx")}
    answer = ask(node, mdx=bodies)
    assert list(answer) == list(bodies)
    for path, made in answer.items():
        assert isinstance(made, str), f"{path}: {made}"
        assert not re.search(r"^import .* from 'y'", made, re.MULTILINE), path
        code = re.sub(r'"(?:\\.|[^"\\])*"', '""', made)
        assert "danger" not in code, path
        assert "script" not in code.replace("descript", ""), path


def test_mdx_refuses_what_is_not_escaped(node: str) -> None:
    assert "error" in ask(node, mdx={"x": HOSTILE})["x"]


@BOTH
def test_mermaid_reads_every_diagram(node: str, source: Source) -> None:
    page = export(source, "markdown")["catalogue.md"]
    diagrams = re.findall(r"```mermaid\n(.*?)```", page, re.DOTALL)
    answer = ask(node, mermaid=[*diagrams, f"flowchart LR\n  a[{HOSTILE}]"])
    assert len(diagrams) == 2
    assert answer[:2] == ["flowchart-v2", "flowchart-v2"]
    assert answer[2].startswith("refused: ")


def test_mermaid_reads_declared_flows_and_sagas_whatever_they_are_called(node: str) -> None:
    flows = catalogue_of([hotel.bookings, hotel.rooms, hotel.money])
    (saga,) = catalogue_of([stay.reservation]).sagas
    bad = replace(flows.flows[0], starts=HOSTILE, then=(f"{HOSTILE}1",), may=(f"{HOSTILE}2",))
    methods = tuple(replace(m, name=HOSTILE, takes=(HOSTILE,), publishes=(HOSTILE,)) for m in saga.methods)
    drawn = [
        choreography(expected(flows, flows.flows[0])),
        choreography(expected(flows, bad)),
        states(saga),
        states(replace(saga, methods=methods)),
        states(replace(saga, methods=saga.of_kind("starts"))),
    ]
    answer = ask(node, mermaid=[text.removeprefix("```mermaid\n").removesuffix("```\n") for text in drawn])
    assert answer == ["flowchart-v2", "flowchart-v2", "stateDiagram", "stateDiagram", "stateDiagram"]


def test_the_official_parser_accepts_what_comes_from_frozen_files(node: str) -> None:
    frozen = thawed(read_bundle(freeze(SHOP.document, read_bundle({})).files))
    assert ask(node, asyncapi=export(frozen, "asyncapi")["asyncapi.json"])["accepted"]
