"""What is imported, and when: counted in modules, because times depend on who else is at work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import posthouse

BUILD_TIME = ("posthouse.governance", "jsonschema_rs")
TOOLS = ("posthouse.cli", "posthouse.testing", "typer", "rich", "pydantic", "importlib.metadata", "pytest")
ADAPTERS = ("posthouse.stores.postgres", *(f"posthouse.brokers.{name}" for name in ("embedded", "nats", "postgres")))
SHOP = "from posthouse import Service\norders = Service('orders')\n"


def modules_after(program: str, *arguments: str, folder: Path | None = None) -> set[str]:
    """What is imported by then, in a process of its own; whether the program exits does not matter."""
    whole = (
        f"import json, sys\ntry:\n    {program}\nexcept SystemExit:\n    pass\njson.dump([*sys.modules], sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", whole, *arguments], capture_output=True, text=True, check=True, cwd=folder
    )
    return set(json.loads(done.stderr[done.stderr.rindex("[") :]))  # after what the program itself said


def of(packages: tuple[str, ...], modules: set[str]) -> list[str]:
    return sorted(name for name in modules if f"{name}.".startswith(tuple(f"{package}." for package in packages)))


def test_importing_posthouse_imports_no_part_of_it() -> None:
    extra = modules_after("import posthouse") - modules_after("pass")
    assert of(("posthouse",), extra) == ["posthouse"]
    assert not of(("asyncio", "msgspec"), extra)


def test_all_public_names_together_import_the_run_time_alone() -> None:
    bare = modules_after("import asyncio, msgspec")
    modules = modules_after("exec('from posthouse import *')")
    assert of((*BUILD_TIME, *TOOLS, *ADAPTERS), modules) == []
    ours = of(("posthouse",), modules)
    assert len(modules - bare - {*ours}) < 40, "look at what came in, with python -X importtime"
    assert len(ours) < 240, "what runs is made of many small modules, and each costs its time"


@pytest.mark.parametrize("given", ["", "import opentelemetry.trace; "])
def test_tracing_is_imported_by_who_has_a_provider_alone(given: str, tmp_path: Path) -> None:
    run = "async def run():\n async with orders.transaction() as tx: pass\nimport asyncio; asyncio.run(run())"
    modules = modules_after(f"{given}exec({(SHOP + run)!r})", folder=tmp_path)
    assert "posthouse.sending.transaction" in modules
    assert of(("opentelemetry.sdk",), modules) == []
    assert of(("posthouse.watch.traces", "opentelemetry"), modules) == [] or given


def test_every_public_name_is_there_and_no_other() -> None:
    assert {name for name in posthouse.__all__ if not hasattr(posthouse, name)} == set()
    assert set(posthouse.__all__) <= set(dir(posthouse))
    with pytest.raises(AttributeError, match="has no attribute 'Servce'"):
        posthouse.Servce  # type: ignore[attr-defined] # noqa: B018


def test_help_imports_neither_services_nor_drivers() -> None:
    modules = modules_after("from posthouse.cli import main; sys.argv[1:] = ['--help']; main()")
    assert "posthouse.cli.verbs" in modules
    assert of(("posthouse.service", "posthouse.events", "posthouse.store", "asyncio", "pydantic"), modules) == []


@pytest.mark.parametrize("verb", [["status"], ["held", "list"], ["outbox", "list"], ["timers"], ["topics"]])
def test_a_verb_for_what_runs_imports_nothing_of_build_time(verb: list[str], tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    program = f"from posthouse.cli import main; sys.argv[1:] = {[*verb, 'shop']!r}; main()"
    modules = modules_after(program, folder=tmp_path)
    assert "posthouse.service" in modules
    assert of((*BUILD_TIME, "posthouse.stores.postgres", "posthouse.testing"), modules) == []
