"""Whether a command that a page shows is one of ours."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from typer.main import get_command

from posthouse.cli import app as cli


def is_one_of_ours(command: str) -> None:
    """Fails unless it is a verb that there is, with options and arguments that it has."""
    _, *words = shlex.split(command)
    group: Any = get_command(cli)
    context = group.make_context("posthouse", words, resilient_parsing=False)
    try:
        while hasattr(group, "resolve_command") and (rest := [*context._protected_args, *context.args]):
            word, group, rest = group.resolve_command(context, rest)
            context = group.make_context(word, rest, parent=context)
            group = context.command
    except Exception as error:
        pytest.fail(f"{command}: {error}")
