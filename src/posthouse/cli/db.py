"""`posthouse db upgrade|status|sql|roles|restored`: the tables of a store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeVar

import typer
from rich.text import Text

from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.options import AsJson, By, Why, Yes
from posthouse.cli.output import confirm, counted, print_json, print_table, say
from posthouse.cli.roles import roles
from posthouse.cli.target import store_of
from posthouse.errors import ConfigurationError, StoreOutdated, did_you_mean
from posthouse.operators import OperatorsLog
from posthouse.store import Action, Migration, Restoration, Store

T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, help="Make and upgrade the tables of a store.")
app.command()(roles)

StoreTarget = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", help="module:service, module:app, or the URL of a store such as sqlite:///orders.db."
    ),
]


@app.command()
def upgrade(
    target: StoreTarget,
    post: Annotated[
        bool, typer.Option("--post", help="Finish: apply also what processes of the release before cannot live with.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Apply the migrations that are missing. Safe to run again, from many processes, and while the release before runs.

    When every process is of this release, `--post` finishes what is left.
    """
    applied, left = asyncio.run(_with_store(target, lambda store: _upgraded(store, post)))
    if as_json:
        print_json({"applied": applied, "left": left})
        return
    say(f"applied {', '.join(applied)}" if applied else "nothing to do: the store is up to date", "green")
    if left:
        say(f"left for later: {', '.join(left)}; when every process is of this release, run it again with --post")


@app.command()
def status(target: StoreTarget, as_json: AsJson = False) -> None:
    """Show every migration and its state; ends with code 1 when one that a service needs is missing."""
    steps, needed, pending, nothing = asyncio.run(_with_store(target, _states))
    states = {step.name: _state(step, needed, pending) for step in steps}
    if as_json:
        print_json({"pending": needed, "migrations": states})
    else:
        print_table(("MIGRATION", "STATE"), [(name, _coloured(state)) for name, state in states.items()])
        if nothing:
            say(nothing, "yellow")
        _say_what_to_do(target, needed, pending)
    if needed:
        raise typer.Exit(CHECK_FAILED)


@app.command()
def sql(
    target: StoreTarget,
    first: Annotated[
        str, typer.Option("--from", metavar="NUMBER", help="Begin with this migration: its number or its name.")
    ] = "",
) -> None:
    """Print the migrations as SQL, to run them with a tool of your own, such as Alembic. No server is asked."""
    steps = store_of(target).migrations()
    if first and not any(_is_named(step, first) for step in steps):
        raise ConfigurationError(
            f"there is no migration {first!r}.{did_you_mean(first, [step.name for step in steps])}"
        )
    begin = next((number for number, step in enumerate(steps) if first and _is_named(step, first)), 0)
    for step in steps[begin:]:
        typer.echo(f"-- {step.name}{' (when every process is of this release)' if step.post else ''}\n{step.sql}")


@app.command()
def restored(
    target: StoreTarget,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would do, and do nothing.")] = False,
    by: By = "",
    why: Why = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Say that the store was brought back from a backup: a dump, a snapshot of its volume, a copy of its file.

    Numbers that were given since the backup are given again: under a new lineage consumers tell them from duplicates.
    What was perhaps not sent is sent again. Stop the service's processes before, and start them afterwards.
    """
    if not dry_run and not yes:
        confirm(f"Was the store of {target} brought back from a backup, and is nobody at work on it?")
    action = Action(verb="db restored", by=by, why=why, target="the store")
    found = asyncio.run(_with_store(target, lambda store: _restored(store, dry_run, action)))
    if as_json:
        print_json({"lineage": found.lineage, "again": found.again, "dry_run": dry_run})
        return
    would = "would get" if dry_run else "get"
    say(f"new facts {would} the lineage {found.lineage}; {counted(found.again, 'fact')} will be sent (again)", "green")
    say(
        "what this service consumed since the backup is not applied any more: `posthouse seek` takes its consumers back to the "
        "time of the backup, and the inbox drops what it still knows"
    )


def _is_named(step: Migration, wanted: str) -> bool:
    return step.name == wanted or (wanted.isdigit() and int(step.name.partition("_")[0]) == int(wanted))


def _state(step: Migration, needed: Sequence[str], pending: Sequence[str]) -> str:
    if step.name in needed:
        return "pending"
    return "left for --post" if step.name in pending else "applied"


def _coloured(state: str) -> Text:
    return Text(state, {"applied": "green", "pending": "bold red"}.get(state, "yellow"))


def _say_what_to_do(target: str, needed: Sequence[str], pending: Sequence[str]) -> None:
    if needed:
        say(f"pending: {', '.join(needed)}; run `posthouse db upgrade {target}`", "yellow")
    elif pending:
        say(f"the store is ready; run `posthouse db upgrade --post {target}` when every process is of this release")
    else:
        say("the store is up to date", "green")


async def _restored(store: Store, dry_run: bool, action: Action) -> Restoration:
    await store.present()
    return await store.restored(dry_run=dry_run, action=OperatorsLog(store).signed(action))


async def _upgraded(store: Store, post: bool) -> tuple[Sequence[str], Sequence[str]]:
    return await store.upgrade(post=post), await store.pending_migrations(post=True)


async def _states(store: Store) -> tuple[Sequence[Migration], Sequence[str], Sequence[str], str]:
    """Every step, those that are needed, those that are pending at all, and, where there is nothing yet, a sentence on that."""
    steps, needed, pending = (
        store.migrations(),
        await store.pending_migrations(),
        await store.pending_migrations(post=True),
    )
    nothing = ""
    if len(pending) == len(steps):
        try:
            await store.present()
        except StoreOutdated as error:
            nothing = str(error)
    return steps, needed, pending, nothing


async def _with_store(target: str, ask: Callable[[Store], Awaitable[T]]) -> T:
    store = store_of(target)
    try:
        return await ask(store)
    finally:
        await store.aclose()
