"""`posthouse db upgrade|status`: the tables of a store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import typer

from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.options import AsJson
from posthouse.cli.output import print_json, say
from posthouse.cli.target import load
from posthouse.clock import SystemClock
from posthouse.store import Store
from posthouse.stores import open_store

app = typer.Typer(no_args_is_help=True, help="Make and upgrade the tables of a store.")

StoreTarget = Annotated[
    str, typer.Argument(metavar="TARGET", help="module:service, or the URL of a store such as sqlite:///orders.db.")
]


@app.command()
def upgrade(target: StoreTarget, as_json: AsJson = False) -> None:
    """Apply the migrations that are missing. Safe to run again, and from many processes."""
    applied = asyncio.run(_with_store(target, lambda store: store.upgrade()))
    if as_json:
        print_json({"applied": applied})
    else:
        say(f"applied {', '.join(applied)}" if applied else "nothing to do: the store is up to date", "green")


@app.command()
def status(target: StoreTarget, as_json: AsJson = False) -> None:
    """Show the migrations that are missing; ends with code 1 when there are any."""
    pending = asyncio.run(_with_store(target, lambda store: store.pending_migrations()))
    if as_json:
        print_json({"pending": pending})
    elif pending:
        say(f"pending: {', '.join(pending)}; run `posthouse db upgrade {target}`", "yellow")
    else:
        say("the store is up to date", "green")
    if pending:
        raise typer.Exit(CHECK_FAILED)


async def _with_store(target: str, ask: Callable[[Store], Awaitable[Sequence[str]]]) -> Sequence[str]:
    store = open_store(target, clock=SystemClock()) if "://" in target else load(target).store
    try:
        return await ask(store)
    finally:
        await store.aclose()
