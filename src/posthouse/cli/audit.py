"""`posthouse audit`: prove that nobody touched what was logged, on files alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.options import AsJson
from posthouse.cli.output import complain, counted, print_facts, print_json, say, span
from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError
from posthouse.events import timestamp
from posthouse.history.audit.findings import Finding
from posthouse.history.audit.log import Signer, seal
from posthouse.history.audit.notes import NoteError, Verifier, opened, read_vkey
from posthouse.history.audit.place import open_place
from posthouse.history.audit.proofs import check as check_proof
from posthouse.history.audit.proofs import prove as prove_event
from posthouse.history.audit.proofs import prove_extension
from posthouse.history.audit.settings import KEYS, PLACE, PRIVATE_FILE, SECOND
from posthouse.history.audit.standing import Standing
from posthouse.history.audit.survey import standing
from posthouse.history.audit.verify import Report
from posthouse.history.audit.verify import verify as verify_log

app = typer.Typer(no_args_is_help=True, help="The audit log: verify it, prove an event, sign a checkpoint.")

SHOWN = 50
"""So many findings are shown for people; --json has them all."""

At = Annotated[
    str,
    typer.Argument(metavar="PLACE", envvar=PLACE, help="Where the log is: a folder, file:///…, s3://bucket/prefix."),
]
Second = Annotated[
    str | None, typer.Option(envvar=SECOND, metavar="PLACE", help="Where checkpoints and tiles are copied to.")
]
Keys = Annotated[
    Path | None,
    typer.Option(
        "--keys", envvar=KEYS, metavar="FILE", help="The public file of `posthouse keys`. Default: keys.toml."
    ),
]
VKey = Annotated[
    list[str], typer.Option("--key", metavar="NAME+ID+BASE64", help="In place of --keys: a key for signed notes.")
]
Private = Annotated[
    Path | None, typer.Option("--private", envvar=PRIVATE_FILE, metavar="FILE", help="The file of the private halves.")
]
DAY = 86_400.0


@app.callback()
def audit() -> None:
    """The audit log: verify it, prove an event, sign a checkpoint."""


@app.command()
def verify(
    place: At,
    second: Second = None,
    archive: Annotated[
        str | None, typer.Option(metavar="URL", help="Look too whether this archive still holds what was logged.")
    ] = None,
    keys: Keys = None,
    key: VKey = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Read the whole log, and name every event that was changed, removed, added or reordered. Exit 1 if there is one.

    It needs the files and a public key, and no server. --second finds what a log alone cannot tell: that its end was cut off, or that
    it was made anew.
    """
    known, revoked = _keys(keys, key)
    report = verify_log(open_place(place), known, None if second is None else open_place(second))
    found = [*report.findings, *(asyncio.run(_beside(place, archive)) if archive and not report.findings else ())]
    findings = [finding.words for finding in found]
    if report.newest is not None and _is_signed_by(report.newest.note, revoked):
        findings.append(f"{report.newest.path} is signed with a key that was revoked: others may have made it")
    if as_json:
        print_json(
            {
                "good": not findings,
                "events": report.events,
                "signed": report.signed,
                "checkpoints": report.checkpoints,
                "signed_at": None if report.newest is None else timestamp(report.newest.at),
                "findings": [*found, *({"words": words} for words in findings[len(found) :])],
            }
        )
    else:
        for words in findings[:SHOWN]:
            say(words, "red")
        if len(findings) > SHOWN:
            say(f"and {len(findings) - SHOWN:,} more: --json has all", "red")
        _say_report(report, good=not findings)
    if findings:
        raise typer.Exit(CHECK_FAILED)


@app.command()
def prove(
    id: Annotated[str, typer.Argument(metavar="EVENT-ID", help="The id of the event.")],
    place: At,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write it there. Default: stdout.")] = None,
    keys: Keys = None,
    key: VKey = [],  # noqa: B006
) -> None:
    """Write the proof that an event was logged: the event, its way to the root, and the checkpoint, as a C2SP tlog-proof."""
    text = prove_event(open_place(place), _keys(keys, key)[0], id)
    if out is None:
        typer.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")
        say(f"{out} proves {id}: `posthouse audit check {out}` needs it and the public key, and nothing else", "green")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A proof, as `posthouse audit prove` writes it.")],
    keys: Keys = None,
    key: VKey = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Look whether a proof holds, and show what it proves. Exit 1 if not."""
    try:
        found = check_proof(file.read_text(encoding="utf-8"), _keys(keys, key)[0])
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from error
    except ValueError as error:
        complain(f"posthouse: {file} proves nothing: {error}")
        raise typer.Exit(CHECK_FAILED) from error
    facts = {
        "id": found.event.id,
        "topic": found.event.topic,
        "key": found.event.key,
        "position": found.position,
        "log": found.checkpoint.origin,
        "size": found.checkpoint.size,
    }
    if as_json:
        print_json({**facts, "headers": dict(found.event.headers), "body": found.event.body.decode(errors="replace")})
        return
    print_facts([(name, "" if value is None else str(value)) for name, value in facts.items()])
    say(f"{found.event.id} was logged as it is in {file}", "green")


@app.command()
def consistency(
    earlier: Annotated[int, typer.Argument(metavar="SIZE", min=0, help="Of how many events the earlier one is.")],
    place: At,
    keys: Keys = None,
    key: VKey = [],  # noqa: B006
) -> None:
    """Write the proof that the newest checkpoint goes on from an earlier one, for witnesses (C2SP tlog-witness)."""
    typer.echo(prove_extension(open_place(place), _keys(keys, key)[0], earlier), nl=False)


@app.command()
def checkpoint(
    place: At, second: Second = None, keys: Keys = None, private: Private = None, as_json: AsJson = False
) -> None:
    """Sign what was logged until now, and copy it to the second place. Services with `audit=` do so by themselves every day."""
    found = seal(open_place(place), None if second is None else open_place(second), _signer(keys, private), _now())
    if as_json:
        print_json({"path": found.path, "size": found.checkpoint.size, "root": found.checkpoint.root.hex()})
    else:
        say(f"{counted(found.checkpoint.size, 'event')} signed as {found.checkpoint.origin}: {found.path}", "green")


@app.command()
def status(
    place: At,
    second: Second = None,
    keys: Keys = None,
    key: VKey = [],  # noqa: B006
    within: Annotated[float, typer.Option(help="A checkpoint that is older than so many seconds is late.")] = 1.1 * DAY,
    as_json: AsJson = False,
) -> None:
    """Show how far the log is and when it was signed last. Exit 1 when that is too long ago, or the second place is behind."""
    found = standing(open_place(place), None if second is None else open_place(second), _keys(keys, key)[0], _now())
    problems = found.problems(within)
    if as_json:
        print_json({**_facts(found), "problems": problems})
    else:
        age = None if found.age is None else f"{span(found.age)} ago"
        print_facts([(name, str(value)) for name, value in {**_facts(found), "age": age}.items() if value is not None])
        for problem in problems:
            say(problem, "red")
    if problems:
        raise typer.Exit(CHECK_FAILED)


async def _beside(place: str, archive: str) -> list[Finding]:
    from posthouse.history.archive.opening import reader_of
    from posthouse.history.archive.places import open_place as archive_at
    from posthouse.history.audit.beside import beside

    return await beside(open_place(place), reader_of(archive_at(archive)))


def _facts(found: Standing) -> dict[str, object]:
    return {
        "events": found.events,
        "signed": found.signed,
        "checkpoint": found.path,
        "age": found.age,
        "copied": found.copied,
    }


def _say_report(report: Report, *, good: bool) -> None:
    waiting = report.events - report.signed
    more = f"; {counted(waiting, 'event')} more not under a checkpoint yet" if waiting else ""
    if good:
        say(f"{counted(report.signed, 'event')} as signed, {counted(report.checkpoints, 'checkpoint')}{more}", "green")
    else:
        say(
            f"not as it was signed: {counted(report.signed, 'event')} under {counted(report.checkpoints, 'checkpoint')}{more}"
        )


def _keys(path: Path | None, given: Sequence[str]) -> tuple[list[Verifier], list[Verifier]]:
    """The keys that count, and those of them that were revoked."""
    from posthouse.history.audit.keys import revoked_in, verifiers  # what they need is an extra

    if not given:
        file = path or Path("keys.toml")
        return verifiers(file), revoked_in(file, _now())
    try:
        return [read_vkey(text) for text in given], []
    except NoteError as error:
        raise ConfigurationError(f"--key: {error}") from error


def _signer(path: Path | None, private: Path | None) -> Signer:
    from posthouse.history.audit.keys import private_here, signer_in

    return signer_in(path or Path("keys.toml"), private_here(private), _now())


def _is_signed_by(note: str, keys: Sequence[Verifier]) -> bool:
    try:
        return bool(keys) and bool(opened(note, keys))
    except NoteError:
        return False


def _now() -> float:
    return SystemClock().now()
