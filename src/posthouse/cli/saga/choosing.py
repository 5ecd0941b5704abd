"""Choosing: which saga a command is about."""

from __future__ import annotations

from typing import Annotated

import typer

from posthouse.app import app_of
from posthouse.errors import ConfigurationError, DeskError, did_you_mean
from posthouse.processes import SagaType
from posthouse.service import Service
from posthouse.store.sagas import SagaFilter, SagaRow

SagaName = Annotated[str, typer.Argument(metavar="SAGA", help="Its name, as in @service.saga(…).")]
SagaId = Annotated[str, typer.Argument(metavar="ID", help="The value of the field that it is found by.")]
Tenant = Annotated[str | None, typer.Option(help="Of this tenant; needed when several have the id.")]


def declared(service: Service, name: str) -> SagaType:
    """The saga of that name. Raises ConfigurationError, which says what there is."""
    known = service.declared.saga_types
    if name not in known:
        hint = did_you_mean(name, known) or " It declares none."
        raise ConfigurationError(f"{service.name} has no saga {name!r}.{hint}")
    return known[name]


async def chosen(service: Service, saga: str, id: str, tenant: str | None) -> SagaRow:
    """The one that was meant. Raises DeskError when there is none, or when several tenants have it."""
    found = await app_of(service).store.sagas.find(SagaFilter(saga=saga, tenant=tenant, id=id))
    if len(found) > 1:
        tenants = ", ".join(sorted(row.tenant for row in found))
        raise DeskError(f"{saga} {id} is there for the tenants {tenants}: add --tenant")
    if not found:
        of = "" if tenant is None else f" of the tenant {tenant}"
        raise DeskError(f"there is no saga {saga} {id}{of}: see `posthouse saga list`")
    return found[0]
