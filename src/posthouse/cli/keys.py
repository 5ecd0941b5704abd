"""`posthouse keys`: the public file of signed facts, and the private halves beside it."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from posthouse.app import app_of, signing_of
from posthouse.cli.moment import moment_of
from posthouse.cli.options import AsJson
from posthouse.cli.output import Cell, counted, print_json, print_table, say
from posthouse.cli.target import load_all
from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.events import timestamp
from posthouse.service import Service
from posthouse.trust.signatures.halves import PRIVATE_FILE, halves_here, lacking
from posthouse.trust.signatures.keys import Key, fits, private_in, read_keys, replace_file, write_keys
from posthouse.trust.signatures.signing import KEYS

app = typer.Typer(no_args_is_help=True, help="Keys of signed facts: make, list, retire, revoke and check them.")

File = Annotated[
    Path, typer.Option("--file", envvar=KEYS, help="The public file. Default: POSTHOUSE_SIGNING, else keys.toml.")
]
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of the key.")]
PrivateFile = Annotated[
    Path | None, typer.Option("--private", envvar=PRIVATE_FILE, help="The file of the private halves, or their folder.")
]
DEFAULT = Path("keys.toml")
COLUMNS = ("ID", "STATE", "SOURCE", "TOPICS", "TENANTS", "USE", "SINCE", "RETIRED", "UNTIL", "REVOKED")


class Uses(StrEnum):
    """What a key is for."""

    facts = "facts"
    edits = "edits"
    audit = "audit"
    contracts = "contracts"


@app.callback()
def keys() -> None:
    """Keys of signed facts: make, list, retire, revoke and check them."""


@app.command()
def new(
    id: Id,
    source: Annotated[str, typer.Option(help="Whose facts it signs: /NAMESPACE/SERVICE, or /SERVICE without one.")],
    topic: Annotated[list[str], typer.Option(help="On these topics; * stands for anything. Can be repeated.")] = ["*"],  # noqa: B006
    tenant: Annotated[list[str], typer.Option(help="For these tenants. Can be repeated.")] = ["*"],  # noqa: B006
    use: Annotated[
        Uses,
        typer.Option(help="For facts, for edits of held events, for checkpoints of the audit log, or for contracts."),
    ] = Uses.facts,
    since: Annotated[
        str | None, typer.Option(metavar="MOMENT", help="Sign with it from then on. Default: at once.")
    ] = None,
    file: File = DEFAULT,
    private: PrivateFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a key: its public half goes into the public file, its private one behind the others in --private."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # an extra

    if not source.startswith("/"):
        raise ConfigurationError(f"--source {source!r}: the source of a fact begins with a slash: /shop/orders")
    if private is None:
        raise ConfigurationError("say where the private half goes: --private FILE, which is for the service alone")
    if not id.strip() or not set(":,#\n ").isdisjoint(id):
        raise ConfigurationError(f"{id!r} is no id of a key: letters, digits, - and .")
    known = dict(read_keys(file)) if file.exists() else {}
    if id in known:
        raise ConfigurationError(f"{file} has a key {id!r} already: ids are never used again")
    secret = Ed25519PrivateKey.generate()
    key = Key(
        id=id,
        public=secret.public_key().public_bytes_raw(),
        source=source,
        topics=tuple(topic),
        tenants=tuple(tenant),
        use=use.value,
        since=_now() if since is None else moment_of(since),
    )
    _add_private(private, id, secret.private_bytes_raw())  # first: a public half alone is of no use
    write_keys(file, [*known.values(), key])
    _told(key, as_json, f"{id} signs for {source} since {timestamp(key.since)}; give {file} to every reader")


@app.command(name="list")
def list_keys(file: File = DEFAULT, as_json: AsJson = False) -> None:
    """Show the keys, and how each stands."""
    found, now = read_keys(file), _now()
    if as_json:
        print_json([_facts(key, now) for key in found.values()])
    elif found:
        print_table(COLUMNS, [_row(key, now) for key in found.values()])
    else:
        say("no keys yet: `posthouse keys new`")


@app.command()
def retire(
    id: Id,
    at: Annotated[str | None, typer.Option(metavar="MOMENT", help="From when on. Default: now.")] = None,
    until: Annotated[
        str | None, typer.Option(metavar="MOMENT", help="What arrives from then on is refused. Default: never.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Also where no other key signs for the same then.")] = False,
    file: File = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Sign no more with a key. What it has signed stays good, also when it is sent again in years. The last key for some facts is
    retired with --yes alone."""
    moment = _now() if at is None else moment_of(at)
    if not yes:
        _refuse_the_last(read_keys(file), id, moment)
    key = _change(file, id, retired=moment, until=None if until is None else moment_of(until))
    _told(key, as_json, f"{id} signs nothing from {timestamp(moment)} on; what it has signed stays good")


@app.command()
def revoke(
    id: Id,
    at: Annotated[
        str | None,
        typer.Option(metavar="MOMENT", help="When others may have had it: what arrived from then on is refused."),
    ] = None,
    file: File = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Refuse what a key signs: others may have it. Running processes know it as soon as they have the file."""
    moment = _now() if at is None else moment_of(at)
    key = _change(file, id, revoked=moment)
    _told(key, as_json, f"{id} is revoked: what arrived from {timestamp(moment)} on is quarantined as forged")


@app.command()
def check(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="[TARGET]...", help="Services, as module:name: their topics are looked at too."),
    ] = [],  # noqa: B006
    file: File = DEFAULT,
    private: PrivateFile = None,
    as_json: AsJson = False,
) -> None:
    """Look whether the files fit together, and whether each topic of some services has a key that signs now. Exit 1 if not."""
    services = load_all(targets) if targets else []
    known, here = read_keys(file), _private_of(services, private)
    problems = [*_strange(known, here, file), *_unsigned(known, services)]
    if here:
        sources = {known[id].source for id in here if id in known} | {service.source for service in services}
        problems += [lack.words for source in sorted(sources) for lack in lacking(known, here, source, _now())]
    if as_json:
        print_json({"keys": len(known), "private": len(here), "problems": problems})
    else:
        for problem in problems:
            say(problem, "red")
        say(f"{counted(len(known), 'key')}, {len(here)} with their private half here", "red" if problems else "green")
    if problems:
        raise typer.Exit(1)


def _private_of(services: Sequence[Service], private: Path | None) -> Mapping[str, bytes]:
    """Those that are named, else those of the Apps of the services, else those that the environment says."""
    apps = {id(app): app for app in map(app_of, services)}.values() if private is None else ()
    said = [signing_of(app) for app in apps]
    return {id: half for one in said if one is not None for id, half in one.halves().read().items()} or halves_here(
        private
    ).read()


def _refuse_the_last(known: Mapping[str, Key], id: str, moment: float) -> None:
    """Raise ConfigurationError for a key after which nothing of its source can be published."""
    if (key := known.get(id)) is None or key.state(moment) not in ("active", "next"):
        return
    others = [one for one in known.values() if one.id != id and (one.source, one.use) == (key.source, key.use)]
    for one in others:
        covers = all(fits(name, one.topics) for name in key.topics) and all(
            fits(name, one.tenants) for name in key.tenants
        )
        if covers and one.state(moment) == "active":
            return
    what = "published by a service that has this key" if key.use == "facts" else "signed"
    raise ConfigurationError(
        f"no other key for {key.use} of {key.source} signs at {timestamp(moment)} what {id} signs: nothing of it could be {what}. Make the "
        f"next first: `posthouse keys new ID --source {key.source} --private FILE`; or say --yes"
    )


def _strange(known: Mapping[str, Key], here: Mapping[str, bytes], file: Path) -> Iterator[str]:
    """Private halves that are nobody's."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # an extra

    for id, seed in here.items():
        if id not in known:
            yield f"the private key {id!r} has no public half in {file}.{did_you_mean(id, known)}"
        elif Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw() != known[id].public:
            yield f"the private key {id!r} is not that of the public one with this id"


def _unsigned(known: Mapping[str, Key], services: Sequence[Service]) -> Iterator[str]:
    """Topics whose facts nobody could sign now."""
    now = _now()
    for service in services:
        source = service.source
        active = [key for key in known.values() if key.source == source and key.use == "facts"]
        active = [key for key in active if key.state(now) == "active"]
        said = [*service.declared.own_events, *service.declared.internal_events]  # those of sagas and schedules too
        for topic in sorted({one.topic for one in said}):
            if not any(fits(topic, key.topics) for key in active):
                yield f"{topic}: no active key signs for {source}: `posthouse keys new ID --source {source}`"


def _change(file: Path, id: str, **moments: float | None) -> Key:
    """One key with other moments, written."""
    known = dict(read_keys(file))
    if id not in known:
        raise ConfigurationError(f"{file} has no key {id!r}.{did_you_mean(id, known)}")
    known[id] = msgspec.structs.replace(known[id], **moments)
    write_keys(file, known.values())
    return known[id]


def _add_private(path: Path, id: str, secret: bytes) -> None:
    there = path.read_text(encoding="utf-8") if path.exists() else ""
    if id in private_in(there, str(path)):
        raise ConfigurationError(f"{path} has a private key {id!r} already: ids are never used again")
    if there and not there.endswith("\n"):
        there += "\n"
    replace_file(path, f"{there}{id}:{base64.b64encode(secret).decode()}\n", mode=0o600)


def _told(key: Key, as_json: bool, words: str) -> None:
    if as_json:
        print_json(_facts(key, _now()))
    else:
        say(words)


def _facts(key: Key, now: float) -> dict[str, object]:
    moments = {name: getattr(key, name) for name in ("since", "retired", "until", "revoked")}
    return {
        "id": key.id,
        "state": key.state(now),
        "source": key.source,
        "topics": list(key.topics),
        "tenants": list(key.tenants),
        "use": key.use,
        "public": base64.b64encode(key.public).decode(),
        **{name: None if at is None else timestamp(at) for name, at in moments.items()},
    }


def _row(key: Key, now: float) -> tuple[Cell, ...]:
    moments = [_short(at) for at in (key.since, key.retired, key.until, key.revoked)]
    return key.id, key.state(now), key.source, " ".join(key.topics), " ".join(key.tenants), key.use, *moments


def _short(at: float | None) -> str:
    return "" if not at else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _now() -> float:
    return SystemClock().now()
