"""Streams outlive releases: old versions are lifted, and what nobody knows any more is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from posthouse import App, Payload, Service
from posthouse.errors import ContractError
from posthouse.processes import Aggregate, Loaded


class V1(Payload):
    folio_id: str
    euros: int


class V2(Payload):
    folio_id: str
    cents: int


class V3(Payload):
    folio_id: str
    cents: int
    tax: int = 0


def total(cents: int, event: V1 | V2 | V3) -> int:
    match event:
        case V1(euros=euros):
            return cents + 100 * euros
        case V2():
            return cents + event.cents
        case V3():
            return cents + event.cents + event.tax


def release(file: Path, number: int) -> tuple[Service, Aggregate[int, V1 | V2 | V3]]:
    """The service as it was released: each knows one version more, and says the last."""
    service = Service("billing")
    App(service, store=f"sqlite:///{file}", broker="memory://")
    classes = [
        service.event(f"folio.charged.v{version}", key="folio_id")(cls)
        for version, cls in enumerate((V1, V2, V3)[:number], 1)
    ]
    if number > 1:
        service.upcast(V1, to=V2)(lambda old: V2(old.folio_id, old.euros * 100))
    if number > 2:
        service.upcast(V2, to=V3)(lambda old: V3(old.folio_id, old.cents, old.cents // 10))
    folios = service.aggregate("folio", initial=int, evolve=total, events=classes[-1:])
    return service, folios


async def test_old_versions_in_a_stream_are_lifted_to_that_of_today(tmp_path: Path) -> None:
    for number, event in ((1, V1("f1", 1)), (2, V2("f1", 20)), (3, V3("f1", 3, 4))):
        service, folios = release(tmp_path / "store.db", number)
        await folios.execute("f1", lambda cents, event=event: event, tenant="t1")  # type: ignore[misc]  # bound at once
        await service.aclose()
    service, folios = release(tmp_path / "store.db", 3)
    async with service.transaction("t1") as tx:
        assert await folios.load(tx, "f1") == Loaded(110 + 22 + 7, 3)
        history = await folios.history(tx, "f1")
    assert [event.data for event in history] == [V3("f1", 100, 10), V3("f1", 20, 2), V3("f1", 3, 4)]
    assert [event.type for event in history] == [f"billing.folio.charged.v{version}" for version in (1, 2, 3)]
    await service.aclose()


async def test_an_event_that_nobody_knows_names_its_stream_and_version(tmp_path: Path) -> None:
    service, folios = release(tmp_path / "store.db", 1)
    await folios.execute("f1", lambda cents: [V1("f1", 1), V1("f1", 2)], tenant="t1")
    await service.aclose()
    service = Service("billing")
    App(service, store=f"sqlite:///{tmp_path / 'store.db'}", broker="memory://")
    service.event("folio.charged.v2", key="folio_id")(V2)
    folios = service.aggregate("folio", initial=int, evolve=total, events=(V2,))
    async with service.transaction("t1") as tx:
        with pytest.raises(ContractError) as raised:
            await folios.load(tx, "f1")
    words = str(raised.value)
    assert words.startswith("folio 'f1' of tenant 't1', version 1: billing.folio.charged.v1 is none of the events")
    assert "declare an upcast from it" in words
    await service.aclose()


async def test_an_upcast_that_fails_names_its_stream_and_version(tmp_path: Path) -> None:
    service, folios = release(tmp_path / "store.db", 1)
    await folios.execute("f1", lambda cents: V1("f1", 1), tenant="t1")
    await service.aclose()
    service = Service("billing")
    App(service, store=f"sqlite:///{tmp_path / 'store.db'}", broker="memory://")
    for version, cls in ((1, V1), (2, V2)):
        service.event(f"folio.charged.v{version}", key="folio_id")(cls)
    service.upcast(V1, to=V2)(lambda old: V2(old.folio_id, old.euros // 0))
    folios = service.aggregate("folio", initial=int, evolve=total, events=(V2,))
    async with service.transaction("t1") as tx:
        with pytest.raises(ContractError, match=r"folio 'f1' of tenant 't1', version 1: .*ZeroDivisionError"):
            await folios.load(tx, "f1")
    await service.aclose()
