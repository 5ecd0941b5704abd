"""`posthouse archive`: how far it is, whether it is sound, what is in it, and to let go of what is too old."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Annotated

import typer

from posthouse import archives
from posthouse.app import App, app_of
from posthouse.archives import ArchiveStatus, Expiry
from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson, By, Why, Yes
from posthouse.cli.output import aim, complain, confirm, counted, print_json, print_table, say, span
from posthouse.cli.target import Target, services_of
from posthouse.contracts.retention import CLASSES
from posthouse.errors import ConfigurationError
from posthouse.events import timestamp
from posthouse.history.archive.opening import lacking
from posthouse.history.archive.places import Place, open_place

if TYPE_CHECKING:
    from posthouse.history.archive.verifying import Verified

app = typer.Typer(
    no_args_is_help=True,
    help="The archive of every event: how far it is, whether it is sound, what is in it, and let go of what is too old.",
)

Where = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", help="module:service or module:app; or the archive itself, as in file:///var/lib/archive."
    ),
]
_AGE = re.compile(r"(hot|warm|cold|unread)=([0-9]+)([dhy])")
_UNITS = {"h": 3600.0, "d": 86_400.0, "y": 365 * 86_400.0}


@app.command("status")
def status_command(target: Target, as_json: AsJson = False) -> None:
    """Show how far the archive is in each topic, and what of the log it will never have.

    Ends with code 1 when the log let go of events before they were archived.
    """
    found = asyncio.run(_status(_app(target)))
    if as_json:
        print_json(found)
    else:
        _show(found)
    if found.gaps:
        for words in found.gaps:
            complain(words)
        raise typer.Exit(CHECK_FAILED)


@app.command("verify")
def verify_command(target: Where, as_json: AsJson = False) -> None:
    """Read every file again and compare it with what was written: bytes, counts, positions, the numbers of every key.

    Of an archive that is named by its URL, on files alone. Ends with code 1 when something is missing, truncated, changed or foreign.
    """
    found = asyncio.run(_verified(target))
    if as_json:
        print_json({**{name: getattr(found, name) for name in found.__struct_fields__}, "sound": found.sound})
    else:
        for finding in found.findings:
            (complain if finding.fault else say)(f"{finding.kind}: {finding.name}: {finding.words}")
        how = "sound" if found.sound else "not sound"
        say(
            f"{how}: {counted(found.events, 'event')} in {counted(found.files, 'file')}, after entry {found.generation} of its log"
        )
    if not found.sound:
        raise typer.Exit(CHECK_FAILED)


@app.command("expire")
def expire_command(
    target: Target,
    older_than: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CLASS=AGE",
            help="As in hot=30d, warm=1y or cold=7y; may be given again. Default: what Settings(retention=…) says of each class.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    yes: Yes = False,
    by: By = "",
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Let go of the days of a class that are older than its age, by the time of the log.

    Nothing reads them from then on; the files themselves go a day later.
    """
    app = _app(target)
    ages = dict(map(_age, older_than)) if older_than else _of_classes(app)
    found = asyncio.run(_expired(app, ages, dry_run=True, by=by, why=why))
    events = sum(one.events for one in found)
    if not as_json:
        rows = [(one.retention, one.before, f"{one.files:,}", f"{one.events:,}", f"{one.bytes:,}") for one in found]
        print_table(("CLASS", "BEFORE", "FILES", "EVENTS", "BYTES"), rows)
    if not dry_run and events:
        if not yes:
            confirm(f"let go of {counted(events, 'event')} for good?")
        found = asyncio.run(_expired(_app(target), ages, dry_run=False, by=by, why=why))
    if as_json:
        print_json(found)


@app.command("adopt")
def adopt_command(target: Target, yes: Yes = False, by: By = "", why: Why = "") -> None:
    """Let the store of a service take over an archive that it does not know, because its database was lost.

    Which events are archived is read from the files. Stop whoever else writes that archive first.
    """
    app = _app(target)
    if not yes:
        confirm("does nobody else write this archive any more?")
    generation = asyncio.run(_adopted(app, by, why))
    say(
        f"adopted, with all {generation:,} entries of its log: `posthouse run TARGET --only archive` goes on from there"
    )


@app.command("query")
def query_command(
    target: Where,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="For DuckDB, over the table `events`.")],
    as_json: AsJson = False,
) -> None:
    """Ask the archive in SQL: `SELECT type, count(*) FROM events GROUP BY 1`.

    One SELECT. What is live is read, nothing is changed, and no other file is in reach.
    """
    try:
        from posthouse.history.archive.querying import query
    except ModuleNotFoundError as error:
        raise lacking(error) from error
    place = open_place(target) if "://" in target else asyncio.run(_opened(_app(target)))
    names, rows = query(place, sql)
    if as_json:
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        print_table([name.upper() for name in names], [[str(value) for value in row] for row in rows])


def _app(target: str) -> App:
    aim(target)
    return app_of(services_of(target)[0])


async def _opened(app: App) -> Place:
    async with opened(app.services):
        return archives.place_of(app)


async def _verified(target: str) -> Verified:
    """On files alone, or with what the store says of them."""
    try:
        from posthouse.history.archive.verifying import verify
    except ModuleNotFoundError as error:
        raise lacking(error) from error
    if "://" in target:
        return await asyncio.to_thread(verify, open_place(target))
    app, loop = _app(target), asyncio.get_running_loop()
    async with opened(app.services):
        group, place = next(iter(app.opened.building.archived or ("",))), archives.place_of(app)
        known = await app.store.archives.known(group)

        def planned() -> list[str]:
            plans = asyncio.run_coroutine_threadsafe(app.store.archives.plans(group), loop).result()
            return [name for plan in plans for name in plan.objects]

        return await asyncio.to_thread(verify, place, known=0 if known is None else known.generation, planned=planned)


async def _status(app: App) -> ArchiveStatus:
    archives.place_of(app)
    async with opened(app.services):
        return await archives.status(app)


async def _expired(app: App, ages: dict[str, float], *, dry_run: bool, by: str, why: str) -> list[Expiry]:
    archives.place_of(app)
    async with opened(app.services):
        return await archives.expire(app, ages, dry_run=dry_run, by=by, why=why)


async def _adopted(app: App, by: str, why: str) -> int:
    archives.place_of(app)
    async with opened(app.services):
        return await archives.adopt(app, by=by, why=why)


def _of_classes(app: App) -> dict[str, float]:
    """How long the archive keeps each class, as somebody has said."""
    classes = app.settings.retention
    if classes is None:
        raise ConfigurationError(
            "say --older-than CLASS=AGE, as in hot=30d; or say what classes mean with Settings(retention=RetentionClasses()), which "
            "is then meant"
        )
    return {str(name): classes.of(name).archive for name in CLASSES}


def _age(text: str) -> tuple[str, float]:
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise ConfigurationError(f"--older-than {text!r}: a class and its age, as in hot=30d, warm=1y, cold=7y")
    return found[1], int(found[2]) * _UNITS[found[3]]


def _show(found: ArchiveStatus) -> None:
    rows = []
    for one in found.topics:
        reach = one.reach
        waits = "" if one.oldest is None or not one.pending else span(one.oldest)
        until = "" if reach is None else timestamp(reach.last_at)[:19]
        since = "" if reach is None else timestamp(reach.first_at)[:19]
        rows.append((one.topic, f"{0 if reach is None else reach.events:,}", since, until, f"{one.pending:,}", waits))
    print_table(("TOPIC", "ARCHIVED", "SINCE", "UNTIL", "WAITING", "OLDEST"), rows)
    say(
        f"{found.url}: {counted(found.files, 'file')}, {found.bytes:,} bytes, entry {found.generation} of its log"
        + (f", {counted(found.plans, 'plan')} under way" if found.plans else "")
        + (f", {counted(found.gone, 'file')} to be deleted" if found.gone else "")
    )
