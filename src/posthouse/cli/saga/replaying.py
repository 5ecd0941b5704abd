"""`posthouse saga dump|replay`: histories of production, and whether a release takes them as they were taken."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson
from posthouse.cli.output import counted, plain, print_json, say
from posthouse.cli.saga.choosing import declared
from posthouse.cli.target import Target, load
from posthouse.errors import ConfigurationError
from posthouse.processes import SagaView
from posthouse.service import Service
from posthouse.store.sagas import SagaFilter, SagaStatus
from posthouse.testing.histories import dump as written
from posthouse.testing.histories import histories, way
from posthouse.testing.histories import load as read
from posthouse.testing.histories import replay as replayed
from posthouse.testing.masking import Masks


def dump(
    target: Target,
    to: Annotated[Path, typer.Option(help="The file to write: one history per line, as JSON.")],
    saga: Annotated[str | None, typer.Option(help="Only this saga.")] = None,
    status: Annotated[SagaStatus | None, typer.Option(help="Only in this status.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant.")] = None,
    each: Annotated[int, typer.Option(min=1, help="At most so many of each way through a saga.")] = 3,
    limit: Annotated[int, typer.Option(min=1, help="Look at so many sagas at most, oldest first.")] = 100_000,
    personal: Annotated[
        bool, typer.Option("--with-personal", help="Leave fields that are marked as personal data as they are.")
    ] = False,
) -> None:
    """Write histories of sagas to a file, some of each way that sagas took, for `posthouse saga replay` in CI. Fields that
    are marked as personal data are masked: the same value by the same mask. Ends with code 1 when there are none."""
    service = load(target)
    if saga is not None:
        declared(service, saga)
    wanted = SagaFilter(saga=saga, status=status, tenant=tenant)
    looked, kept = asyncio.run(_gather(service, wanted, each, limit))
    if not kept:
        say(f"none of {counted(looked, 'saga')} fits: nothing was written", "bold red")
        raise typer.Exit(CHECK_FAILED)
    masks = Masks(service)
    to.write_bytes(written(kept if personal else [masks.masked(view) for view in kept]))
    ways = len({way(view) for view in kept})
    say(f"{to}: {len(kept):,} of {counted(looked, 'saga')}, by {counted(ways, 'way')}")


def replay(
    target: Target,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `posthouse saga dump` wrote.")],
    ignore: Annotated[
        list[str] | None,
        typer.Option(help="A field of payloads and states that is new in every run; may be given again."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run stored histories again with the classes as they are now, without a store, and name the first turn of each that
    differs. Ends with code 1 when one does, and when the file holds none."""
    service = load(target)
    try:
        views = read(file.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error
    if not views:
        say(f"{file} holds no history: that proves nothing", "bold red")
        raise typer.Exit(CHECK_FAILED)
    differences = asyncio.run(replayed(service, views, ignore=ignore or ()))
    if as_json:
        print_json({"histories": len(views), "differences": differences})
    else:
        for difference in differences:
            say(plain(str(difference)))
        names = Counter(view.row.saga for view in views)
        what = ", ".join(f"{number:,} of {name}" for name, number in names.items())
        said = f"{len(differences):,} of them differ" if differences else "all as they were"
        say(f"replayed {what}: {said}", "bold red" if differences else "green")
    if differences:
        raise typer.Exit(CHECK_FAILED)


async def _gather(service: Service, wanted: SagaFilter, each: int, limit: int) -> tuple[int, list[SagaView]]:
    """How many were looked at, and those to keep."""
    ways: Counter[object] = Counter()
    kept: list[SagaView] = []
    looked = 0
    async with opened([service]):
        async for view in histories(service, wanted):
            if view.row.saga not in service.declared.saga_types or not view.history:
                continue
            looked += 1
            ways[way(view)] += 1
            if ways[way(view)] <= each:
                kept.append(view)
            if looked == limit:
                break
    return looked, kept
