"""Group: commands whose errors are sentences and exit codes, never tracebacks."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from posthouse.cli.output import aim, complain, end_of_reader
from posthouse.errors import (
    ArchiveUnavailable,
    AuditUnavailable,
    BrokerUnavailable,
    PosthouseError,
    StoreFull,
    StoreUnavailable,
)

CHECK_FAILED = 1
BAD_INPUT = 2

_AWAY = (ArchiveUnavailable, AuditUnavailable, StoreUnavailable, StoreFull, BrokerUnavailable)


class Group(TyperGroup):
    """Exit code 2: what was asked or configured cannot work. 1: a check failed, or a server is away."""

    def invoke(self, ctx: Any) -> object:
        aim()
        try:
            return super().invoke(ctx)
        except PosthouseError as error:
            complain(f"posthouse: {error}" if "\n" not in str(error) else f"posthouse:\n{error}")
            raise typer.Exit(CHECK_FAILED if isinstance(error, _AWAY) else BAD_INPUT) from error
        except BrokenPipeError:
            end_of_reader()
