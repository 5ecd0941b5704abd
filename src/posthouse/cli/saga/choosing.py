"""Choosing: which saga a command is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from posthouse.app import app_of
from posthouse.errors import ConfigurationError, DeskError, did_you_mean
from posthouse.processes import SagaType
from posthouse.service import Service
from posthouse.store.sagas import SagaFilter, SagaRow

SagaName = Annotated[str, typer.Argument(metavar="SAGA", help="Its name, as in @service.saga(…).")]
SagaId = Annotated[str, typer.Argument(metavar="ID", help="The value of the field that it is found by.")]
Attempt = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Which of those with this id. Default: the newest.")
]
Tenant = Annotated[str | None, typer.Option(help="Of this tenant; needed when several have the id.")]


def declared(service: Service, name: str) -> SagaType:
    """The saga of that name. Raises ConfigurationError, which says what there is."""
    known = service.declared.saga_types
    if name not in known:
        hint = did_you_mean(name, known) or " It declares none."
        raise ConfigurationError(f"{service.name} has no saga {name!r}.{hint}")
    return known[name]


async def chosen(service: Service, saga: str, id: str, tenant: str | None, attempt: int | None = None) -> SagaRow:
    """The one that was meant, its tombstone if that is left. Raises DeskError when there is none, or when several tenants have
    it."""
    wanted = SagaFilter(saga=saga, tenant=tenant, id=id, attempt=attempt, tombstones=True)
    found = {row.tenant: row async for row in app_of(service).sagas.find(wanted)}  # of each the newest comes last
    if len(found) > 1:
        tenants = ", ".join(sorted(found))
        raise DeskError(f"{saga} {id} is there for the tenants {tenants}: add --tenant")
    if not found:
        of = "" if tenant is None else f" of the tenant {tenant}"
        which = "" if attempt is None else f", attempt {attempt},"
        raise DeskError(f"there is no saga {saga} {id}{which}{of}: see `posthouse saga list`")
    return next(iter(found.values()))


async def other_attempts(service: Service, row: SagaRow) -> list[SagaRow]:
    """Those of the same id."""
    every = SagaFilter(saga=row.saga, id=row.id, tenant=row.tenant, tombstones=True)
    return [other async for other in app_of(service).sagas.find(every) if other.attempt != row.attempt]


def asked_where(given: Sequence[str]) -> dict[str, str]:
    """What `--where field=value` says, given several times."""
    pairs = [one.partition("=") for one in given]
    for field, sign, value in pairs:
        if not field or not sign:
            raise ConfigurationError(f"--where {field}{sign}{value}: write FIELD=VALUE, as in --where policy_id=p1")
    if len({field for field, _, _ in pairs}) < len(pairs):
        raise ConfigurationError("--where names a field twice, and no saga has two values of it: leave one out")
    return {field: value for field, _, value in pairs}
