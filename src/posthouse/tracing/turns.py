"""Turns: what sagas did with events, from their histories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from posthouse.app import app_of
from posthouse.errors import EventError
from posthouse.events import Event
from posthouse.events.limits import UNREADABLE
from posthouse.processes import SagaType
from posthouse.processes.saga.deadlines import DeadlinePassed
from posthouse.service import Service
from posthouse.store.sagas import SagaFilter, SagaRow, SagaTurn
from posthouse.tracing.spot import Spot
from posthouse.tracing.standing import Heard, SagaStep


async def with_turns(
    services: Sequence[Service], spots: Mapping[str, Spot], heard: Mapping[str, list[Heard]]
) -> dict[str, list[Heard]]:
    """The same with the turns of sagas. A deadline is heard by the saga that it belongs to, and by no other."""
    types = [(service, of) for service in services for of in service.declared.saga_types.values()]
    sagas = {name: (service, of) for service, of in types for name in (of.consumer, of.caller)}
    known: dict[tuple[str, str, str], Mapping[str, tuple[SagaRow, SagaTurn]]] = {}
    found: dict[str, list[Heard]] = {}
    for event_id, consumers in heard.items():
        event = spots[event_id].event
        for one in consumers:
            if one.consumer not in sagas:
                found.setdefault(event_id, []).append(one)
                continue
            service, of = sagas[one.consumer]
            saga, id = _whose(service, of, event)
            if saga != of.name:
                continue
            key = (of.consumer, event.tenant, id)
            if key not in known:
                known[key] = await _turns(service, of, event.tenant, id)
            found.setdefault(event_id, []).append(_with_turn(one, known[key].get(event_id)))
    return found


async def _turns(service: Service, of: SagaType, tenant: str, id: str) -> Mapping[str, tuple[SagaRow, SagaTurn]]:
    """The turns of all attempts of a saga, by the event that each was about."""
    if not id:
        return {}
    sagas = app_of(service).sagas
    rows = [row async for row in sagas.find(SagaFilter(saga=of.name, tenant=tenant, id=id, tombstones=True))]
    views = [await sagas.show(of.name, id, tenant=tenant, attempt=row.attempt) for row in rows]
    return {turn.input.event_id: (view.row, turn) for view in views for turn in view.history if turn.input.event_id}


def deadline_of(services: Sequence[Service], event: Event[bytes]) -> DeadlinePassed | None:
    """What a service's own event says about a deadline; None for any other event."""
    internal = {known.name for service in services for known in service.declared.internal_events}
    if event.type not in internal:
        return None
    try:
        return msgspec.json.decode(event.data, type=DeadlinePassed)
    except UNREADABLE:
        return None


def _whose(service: Service, of: SagaType, event: Event[bytes]) -> tuple[str, str]:
    """Name and id of the saga that an event is about; the id is empty where it cannot be read."""
    passed = deadline_of([service], event)
    if passed is not None:
        return passed.saga, passed.id
    event_type = of.event_types.get(event.type)
    if event_type is None:
        return of.name, ""
    try:
        return of.name, of.id_in(event.type, event.with_data(event_type.payload.decode(event.data))) or ""
    except EventError:
        return of.name, ""


def _with_turn(heard: Heard, found: tuple[SagaRow, SagaTurn] | None) -> Heard:
    if found is None:
        return heard
    row, turn = found
    step = SagaStep(
        saga=row.saga,
        id=row.id,
        turn=turn.turn,
        attempt=row.attempt,
        correlation=row.correlation,
        method=turn.method,
        status=turn.status,
        late=turn.late,
        note=turn.note,
    )
    return msgspec.structs.replace(heard, saga=step)
