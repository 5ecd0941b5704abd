"""`posthouse subject`: persons whose fields are secret: erase one, and prove it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from posthouse.app import app_of
from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson, By, Why, Yes
from posthouse.cli.output import confirm, counted, print_facts, print_json, print_table, say
from posthouse.cli.target import Target, load
from posthouse.erasure import Erased, Reapplied, erase, prove, reapply_all, vault_of
from posthouse.events import timestamp
from posthouse.remains import Found
from posthouse.service import Service
from posthouse.trust.secrets.keystore import StoredKey

app = typer.Typer(no_args_is_help=True, help="Persons whose fields are secret: erase one, and prove it.")

Tenant = Annotated[str, typer.Option(help="The tenant whose person it is.")]
Subject = Annotated[str, typer.Option(metavar="ID", help="The person, as events name him.")]


@app.command("erase")
def erase_one(
    target: Target,
    tenant: Tenant,
    subject: Subject,
    by: By = "",
    why: Why = "",
    within: Annotated[float, typer.Option(help="Seconds to wait until every process has forgotten the key.")] = 60.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is kept about him, and do nothing.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Destroy a person's key for ever, tell everybody, and prove it. It cannot be undone.

    Every value that was encrypted for him becomes unreadable wherever it lies. Run it again to go on after a crash, or to prove
    it again. Ends with code 1 when something can still be read, a place could not be looked at, or a process has not said that it
    forgot.
    """
    service = load(target)
    if not (dry_run or yes):
        confirm(f"Erase {subject} of tenant {tenant} for ever?")

    async def work() -> Erased:
        async with opened([service]):
            return await erase(service, tenant, subject, why=why, by=by, within=within, dry_run=dry_run)

    done = asyncio.run(work())
    if as_json:
        print_json({**msgspec.structs.asdict(done), "proven": done.proven})
    else:
        _show(done)
    if not (dry_run or done.proven):
        raise typer.Exit(CHECK_FAILED)


@app.command()
def show(target: Target, tenant: Tenant, subject: Subject, as_json: AsJson = False) -> None:
    """Show whether a person has a key, when he was erased, and what is kept about him. Nothing of it is decrypted for you."""
    service = load(target)

    async def work() -> tuple[StoredKey | None, Sequence[Found]]:
        async with opened([service]):
            known = await vault_of(service).store.get(tenant, [subject])
            return known.get(subject), await prove(app_of(service), tenant, subject)

    key, places = asyncio.run(work())
    if as_json:
        print_json({**_facts(tenant, subject, key), "places": places})
        return
    print_facts([(name, str(value)) for name, value in _facts(tenant, subject, key).items()])
    _show_places(places)


@app.command("list")
def list_all(
    target: Target,
    tenant: Tenant,
    after: Annotated[str, typer.Option(metavar="ID", help="Only those behind this one.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Show at most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the persons of a tenant who have a key, or had one."""
    service = load(target)

    async def work() -> Sequence[StoredKey]:
        async with opened([service]):
            return await vault_of(service).store.list(tenant, after, limit)

    found = asyncio.run(work())
    if as_json:
        print_json([_facts(key.tenant, key.subject, key) for key in found])
    elif found:
        print_table(("PERSON", "STATE", "KEY MADE"), [(k.subject, _state(k), timestamp(k.made_at)[:19]) for k in found])
    else:
        say(f"tenant {tenant} has no persons with keys")


@app.command()
def reapply(
    target: Target,
    log: Annotated[bool, typer.Option("--log", help="Also from the receipts in the broker's log.")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase again whoever a key store forgot was erased: it was brought back from a backup.

    Services do this by themselves when they start, from the operators' log in their own store. A receipt that cannot be read, or is
    not signed where that is required, is passed over.
    """
    service = load(target)

    async def work() -> Reapplied:
        async with opened([service]):
            return await reapply_all(service, log=log)

    done = asyncio.run(work())
    if as_json:
        print_json(done._asdict())
        return
    again = f"{counted(done.again, 'person')} erased again"
    say(again if done.again else "the key store knows every erasure", "green")
    if done.refused:
        say(f"{counted(done.refused, 'receipt')} in the log refused, see the log lines: they say nothing", "bold red")


@app.command()
def upgrade(target: Target, as_json: AsJson = False) -> None:
    """Make the tables of the key store, where they are missing."""
    service = load(target)
    made = asyncio.run(_upgraded(service))
    if as_json:
        print_json({"made": made})
    else:
        say("the key store is made" if made else "nothing to do: the key store is up to date", "green")


async def _upgraded(service: Service) -> bool:
    vault = vault_of(service)
    try:
        return await vault.store.upgrade()
    finally:
        await vault.store.aclose()


def _show(done: Erased) -> None:
    who = f"{done.subject} of tenant {done.tenant}"
    if done.dry_run:
        say(f"nothing was done. What is kept about {who}:", "bold")
        _show_places(done.places)
        return
    say(f"{who} was erased{' before' if done.again else ''}: erasure {done.number}, {timestamp(done.at)}", "bold")
    say(f"{counted(len(done.forgot), 'process')} forgot the key" if done.forgot else "no process had the key")
    for name in done.silent:
        say(f"{name} has not said that it forgot the key: end it, or run this again", "bold red")
    say(f"receipt: {done.receipt}" if done.receipt else "the receipt was said before")
    _show_places(done.places)
    if done.proven:
        say("nothing about this person can be read any more", "green")
    if done.unseen:
        say(f"not proven: nobody could look at all of {', '.join(done.unseen)}", "bold red")
    if any(found.plain for found in done.places):
        say("PLAIN values were never encrypted: they stay until what holds them is purged", "bold red")


def _show_places(places: Sequence[Found]) -> None:
    print_table(
        ("PLACE", "ENCRYPTED", "DECRYPTED", "PLAIN", ""),
        [(one.place, f"{one.boxes:,}", f"{one.opened:,}", f"{one.plain:,}", one.note) for one in places],
    )


def _facts(tenant: str, subject: str, key: StoredKey | None) -> dict[str, object]:
    erased = None if key is None or key.erased_at is None else timestamp(key.erased_at)
    return {"tenant": tenant, "subject": subject, "state": _state(key), "erased": erased}


def _state(key: StoredKey | None) -> str:
    if key is None:
        return "no key"
    return "has a key" if key.wrapped is not None else "erased"
