"""`posthouse stream`: the streams of aggregates, and their end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from posthouse.app import app_of
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson, By, Why, Yes
from posthouse.cli.output import confirm, counted, print_json, print_table, say
from posthouse.cli.target import Target, load
from posthouse.errors import ConfigurationError, DecodeError, DeskError, did_you_mean
from posthouse.events import decode_any, timestamp
from posthouse.processes import Aggregate
from posthouse.processes.stream.exporting import Exported, export_stream, read_export
from posthouse.service import Service
from posthouse.store import Action
from posthouse.store.streams import Stream, StreamEvent, StreamHead

app = typer.Typer(
    no_args_is_help=True, help="Streams of aggregates: look at one, export, archive, restore or delete it."
)

Kind = Annotated[str, typer.Argument(metavar="AGGREGATE", help="The aggregate, as it is declared.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The thing: the key of its events.")]
Tenant = Annotated[str, typer.Option(help="Whose it is.")]
To = Annotated[Path, typer.Option("--to", metavar="FILE", help="A file that is not there yet.")]
Before = Annotated[
    Path | None,
    typer.Option(
        "--export", metavar="FILE", help="Write it into this file first; where that fails nothing is deleted."
    ),
]

COLUMNS = ("VERSION", "AT", "TYPE", "EVENT")
MOST = 100_000
"""Events of a stream that are shown."""

DONE = {
    "archive": "is archived: it reads as before, and takes no events until it is restored",
    "restore": "takes events again",
    "delete": "is deleted: its last fact tells whoever reads its events",
}
ALREADY = {"archive": "is archived already", "restore": "is not archived", "delete": "was deleted already"}


@app.command()
def show(target: Target, aggregate: Kind, id: Id, tenant: Tenant, as_json: AsJson = False) -> None:
    """Show where a stream stands, and its events, archived ones too."""
    service = load(target)
    stream = Stream(tenant, declared(service, aggregate).name, id)
    head, events = asyncio.run(_found(service, stream))
    if as_json:
        print_json(
            {**msgspec.to_builtins(stream), **msgspec.to_builtins(head), "events": [_facts(one) for one in events]}
        )
        return
    print_table(COLUMNS, [(str(one.version), str(_facts(one)["at"]), one.type, one.event_id) for one in events])
    say(f"\n{stream} is {head.state}, at version {head.version}: {counted(len(events), 'event')}")


@app.command()
def export(target: Target, aggregate: Kind, id: Id, tenant: Tenant, to: To, as_json: AsJson = False) -> None:
    """Write a stream into a file, event by event as it lies in the store, and check that it is whole. Changes nothing.

    Nobody appends to it meanwhile. What is secret in it stays encrypted.
    """
    service = load(target)
    stream = Stream(tenant, declared(service, aggregate).name, id)
    found = asyncio.run(_exported(service, stream, to))
    if as_json:
        print_json(found)
    else:
        say(f"{stream}: {counted(found.events, 'event')} in {to}, sha256 {found.sha256}", "green")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `stream export` wrote.")], as_json: AsJson = False
) -> None:
    """Check that an exported file is whole and unchanged, and say what is in it. Needs no store."""
    found = read_export(file)
    opening = found.opening
    stream = Stream(opening.tenant, opening.aggregate, opening.id)
    if as_json:
        print_json(found)
    else:
        say(f"{stream}, {opening.state} at version {opening.version}: {counted(found.events, 'event')}, whole", "green")


@app.command()
def archive(
    target: Target, aggregate: Kind, id: Id, tenant: Tenant, by: By = "", why: Why = "", as_json: AsJson = False
) -> None:
    """Put the events of a stream out of the way: it reads as before, and takes no events until it is restored."""
    _decide(target, aggregate, id, tenant, Action(verb="stream archive", by=by, why=why), as_json)


@app.command()
def restore(
    target: Target, aggregate: Kind, id: Id, tenant: Tenant, by: By = "", why: Why = "", as_json: AsJson = False
) -> None:
    """Let a stream that was archived take events again."""
    _decide(target, aggregate, id, tenant, Action(verb="stream restore", by=by, why=why), as_json)


@app.command()
def delete(
    target: Target,
    aggregate: Kind,
    id: Id,
    tenant: Tenant,
    by: By = "",
    why: Why = "",
    export: Before = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Say the last fact of a stream and delete all others, for good. What was published stays with whoever got it.

    With --export it is written into a file before, in the same transaction: what is deleted is what is in the file.
    """
    if not yes:
        confirm(f"delete {aggregate} {id} of the tenant {tenant} for good?")
    _decide(target, aggregate, id, tenant, Action(verb="stream delete", by=by, why=why), as_json, export)


def declared(service: Service, name: str) -> Aggregate[object, object]:
    """An aggregate by its name; ConfigurationError, with a suggestion, when there is none."""
    known = service.declared.aggregates
    if name not in known:
        raise ConfigurationError(f"{service.name} has no aggregate {name!r}.{did_you_mean(name, known)}")
    return known[name]


def _decide(
    target: str, aggregate: str, id: str, tenant: str, action: Action, as_json: bool, export: Path | None = None
) -> None:
    service = load(target)
    stream = Stream(tenant, declared(service, aggregate).name, id)
    verb = action.verb.removeprefix("stream ")
    head = asyncio.run(_ended(service, stream, verb, action, export))
    if as_json:
        print_json({**msgspec.to_builtins(stream), **msgspec.to_builtins(head)})
    else:
        say(f"{stream} {DONE[verb]}")


async def _ended(service: Service, stream: Stream, verb: str, action: Action, export: Path | None = None) -> StreamHead:
    folios, host = declared(service, stream.aggregate), app_of(service)
    act = {"archive": folios.archive, "restore": folios.restore, "delete": folios.delete}[verb]
    async with opened([service]), service.transaction(stream.tenant) as tx:
        before = await host.store.streams.head(tx.transaction, stream, hold=True)
        if before is None:
            raise _nobody(stream)
        kept: Exported | None = None
        if export is not None and before.state != "deleted":
            kept = await export_stream(host.store, tx.transaction, stream, before, export)
        if not await act(tx, stream.id):
            raise DeskError(f"{stream} {ALREADY[verb]}")
        after = await host.store.streams.head(tx.transaction, stream)
        assert after is not None
        changed: dict[str, tuple[object, object]] = {
            "state": (before.state, after.state),
            "version": (before.version, after.version),
        }
        if kept is not None:
            changed["export"] = ("", f"{export}, {kept.events} events, sha256 {kept.sha256}")
        noted = msgspec.structs.replace(
            action, service=service.name, tenant=stream.tenant, key=stream.id, changed=changed,
            target=f"stream {stream.aggregate} {stream.id}",
        )  # fmt: skip
        await host.actions.note(tx.transaction, noted)
        return after


async def _exported(service: Service, stream: Stream, path: Path) -> Exported:
    store = app_of(service).store
    async with opened([service]), store.begin(tenant=stream.tenant) as tx:
        head = await store.streams.head(tx, stream, hold=True)
        if head is None:
            raise _nobody(stream)
        return await export_stream(store, tx, stream, head, path)


async def _found(service: Service, stream: Stream) -> tuple[StreamHead, list[StreamEvent]]:
    store = app_of(service).store
    async with opened([service]), store.begin(tenant=stream.tenant) as tx:
        head = await store.streams.head(tx, stream)
        if head is None:
            raise _nobody(stream)
        return head, list(await store.streams.read(tx, stream, limit=MOST))


def _facts(one: StreamEvent) -> dict[str, object]:
    facts: dict[str, object] = {"version": one.version, "type": one.type, "event_id": one.event_id}
    try:
        event = decode_any(one.headers, one.body)
    except DecodeError:
        return facts | {"at": "", "data": one.body}
    try:
        data: object = msgspec.json.decode(event.data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        data = event.data
    return facts | {"at": timestamp(event.occurred_at.timestamp()), "data": data}


def _nobody(stream: Stream) -> DeskError:
    return DeskError(f"there is no {stream}: is it the right tenant?")
