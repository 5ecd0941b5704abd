"""Tables for people, whole lines for pipes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from posthouse.cli.output import counted, plain, print_facts, print_table, span

ROWS = [("orders", 1, "short"), ("billing", 12_000, "a long story about what went wrong and when")]


def test_a_pipe_gets_every_character(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table(("NAME", "COUNT", "STORY"), ROWS)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["billing", "12,000", *ROWS[1][2].split()]
    assert lines[1].index("1") == lines[2].index("12,000") + 5, "numbers stand at the right"


@pytest.mark.parametrize("columns", [20, 30, 40, 60])
def test_no_line_is_wider_than_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table(("NAME", "COUNT", "STORY"), ROWS)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= columns


def test_control_characters_are_made_visible() -> None:
    assert plain("a\x1b[2Jb\nc\x07") == "a\\x1b[2Jb\nc\\x07"


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 s"), (59, "59 s"), (120, "2 min"), (7200, "2 h"), (172_800, "2 d")]
)
def test_a_duration_has_one_unit(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_one_is_singular() -> None:
    assert (counted(1, "event"), counted(1200, "event")) == ("1 event", "1,200 events")


@pytest.mark.parametrize("printing", ["say('a')", "print_table(('A',), [('a',)])", "print_json({'a': 1})"])
def test_a_reader_that_has_enough_is_no_failed_check(printing: str) -> None:
    """As in `posthouse status … | head`: the code is that of `yes | head`."""
    program = (
        "import typer\nfrom posthouse.cli.group import Group\nfrom posthouse.cli.output import print_json, print_table, say\n"
        "app = typer.Typer(cls=Group)\napp.callback()(lambda: None)\n"
        f"app.command('print')(lambda: {printing})\napp(['print'])"
    )
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (128 + 13, "")


def test_a_program_gets_facts_without_a_padded_edge(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_facts([("key", "o1"), ("data", "x" * 2_000), ("none", "")])
    assert capsys.readouterr().out == f"key   o1\ndata  {'x' * 2_000}\n"


def test_things_are_counted_as_people_say_them() -> None:
    assert [counted(1, "process"), counted(3, "process"), counted(1_200, "event")] == [
        "1 process",
        "3 processes",
        "1,200 events",
    ]
