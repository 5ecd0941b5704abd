"""`posthouse stream`: the streams of aggregates, and their end."""

from __future__ import annotations

import asyncio
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
from posthouse.service import Service
from posthouse.store import Action
from posthouse.store.streams import Stream, StreamEvent, StreamHead

app = typer.Typer(no_args_is_help=True, help="Streams of aggregates: look at one, archive, restore or delete it.")

Kind = Annotated[str, typer.Argument(metavar="AGGREGATE", help="The aggregate, as it is declared.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The thing: the key of its events.")]
Tenant = Annotated[str, typer.Option(help="Whose it is.")]

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
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Say the last fact of a stream and delete all others, for good. What was published stays with whoever got it."""
    if not yes:
        confirm(f"delete {aggregate} {id} of the tenant {tenant} for good?")
    _decide(target, aggregate, id, tenant, Action(verb="stream delete", by=by, why=why), as_json)


def declared(service: Service, name: str) -> Aggregate[object, object]:
    """An aggregate by its name; ConfigurationError, with a suggestion, when there is none."""
    known = service.declared.aggregates
    if name not in known:
        raise ConfigurationError(f"{service.name} has no aggregate {name!r}.{did_you_mean(name, known)}")
    return known[name]


def _decide(target: str, aggregate: str, id: str, tenant: str, action: Action, as_json: bool) -> None:
    service = load(target)
    stream = Stream(tenant, declared(service, aggregate).name, id)
    verb = action.verb.removeprefix("stream ")
    head = asyncio.run(_ended(service, stream, verb, action))
    if as_json:
        print_json({**msgspec.to_builtins(stream), **msgspec.to_builtins(head)})
    else:
        say(f"{stream} {DONE[verb]}")


async def _ended(service: Service, stream: Stream, verb: str, action: Action) -> StreamHead:
    folios, host = declared(service, stream.aggregate), app_of(service)
    act = {"archive": folios.archive, "restore": folios.restore, "delete": folios.delete}[verb]
    async with opened([service]), service.transaction(stream.tenant) as tx:
        before = await host.store.streams.head(tx.transaction, stream, hold=True)
        if before is None:
            raise _nobody(stream)
        if not await act(tx, stream.id):
            raise DeskError(f"{stream} {ALREADY[verb]}")
        after = await host.store.streams.head(tx.transaction, stream)
        assert after is not None
        changed = {"state": (before.state, after.state), "version": (before.version, after.version)}
        noted = msgspec.structs.replace(
            action, service=service.name, tenant=stream.tenant, key=stream.id, changed=changed,
            target=f"stream {stream.aggregate} {stream.id}",
        )  # fmt: skip
        await host.actions.note(tx.transaction, noted)
        return after


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
