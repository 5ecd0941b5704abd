"""`posthouse saga`: processes that run, how they got there, and what an operator may do with them."""

from __future__ import annotations

import typer

from posthouse.cli.saga.checking import check
from posthouse.cli.saga.deciding import cancel, resume, retry
from posthouse.cli.saga.drawing import draw
from posthouse.cli.saga.looking import list_sagas
from posthouse.cli.saga.replaying import dump, replay
from posthouse.cli.saga.showing import show
from posthouse.cli.saga.tasks import index, tasks

app = typer.Typer(no_args_is_help=True, help="Look at sagas, and help those that cannot go on by themselves.")

app.command("list")(list_sagas)
for verb in (show, tasks, check, retry, resume, cancel, index, draw, dump, replay):
    app.command()(verb)
