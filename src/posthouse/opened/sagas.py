"""Sagas: whether those that are stored can go on here, and who of several releases runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from posthouse.checks import Check, refusals
from posthouse.clock import Clock
from posthouse.heartbeat import SILENT
from posthouse.opened.ports import Ports
from posthouse.processes import SagaType
from posthouse.processes.saga.comparing import compare_stored
from posthouse.processes.saga.precedence import Precedence, alive, appear, later, order_of
from posthouse.service import Service
from posthouse.settings import Settings
from posthouse.store import has_process_tables


class Sagas:
    """The sagas of services, beside what their store keeps of them."""

    def __init__(self, services: Sequence[Service], ports: Ports, clock: Clock, settings: Settings) -> None:
        self._services = services
        self._ports = ports
        self._clock = clock
        self._settings = settings

    async def checks(self) -> list[Check]:
        """Whether the sagas that are stored can go on; what the operator lets pass is a warning."""
        store = self._ports.store
        if not has_process_tables(store):
            return []
        if releases := {of.consumer: of.release for of in self._types()}:
            await appear(store, releases, self._clock.now())
        found = [*(await compare_stored(store, self._declared())).checks(), *await self._same_names()]
        left = await self._left_to_others()
        return [
            replace(one, judgement="warn")
            if one.judgement == "fail"
            and (self._settings.saga_misfits == "start" or one.name.removeprefix("saga ") in left)
            else one
            for one in found
        ]

    async def _same_names(self) -> list[Check]:
        """Sagas of other services that are kept in this store under the name of one of ours: they would be taken for ours."""
        others = {of for one in await self._ports.store.workers.read() for of in one.releases} - {
            of.consumer for of in self._types()
        }
        names = {service.name for service in self._services}
        theirs = {saga: service for service, _, saga in (of.partition(".") for of in others) if service not in names}
        return [
            Check(
                name=f"saga {of.name}",
                found=f"the service {theirs[of.name]} has sagas of this name in the same store",
                judgement="fail",
                fix="rename one, or give each service a store of its own; if the service was renamed, start it with saga_misfits='start'",
            )
            for of in self._types()
            if of.name in theirs
        ]

    async def _left_to_others(self) -> set[str]:
        """The sagas that a later release runs at the moment: this one stands aside."""
        store = self._ports.store
        others = [one for one in await store.workers.read() if alive(one, SILENT)]
        order = await order_of(store)
        return {of.name for of in self._types() if later(of.consumer, of.release, others, order)}

    def precedence(self) -> Precedence | None:
        """Who runs them, of several releases; None where there are none."""
        releases = {of.consumer: of.release for of in self._types()}
        if not releases:
            return None
        return Precedence(self._ports.store, self._clock, releases, self._cannot_go_on, SILENT)

    async def _cannot_go_on(self, consumer: str) -> Sequence[str]:
        """Why the stored sagas of a consumer could not go on here; nothing where the operator lets that pass."""
        if self._settings.saga_misfits == "start":
            return ()
        compared = await compare_stored(self._ports.store, self._declared())
        saga = next(of.name for of in self._types() if of.consumer == consumer)
        return refusals(check for check in compared.checks() if check.name == f"saga {saga}")

    def _declared(self) -> Mapping[str, Mapping[str, SagaType]]:
        return {service.name: service.declared.saga_types for service in self._services}

    def _types(self) -> list[SagaType]:
        return [of for service in self._services for of in service.declared.saga_types.values()]
