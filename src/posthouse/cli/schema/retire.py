"""`posthouse schema retire`: the end of a version, once nobody has used it for seven days."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from posthouse.app import app_of
from posthouse.cli.catalog.freezing import Directory
from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson, By, Why
from posthouse.cli.output import complain, print_json, say
from posthouse.cli.target import Targets, load_all
from posthouse.clock import day_of
from posthouse.contracts.retirement import RETIRED, obstacles, retired_file
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.frozen import retired_in
from posthouse.governance.bundle import FOLDER, Bundle
from posthouse.governance.cutover import evidence_of
from posthouse.governance.folder import read_folder, write_folder
from posthouse.governance.listing import catalogue_of
from posthouse.service import Service
from posthouse.store import Action

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="The full subject, as in shop.orders.order.placed.v1.")]
Unseen = Annotated[
    list[str] | None,
    typer.Option(
        "--unseen", metavar="CONSUMER", help="You vouch for this consumer, which cannot be asked; repeatable."
    ),
]
Early = Annotated[
    bool, typer.Option("--early", help="Though both versions were not published for two weeks; say why, with --why.")
]


def retire(
    subject: Subject,
    targets: Targets,
    folder: Directory = Path(FOLDER),
    unseen: Unseen = None,
    early: Early = False,
    by: By = "",
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Retire a version that nobody has published or applied for seven days, and that was published beside the next one for two
    weeks; its owner cannot declare it afterwards.

    Name the service that owns it and those that read its topic. Ends with code 1, and says who still uses it, when it is
    too early. The operators' log of its owner keeps who said so.
    """
    services = load_all(targets)
    bundle, retired = read_folder(folder), retired_in(folder)
    _refuse_unknown(subject, services, bundle)
    problems: list[str] = []
    if subject not in retired:
        if early and not why.strip():
            raise ConfigurationError("--early shortens the time that readers have to move: say why, with --why")
        action = Action(verb="schema retire", by=by, why=why, target=subject)
        problems, retired = asyncio.run(_cut_over(services, folder, bundle, unseen or (), action, early=early))
    _report(subject, folder, problems, retired.get(subject), as_json)
    if problems:
        raise typer.Exit(CHECK_FAILED)


async def _cut_over(
    services: Sequence[Service],
    folder: Path,
    bundle: Bundle,
    unseen: Collection[str],
    action: Action,
    *,
    early: bool,
) -> tuple[list[str], Mapping[str, date]]:
    """Why it is too early; or else the list with today's date, written while the operators' log says who does it."""
    subject, retired = action.target, retired_in(folder)
    async with opened(services):
        evidence = await evidence_of(subject, services, bundle.topics, unseen)
        now = app_of(services[0]).clock.now()
        if problems := obstacles(evidence, now, early=early):
            return problems, retired
        owner = _owner(subject, services, bundle)
        days = None if evidence.dual is None else round(evidence.dual.days, 1)
        noted = msgspec.structs.replace(action, service=owner.name)
        async with app_of(owner).actions.doing(noted) as act:
            retired = {**retired, subject: day_of(now)}
            write_folder(folder, {RETIRED: retired_file(retired)})
            act.changed = {"retired": (None, f"{day_of(now):%Y-%m-%d}"), "days beside the next": (None, days)}
    return [], retired


def _owner(subject: str, services: Sequence[Service], bundle: Bundle) -> Service:
    """The service that says it, or said it."""
    for service in services:
        if any(known.name == subject for known in service.declared.own_events):
            return service
    places = (path for path, locked in bundle.lock.schemas.items() if locked.subject == subject)
    name = next(places).partition("/")[0]
    return next(service for service in services if service.name == name)


def _refuse_unknown(subject: str, services: Sequence[Service], bundle: Bundle) -> None:
    own = {entry.subject for entry in catalogue_of(services).events}
    frozen = {locked.subject for locked in bundle.lock.schemas.values()}
    if subject in own:
        return
    if subject not in frozen:
        raise ConfigurationError(f"no service here publishes {subject!r}.{did_you_mean(subject, {*own, *frozen})}")
    owner = next(path.partition("/")[0] for path, locked in bundle.lock.schemas.items() if locked.subject == subject)
    if owner not in {service.name for service in services}:
        raise ConfigurationError(f"{subject} belongs to {owner}: name that service too")


def _report(subject: str, folder: Path, problems: Sequence[str], day: date | None, as_json: bool) -> None:
    if as_json:
        print_json({"subject": subject, "retired": day, "problems": problems})
        return
    for problem in problems:
        complain(problem)
    if day is not None:
        say(
            f"{subject} is retired since {day:%Y-%m-%d}: commit {folder / RETIRED}, and remove its declaration", "green"
        )
