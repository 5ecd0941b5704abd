"""How verbs are found: ours are imported when they are called, other distributions plug theirs in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from posthouse.cli import app
from posthouse.cli.verbs import VERBS

RUN = CliRunner()


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_listed_of_a_verb_is_how_its_own_help_begins(verb: str) -> None:
    group: Any = get_command(app)
    with group.make_context("posthouse", [], resilient_parsing=True) as ctx:
        real = group.get_command(ctx, verb).make_context(verb, [], parent=ctx, resilient_parsing=True).command
    assert " ".join(real.help.split()).startswith(VERBS[verb])


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_each_verb_is_the_whole_one(verb: str) -> None:
    said = RUN.invoke(app, [verb, "--help"]).stdout
    assert f"Usage: posthouse {verb}" in said
    assert "--help" in said


@pytest.mark.parametrize("arguments", ["--help", "--version", "statsu"])
def test_no_verb_is_imported_to_list_them(arguments: str) -> None:
    loaded = modules_after(f"from posthouse.cli import app; app({arguments.split()}, standalone_mode=False)")
    assert not [name for name in loaded if name.startswith("posthouse.cli.") and name.split(".")[2] in VERBS]


def modules_after(program: str) -> list[str]:
    """What is imported by then, in a process of its own; how the program ends does not matter."""
    listed = (
        f"import json, sys\ntry:\n  {program}\nexcept BaseException: pass\njson.dump(list(sys.modules), sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True)
    names: list[str] = json.loads(done.stderr[done.stderr.index("[") :])
    assert "posthouse.cli.verbs" in names
    return names


@pytest.fixture
def plugged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution with three verbs: a good one, one that cannot be imported, one that is no verb."""
    info = tmp_path / "inn-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: inn\nVersion: 1.0\nSummary: An inn on the road.\n")
    verbs = "greet = inn_verbs:greet\nstatus = inn_verbs:greet\nbroken = inn_gone:verb\nodd = inn_verbs:ODD\n"
    (info / "entry_points.txt").write_text(f"[posthouse.verbs]\n{verbs}")
    (tmp_path / "inn_verbs.py").write_text(
        'ODD = 7\n\ndef greet(name: str = "guest") -> None:\n    """Say welcome."""\n    print(f"welcome, {name}")\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "inn_verbs", raising=False)
    return tmp_path


@pytest.mark.usefixtures("plugged")
def test_a_verb_that_is_plugged_in_is_listed_and_called() -> None:
    assert "An inn on the road." in RUN.invoke(app, ["--help"]).stdout
    assert RUN.invoke(app, ["greet", "--name", "Ada"]).stdout == "welcome, Ada\n"
    assert "Say welcome." in RUN.invoke(app, ["greet", "--help"]).stdout
    assert "Did you mean 'greet'?" in RUN.invoke(app, ["greeet"]).stderr


@pytest.mark.usefixtures("plugged")
def test_a_plug_in_that_cannot_be_imported_says_so_and_breaks_nothing_else() -> None:
    assert RUN.invoke(app, ["--help"]).exit_code == 0
    refused = RUN.invoke(app, ["broken"])
    assert refused.exit_code == 2
    assert "'broken' of the distribution 'inn' cannot be loaded from inn_gone:verb" in refused.stderr
    assert "No module named 'inn_gone'" in refused.stderr
    refused = RUN.invoke(app, ["odd"])
    assert refused.exit_code == 2
    assert "neither a function nor a typer.Typer" in refused.stderr


@pytest.mark.usefixtures("plugged")
def test_no_plug_in_takes_the_place_of_one_of_our_verbs() -> None:
    assert "was committed is applied" in RUN.invoke(app, ["status", "--help"]).stdout


def test_plain_words_are_not_coerced_by_pydantic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing it would be a quarter of what a command costs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text('from posthouse import Service\nshop = Service("shop")\n')
    arguments = ["status", "shop", "--json", "--every", "2"]
    loaded = modules_after(f"from posthouse.cli import app; app({arguments[:3]}, standalone_mode=False)")
    assert "posthouse.stores.sqlite" in loaded, "the command ran"
    assert "pydantic" not in loaded
    assert "pydantic" in modules_after(f"from posthouse.cli import app; app({arguments}, standalone_mode=False)")


@pytest.mark.parametrize("every", ["soon", ""])
def test_a_word_that_does_not_fit_is_refused_all_the_same(every: str) -> None:
    refused = RUN.invoke(app, ["status", "shop", "--every", every])
    assert refused.exit_code == 2
    assert "--every" in refused.stderr
