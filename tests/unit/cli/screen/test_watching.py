"""`posthouse status --watch` in a real terminal: what is drawn, and how the terminal is given back."""

from __future__ import annotations

import io
import os
import pty
import signal
import subprocess
import sys
import termios

import pytest
from rich.text import Text

from posthouse.cli.screen.terminal import ENTER, LEAVE, Terminal
from posthouse.cli.screen.watching import LONGEST_REST, rest
from tests.kit.pty import Pty
from tests.unit.cli.conftest import Project

WATCH = ["-m", "posthouse", "status", "shop:orders", "--watch", "--every", "0.1"]


def test_it_draws_follows_the_size_and_gives_the_terminal_back_at_ctrl_c(poisoned: Project) -> None:
    with Pty(WATCH, 80, 24, folder=poisoned.folder) as terminal:
        terminal.until(lambda one: any(row.split()[1:2] == ["0.0"] for row in one.screen), "a rate of two looks")
        said = terminal.screen
        assert said[0].startswith("It adds up: all that was committed is applied, in flight or held, but ")
        assert "1 dead" in "\n".join(said)
        assert "`posthouse held list shop:orders`" in "\n".join(said)
        assert max(map(len, said)) <= 80
        assert terminal.output.count(ENTER) == 1
        assert not termios.tcgetattr(terminal.terminal)[3] & termios.ECHO, "what is typed is not shown"
        terminal.resize(120, 40)
        terminal.until(lambda one: max(map(len, one.screen)) > 80, "a wider drawing")
        assert "applied, in flight or held, but 1 event dead or set aside" in terminal.screen[0]
        terminal.press("\x03")
        assert terminal.ended() == 0
        assert terminal.output.count(LEAVE) == 1
        assert termios.tcgetattr(terminal.terminal) == terminal.before
        rest_of_it = terminal.output.partition(LEAVE)[2]
        assert "It adds up" in rest_of_it, "its last word stays"
        assert "Traceback" not in terminal.output


def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(poisoned: Project) -> None:
    with Pty(WATCH, 80, 24, folder=poisoned.folder) as terminal:
        terminal.until(lambda one: any(row.startswith("orders") for row in one.screen), "the figures")
        terminal.press("\x1a")
        terminal.until(lambda one: one.output.endswith(LEAVE), "the pause")
        os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED | os.WNOWAIT)
        assert termios.tcgetattr(terminal.terminal) == terminal.before
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until(lambda one: one.output.count(ENTER) == 2, "the screen again")
        terminal.press("\x03")
        assert terminal.ended() == 0


def test_what_cannot_be_is_said_on_the_ordinary_screen(project: Project) -> None:
    with Pty(WATCH, 80, 24, folder=project.folder) as terminal:
        assert terminal.ended() == 2
        assert "is not there" in terminal.output.partition(LEAVE)[2], "no store was made yet"
        assert termios.tcgetattr(terminal.terminal) == terminal.before


def test_no_color_has_no_colours_and_sigterm_ends_it_in_good_order(poisoned: Project) -> None:
    with Pty(WATCH, 80, 24, folder=poisoned.folder, env={"NO_COLOR": "1"}) as terminal:
        terminal.until(lambda one: any(row.startswith("orders") for row in one.screen), "the figures")
        assert "\x1b[1;31m" not in terminal.output
        assert "\x1b[32m" not in terminal.output
        terminal.process.terminate()
        assert terminal.ended() == 0
        assert LEAVE in terminal.output
        assert termios.tcgetattr(terminal.terminal) == terminal.before


@pytest.mark.parametrize("dumb", [False, True])
def test_where_there_is_no_screen_each_look_is_a_block(poisoned: Project, dumb: bool) -> None:
    """A file, a pipe, or a terminal that cannot be drawn on."""
    if dumb:
        with Pty(WATCH, 200, 24, folder=poisoned.folder, env={"TERM": "dumb"}) as terminal:
            terminal.until(lambda one: one.output.count("adds up ✓") > 1, "two blocks")
            terminal.press("\x03")
            assert terminal.ended() == 0
            assert "\x1b[?1049h" not in terminal.output
        return
    command = [sys.executable, *WATCH]
    with subprocess.Popen(command, cwd=poisoned.folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seen = ""
        while seen.count("adds up ✓") < 2:
            seen += process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest_of_it = process.stdout.read()
    assert process.returncode == 0
    assert "\x1b" not in seen + rest_of_it


def test_an_exception_gives_the_terminal_back_and_nothing_is_drawn_after_that() -> None:
    ours, theirs = pty.openpty()
    with open(theirs, "w", encoding="utf-8") as stream:
        terminal = Terminal(stream)
        with pytest.raises(ZeroDivisionError), terminal.taken():
            terminal.draw([Text("hello"), Text(str(1 // 0))])
        terminal.draw([Text("too late")])
        stream.write(".")
        stream.flush()
        said = ""
        while not said.endswith("."):
            said += os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert said.startswith(ENTER)
    assert said.endswith(f"{LEAVE}.")
    assert "too late" not in said


def test_a_stream_that_knows_only_ascii_is_told_from_one_that_knows_more() -> None:
    assert not Terminal(io.TextIOWrapper(io.BytesIO(), encoding="ascii")).fancy
    assert Terminal(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")).fancy


def test_a_look_that_takes_long_is_followed_by_a_long_rest() -> None:
    assert rest(1.0, 0.01) == 1.0
    assert rest(1.0, 0.5) == 2.0
    assert rest(1.0, 60.0) == LONGEST_REST
    assert rest(30.0, 60.0) == 30.0


@pytest.mark.parametrize("every", ["0", "-1", "nan", "inf", "0.01"])
def test_the_time_between_two_looks_is_checked(project: Project, every: str) -> None:
    result = project.run("status", "shop", "--watch", "--every", every)
    assert result.exit_code == 2
    assert "--every takes seconds from 0.1 to 3600, not " in result.stderr
