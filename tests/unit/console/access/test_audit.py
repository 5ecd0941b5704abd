"""Who came, who was refused, who left: all of it is in the operators' log of the stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from posthouse import App, Service
from posthouse.clock import ManualClock
from posthouse.console.access import Access, Who
from posthouse.console.access.guard import NOTED_EVERY
from posthouse.console.application import console, guarded
from posthouse.console.estate import Estate
from posthouse.errors import ConfigurationError
from tests.kit.asgi import served
from tests.unit.console.access.room import Room, guarding


async def test_sign_ins_and_sign_outs_are_in_the_log_of_every_store(tmp_path: Path) -> None:
    apps = [
        App(Service(name), store=f"sqlite:///{tmp_path}/{name}.db", broker="memory://")
        for name in ("orders", "billing")
    ]
    for app in apps:
        await app.open()
    tokens: list[str] = []
    room = Room()
    async with served(guarded(Estate(*apps), Access(), tokens.append)) as room.address, room.client() as client:
        await client.post("/api/access/token", json={"token": tokens[-1]})
        assert (await client.get("/api/services")).status_code == 200
        await client.post("/api/access/out", json={})
        assert (await client.get("/api/services")).status_code == 401
        logs = [[(one.verb, one.by, one.target) for one in await app.actions.find()] for app in apps]
    for app in apps:
        await app.aclose()
    assert (
        logs
        == [[("console sign-out", "local (console)", "token"), ("console sign-in", "local (console)", "token")]] * 2
    )


async def test_a_store_that_is_away_keeps_nobody_out_and_is_not_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(Service("orders"), store=f"sqlite:///{tmp_path}/orders.db", broker="memory://")
    tokens: list[str] = []
    room = Room()
    async with served(guarded(Estate(app), Access(), tokens.append)) as room.address, room.client() as client:
        answer = await client.post("/api/access/token", json={"token": tokens[-1]})
    assert answer.status_code == 200
    assert "console sign-in by local is not in the operators' log of orders" in caplog.text
    assert not (tmp_path / "orders.db").exists()


async def test_what_a_known_person_is_refused_is_noted() -> None:
    access = Access(who=lambda scope: Who(name="ben", roles=frozenset(("reader",))))
    async with guarding(access) as room, room.client() as client:
        assert (await client.get("/api/forbidden?id=7")).status_code == 403
        assert (await client.get("/api/who")).status_code == 200
    assert room.noted == [("console refused", "ben", "GET /api/forbidden")]


async def test_who_is_refused_a_page_again_and_again_is_noted_once_a_minute() -> None:
    access, clock = Access(who=lambda scope: Who(name="ben", roles=frozenset(("reader",)))), ManualClock()
    async with guarding(access, clock) as room, room.client() as client:
        for number in range(20):
            assert (await client.get(f"/api/forbidden?id={number}")).status_code == 403
        assert room.noted == [("console refused", "ben", "GET /api/forbidden")]

        clock.advance(NOTED_EVERY)
        await client.get("/api/forbidden")
    assert room.noted == [("console refused", "ben", "GET /api/forbidden")] * 2


def test_a_mounted_console_is_told_how_to_know_who_asks() -> None:
    with pytest.raises(ConfigurationError, match=r"Access\(who=…\)"):
        console(Service("orders"), access=Access())
