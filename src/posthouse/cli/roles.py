"""`posthouse db roles`: what the application and the runtime may do in a database that keeps tenants apart."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from posthouse.cli.output import say
from posthouse.cli.target import store_of
from posthouse.errors import ConfigurationError


def roles(
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="The URL of a PostgreSQL store, as the owner of its tables connects."),
    ],
    application: Annotated[
        str, typer.Option("--application", metavar="ROLE", help="Works for one tenant at a time: services, handlers.")
    ],
    runtime: Annotated[
        str,
        typer.Option("--runtime", metavar="ROLE", help="Carries the events of all tenants: relay, timers, retries."),
    ],
    apply: Annotated[bool, typer.Option("--apply", help="Run the statements instead of printing them.")] = False,
) -> None:
    """Give two roles what they need and no more, and hold everybody to row-level security. Safe to run again.

    The roles must exist. Run it again after an upgrade. A store with `isolation=true` refuses to start without it.
    """
    asyncio.run(_set(target, application, runtime, apply))


async def _set(target: str, application: str, runtime: str, apply: bool) -> None:
    from posthouse.stores.postgres import PostgresStore

    store = store_of(target)
    try:
        if not isinstance(store, PostgresStore):
            raise ConfigurationError(
                f"{target!r} is not a PostgreSQL store: only that has roles and row-level security"
            )
        if not apply:
            typer.echo(store.roles_script(application, runtime))
            return
        await store.set_roles(application, runtime)
        say(f"{application} sees one tenant at a time, {runtime} carries the events of all", "green")
    finally:
        await store.aclose()
