"""`posthouse export`: alert rules, dashboards and runbooks for the tools that watch, and rights for brokers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from posthouse.accounts import NAMED, accounts_of
from posthouse.cli.options import AsJson
from posthouse.cli.output import counted, print_json, say
from posthouse.cli.target import Targets, load_all
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.governance.folder import write_folder
from posthouse.trust.rights.exports import BROKERS, rights_for
from posthouse.watch import alerts as watched
from posthouse.watch.alerts import Thresholds
from posthouse.watch.dashboards import DASHBOARDS, written
from posthouse.watch.prometheus import checked_prefix

THRESHOLDS = tuple(vars(Thresholds()))
LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RUNBOOKS = "runbooks"
"""Where `posthouse export runbooks --out runbooks` puts them, beside the rules."""

app = typer.Typer(
    no_args_is_help=True,
    help="Write alert rules for Prometheus, dashboards for Grafana, the runbooks that they lead to, and rights for brokers.",
)

File = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where to write; without it, to stdout.")]
Folder = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where to write them.")]
Cases = Annotated[
    Path | None,
    typer.Option(
        "--tests",
        metavar="FILE",
        help="Write cases too, two for each alert, for `promtool test rules FILE`; needs --out.",
    ),
]
Prefix = Annotated[
    str | None,
    typer.Option(
        help="The prefix of a platform's names: rules that it wrote ask for these. Default: POSTHOUSE_METRICS_PREFIX."
    ),
]
Runbooks = Annotated[
    str, typer.Option(metavar="URL", help="Where you have put the pages of `posthouse export runbooks`.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=NUMBER", help="Another threshold, as in --set consumer_lag_seconds=60; repeatable."
    ),
]
By = Annotated[
    list[str] | None,
    typer.Option(
        "--by", metavar="LABEL", help="A label of your scrapes by which services are told apart, as env; repeatable."
    ),
]
TimeScale = Annotated[
    float,
    typer.Option(
        metavar="NUMBER",
        help="Make everything last so many times as long: 0.01 makes three seconds of five minutes, for a drill.",
    ),
]


@app.command()
def alerts(
    out: File = None,
    tests: Cases = None,
    prefix: Prefix = None,
    runbooks: Runbooks = RUNBOOKS,
    thresholds: Set = None,
    by: By = None,
    time_scale: TimeScale = 1.0,
) -> None:
    """Write the alert rules, for `rule_files` of Prometheus. Each has a severity, page or ticket, and the URL of its runbook.

    Nothing is opened: they are made from the table of figures alone.
    """
    made = watched.alerts(
        Thresholds(**_numbers(thresholds or [])),
        keep=_labels(by or []),
        prefix=checked_prefix(os.environ.get("POSTHOUSE_METRICS_PREFIX", "") if prefix is None else prefix),
        time_scale=_positive(time_scale),
    )
    text = watched.rule_file(made, runbooks)
    if out is None:
        if tests is not None:
            raise ConfigurationError("--tests needs --out: the cases name the file of the rules")
        typer.echo(text, nl=False)
        return
    files = {out: text}
    if tests is not None:
        beside = Path(os.path.relpath(out, tests.parent)).as_posix()
        files[tests] = watched.case_file(made, beside)
    for path, content in files.items():
        write_folder(path.parent, {path.name: content.encode()})
        say(str(path))
    say(
        f"{counted(len(made), 'alert')}: {sum(one.severity == 'page' for one in made)} page, the others are tickets",
        "green",
    )


@app.command()
def dashboards(out: Folder, as_json: AsJson = False) -> None:
    """Write the dashboards as JSON to import into Grafana 10 or later. They ask for their data source when they are opened."""
    _write(out, {f"{one.uid}.json": written(one) for one in DASHBOARDS}, as_json)


@app.command("runbooks")
def export_runbooks(out: Folder, as_json: AsJson = False) -> None:
    """Write the runbooks, Markdown, to put where people find them; tell `posthouse export alerts --runbooks URL` where that is."""
    _write(out, watched.runbooks(), as_json)


@app.command("rights")
def export_rights(
    targets: Targets,
    broker: Annotated[str, typer.Option("--for", metavar="BROKER", help=f"One of {', '.join(BROKERS)}.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Where to write; without it, one file goes to stdout."),
    ] = None,
    account: Annotated[
        str, typer.Option(metavar="NAME", help="What the accounts are called, with {service} in it.")
    ] = NAMED,
    as_json: AsJson = False,
) -> None:
    """Write who may publish and read what, as the broker's own tools take it: one account for each service, and none for a person.

    Nothing is opened: it is made from what the services declare.
    """
    if NAMED not in account:
        raise ConfigurationError(
            f"--account {account}: all services would share it; write it with {NAMED}, as in {NAMED}-prod"
        )
    files = rights_for(broker, accounts_of(load_all(targets), named=account))
    if out is not None:
        _write(out, files, as_json)
    elif as_json:
        print_json(files)
    elif len(files) == 1:
        typer.echo(next(iter(files.values())), nl=False)
    else:
        raise ConfigurationError(f"these are {len(files)} files: say --out and a folder")


def _write(out: Path, files: Mapping[str, str], as_json: bool) -> None:
    touched = write_folder(out, {path: text.encode() for path, text in files.items()})
    if as_json:
        print_json({"files": list(files), "touched": touched})
        return
    for path in touched:
        say(f"{out / path}")
    say(f"{counted(len(files), 'file')}, {len(touched):,} changed", "green")


def _numbers(given: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in given:
        name, _, number = one.partition("=")
        if name not in THRESHOLDS:
            raise ConfigurationError(f"--set {one}: no threshold is called {name!r}.{did_you_mean(name, THRESHOLDS)}")
        try:
            found[name] = float(number)
        except ValueError:
            raise ConfigurationError(
                f"--set {one}: write a name and a number, as in --set consumer_lag_seconds=60"
            ) from None
    return found


def _labels(given: Sequence[str]) -> Sequence[str]:
    problems = [
        f"--by {label}: a label is a letter or _, then letters, digits and _"
        for label in given
        if not LABEL.fullmatch(label)
    ]
    if problems:
        raise ConfigurationError(*problems)
    return given


def _positive(scale: float) -> float:
    if not 0 < scale <= 1000:
        raise ConfigurationError(f"--time-scale {scale:g}: a number above 0 and up to 1000")
    return scale
