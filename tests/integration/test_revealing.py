"""Looking at what is encrypted, on purpose: at the console and on the command line, with SQLite and PostgreSQL for store and keys."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from posthouse import App
from posthouse.cli import app as command_line
from posthouse.console.access.who import Who
from posthouse.console.acting.pressing import press
from posthouse.console.acting.table import ACTS
from posthouse.console.asking import Ask, Page, Refusal
from posthouse.console.estate import Estate
from posthouse.console.pages import events, held
from posthouse.erasure import erase
from posthouse.errors import ContractError
from posthouse.events import codec_of, decode_any
from posthouse.receiving.editing import check_edit
from posthouse.store import HeldEvent, HeldFilter
from posthouse.store.actions import Action
from posthouse.trust.secrets.keys.postgres import PostgresKeys
from posthouse.watch.status import drained
from tests.kit.guests import Hotel
from tests.kit.servers.postgres import PostgresServer
from tests.kit.waiting import eventually

NAME, MAIL = "Ada-Lovelace", "ada@analytical.example"
ADA = Who(name="ada", roles=frozenset(("operator",)), payloads=True)
BLIND = Who(name="bob", roles=frozenset(("admin",)))
ELSEWHERE = Who(name="cat", roles=frozenset(("operator",)), tenants=frozenset(("t2",)), payloads=True)


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def hotel(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Hotel]:
    """With one dead event about Ada, which its own handlers may not read."""
    if request.param == "sqlite":
        async with a_hotel(Hotel(tmp_path, reads=[])) as made:
            yield made
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    with server.database() as store, server.database() as keys:
        there = PostgresKeys(keys)
        await there.upgrade()
        await there.aclose()
        async with a_hotel(Hotel(tmp_path, store=store, broker=store, keys=keys, reads=[])) as made:
            yield made


@pytest_asyncio.fixture
async def light(tmp_path: Path) -> AsyncIterator[Hotel]:
    """Where it does not matter which store it is."""
    async with a_hotel(Hotel(tmp_path, reads=[])) as made:
        yield made


class a_hotel:
    def __init__(self, hotel: Hotel) -> None:
        self.hotel = hotel

    async def __aenter__(self) -> Hotel:
        hotel = self.hotel
        await hotel.app.store.upgrade()
        hotel.fails = True
        await hotel.register("g1", NAME, email=MAIL, born=1815)
        async with hotel.app.running():
            await eventually(lambda: hotel.app.store.held.find(HeldFilter(state="dead")))
            await drained(hotel.service)
        hotel.fails = False
        return hotel

    async def __aexit__(self, *_: object) -> None:
        await self.hotel.app.aclose()


async def dead(hotel: Hotel) -> HeldEvent:
    (found,) = await hotel.app.store.held.find(HeldFilter())
    return found


def asking(app: App, path: dict[str, str], who: Who = ADA, **query: str) -> Ask:
    return Ask(Estate(app), who, path, query)


async def told(page: Page, ask: Ask) -> Any:
    return msgspec.json.decode(msgspec.json.encode(await page(ask)))


async def places(hotel: Hotel) -> dict[Page, dict[str, str]]:
    one = await dead(hotel)
    return {
        held.payload: {"service": "hotel", "id": str(one.id)},
        events.payload: {"id": one.entry.event_id},
    }


async def looks(hotel: Hotel, verb: str = "console unmask") -> list[Action]:
    return [one for one in await hotel.app.actions.find() if one.verb == verb]


async def test_an_operator_sees_what_is_encrypted_once_the_log_has_who_why_and_whose(hotel: Hotel) -> None:
    for page, path in (await places(hotel)).items():
        before = len(await looks(hotel))
        masked = await told(page, asking(hotel.app, path))
        said = msgspec.json.encode(masked).decode()
        assert not any(value in said for value in (NAME, MAIL, "1815")), said
        assert "$secret" not in masked["payload"]["text"]
        assert len(await looks(hotel)) == before
        whole = (await told(page, asking(hotel.app, path, unmask="1", why="ticket 7")))["payload"]
        assert msgspec.json.decode(whole["text"]) == {
            "guest_id": "g1", "name": NAME, "email": MAIL, "born": 1815, "room": "12",
        }  # fmt: skip
        assert whole["decrypted"] == 3
        look = (await looks(hotel))[0]
        assert len(await looks(hotel)) == before + 1
        assert (look.by, look.why, look.tenant) == ("ada (console)", "ticket 7", "t1")
        assert look.event_id == (await dead(hotel)).entry.event_id
        assert [(name, *words) for name, words in look.changed.items()] == [
            ("shown of g1", "⟨withheld⟩", "name, email, born")
        ]
        kept = msgspec.json.encode(await hotel.app.actions.find()).decode()
        assert not any(value in kept for value in (NAME, MAIL))


async def test_who_may_not_see_payloads_or_this_tenant_gets_nothing_and_no_key_is_asked_for(hotel: Hotel) -> None:
    for page, path in (await places(hotel)).items():
        with pytest.raises(Refusal, match="may not see payloads") as refused:
            await page(asking(hotel.app, path, BLIND, unmask="1", why="curious"))
        assert refused.value.status == 403
        with pytest.raises(Refusal) as unseen:
            await page(asking(hotel.app, path, ELSEWHERE, unmask="1", why="curious"))
        assert unseen.value.status == 404
        with pytest.raises(Refusal, match="Say why"):
            await page(asking(hotel.app, path, unmask="1"))
    assert await looks(hotel) == []


async def test_of_somebody_who_was_erased_a_placeholder_is_shown(hotel: Hotel) -> None:
    assert (await erase(hotel.service, "t1", "g1", why="asked")).number
    for page, path in (await places(hotel)).items():
        whole = (await told(page, asking(hotel.app, path, unmask="1", why="ticket 7")))["payload"]
        shown = msgspec.json.decode(whole["text"])
        assert (shown["name"], shown["email"], shown["born"], shown["room"]) == (*["⟨erased⟩"] * 3, "12")
        assert (whole["decrypted"], whole["erased"]) == (0, ["name", "email", "born"])
    assert [one.changed for one in await looks(hotel)] == [{}, {}]


async def test_an_erasure_that_the_key_store_forgot_stands_before_anybody_looks(light: Hotel) -> None:
    keys = light.folder / "keys.db"
    backup = keys.read_bytes()
    await erase(light.service, "t1", "g1", why="asked")
    await light.app.aclose()
    keys.write_bytes(backup)
    again = Hotel(light.folder, reads=[])
    try:
        path = next(iter((await places(again)).values()))
        whole = (await told(held.payload, asking(again.app, path, unmask="1", why="ticket 7")))["payload"]
        assert NAME not in whole["text"]
        assert whole["erased"]
    finally:
        await again.app.aclose()


async def test_a_process_without_keys_says_so(light: Hotel) -> None:
    app = App(light.service, store=f"sqlite:///{light.folder}/hotel.db", broker=f"embedded:///{light.folder}/log.db")
    found = await places(light)
    try:
        for page, path in found.items():
            with pytest.raises(Refusal, match=r"this process has no keys.*POSTHOUSE_SECRETS_KEYS") as refused:
                await page(asking(app, path, unmask="1", why="ticket 7"))
            assert refused.value.status == 409
    finally:
        await app.aclose()


async def test_a_key_store_that_is_away_is_named_and_no_look_is_kept(light: Hotel, unused_tcp_port: int) -> None:
    found = await places(light)
    away = Hotel(light.folder, keys=f"postgresql://nobody:secretword@127.0.0.1:{unused_tcp_port}/keys", reads=[])
    try:
        for page, path in found.items():
            with pytest.raises(Refusal, match="keys cannot be had") as refused:
                await page(asking(away.app, path, unmask="1", why="ticket 7"))
            assert refused.value.status == 503
            assert "secretword" not in refused.value.message
        assert await looks(away) == []
        masked = (await told(held.payload, asking(away.app, found[held.payload])))["payload"]
        assert masked["text"] is not None
    finally:
        await away.app.aclose()


async def test_what_somebody_changed_is_called_unreadable_and_the_rest_is_shown(light: Hotel) -> None:
    one = await dead(light)
    event = decode_any(one.headers, one.body)
    data = msgspec.json.decode(event.data)
    data["name"], data["email"] = data["email"], data["name"]
    encoded = codec_of(one.headers, one.body).encode(event.with_data(msgspec.json.encode(data)))
    async with light.app.store.begin() as tx:
        await tx.execute("UPDATE posthouse_held SET body = ?", (encoded.body,))
    path = (await places(light))[held.payload]
    whole = (await told(held.payload, asking(light.app, path, unmask="1", why="ticket 7")))["payload"]
    shown = msgspec.json.decode(whole["text"])
    assert (shown["name"], shown["email"], shown["born"]) == ("⟨unreadable⟩", "⟨unreadable⟩", 1815)
    assert sorted(whole["unreadable"]) == ["email", "name"]


async def test_an_edit_keeps_every_encrypted_value_that_nobody_touched(hotel: Hotel) -> None:
    one = await dead(hotel)
    before = msgspec.json.decode(decode_any(one.headers, one.body).data)
    path = (await places(hotel))[held.payload]
    for ask in (asking(hotel.app, path), asking(hotel.app, path, unmask="1", why="ticket 7")):
        text = (await told(held.payload, ask))["payload"]["edit"]
        assert msgspec.json.decode(text) == {
            "guest_id": "g1", "name": "⟨withheld 1⟩", "email": "⟨withheld 2⟩", "born": "⟨withheld 3⟩", "room": "12",
        }  # fmt: skip
    new = text.replace('"12"', '"14"').replace("⟨withheld 2⟩", "new@example.org")
    asked = {"service": "hotel", "id": str(one.id), "data": new}
    look: Any = await press(ACTS, Estate(hotel.app), ADA, "held.edit", {**asked, "dry": True})
    assert {change.field for change in look["changes"]} == {"room", "email"}
    assert "new@example.org" not in repr(look["changes"])
    await press(
        ACTS,
        Estate(hotel.app),
        ADA,
        "held.edit",
        {**asked, "why": "moved", "seen": look["seen"], "press": look["press"]},
    )
    again = await dead(hotel)
    after = msgspec.json.decode(decode_any(again.headers, again.body).data)
    assert (after["name"], after["born"], after["room"]) == (before["name"], before["born"], "14")
    assert after["email"]["$secret"] == 1
    assert after["email"] != before["email"]
    whole = (await told(held.payload, asking(hotel.app, path, unmask="1", why="ticket 8")))["payload"]
    assert msgspec.json.decode(whole["text"])["email"] == "new@example.org"
    async with hotel.app.running():
        await eventually(lambda: hotel.heard)
    assert hotel.heard[0].data.room == "14"


async def test_an_edit_that_moves_an_encrypted_value_is_refused_and_changes_nothing(light: Hotel) -> None:
    one, catalogue = await dead(light), light.service.declared.catalogue
    event = decode_any(one.headers, one.body)
    with pytest.raises(ContractError, match=r"'room'.*written anew"):
        await light.app.held.edit(
            one.id,
            b'{"guest_id":"g1","name":"A","email":"e","born":null,"room":"\xe2\x9f\xa8withheld 1\xe2\x9f\xa9"}',
            lambda _, data: check_edit("hotel", catalogue, event, data),
        )
    assert await dead(light) == one


async def test_nothing_decrypted_reaches_a_log(light: Hotel, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for page, path in (await places(light)).items():
        await page(asking(light.app, path, unmask="1", why="ticket 7"))
    assert not any(NAME in record.getMessage() or MAIL in record.getMessage() for record in caplog.records)


SCRIPT = """
from pathlib import Path
from tests.kit.guests import Hotel

made = Hotel(Path({folder!r}), reads=[])
hotel = made.service
"""


async def test_held_show_decrypts_on_purpose_and_keeps_the_look_first(
    light: Hotel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await light.app.aclose()
    (tmp_path / "inn_of_show.py").write_text(SCRIPT.format(folder=str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSTHOUSE_OPERATOR", "")

    def run(*words: str) -> Any:
        from typer.testing import CliRunner

        return CliRunner().invoke(command_line, ["held", *words], env={"COLUMNS": "200"})

    number = str((await dead(light)).id)
    await light.app.aclose()
    target = "inn_of_show:hotel"
    shown = await asyncio.to_thread(run, "show", target, number)
    assert shown.exit_code == 0, shown.output
    assert "⟨withheld 1⟩" in shown.output
    assert "--unmask" in shown.output
    exported = await asyncio.to_thread(run, "export", target)
    as_json = await asyncio.to_thread(run, "show", target, number, "--json")
    for result in (shown, exported, as_json):
        assert NAME not in result.output
        assert MAIL not in result.output
    unsaid = await asyncio.to_thread(run, "show", target, number, "--unmask")
    assert unsaid.exit_code == 2
    assert "--why" in unsaid.stderr
    assert await looks(light, "held unmask") == []
    await light.app.aclose()
    plain = await asyncio.to_thread(run, "show", target, number, "--unmask", "--by", "ada", "--why", "ticket 7")
    assert plain.exit_code == 0, plain.output
    assert NAME in plain.output
    assert MAIL in plain.output
    (look,) = await looks(light, "held unmask")
    assert (look.by, look.why, list(look.changed)) == ("ada", "ticket 7", ["shown of g1"])
    assert (look.target, look.service, look.tenant) == (f"held event {number}", "hotel", "t1")
    await light.app.aclose()
    told = await asyncio.to_thread(run, "show", target, number, "--unmask", "--why", "ticket 8", "--json")
    assert msgspec.json.decode(told.stdout)["envelope"]["data"]["name"] == NAME
    await erase(light.service, "t1", "g1", why="asked")
    await light.app.aclose()
    gone = await asyncio.to_thread(run, "show", target, number, "--unmask", "--why", "ticket 9")
    assert gone.exit_code == 0, gone.output
    assert "⟨erased⟩" in gone.output
    assert NAME not in gone.output
