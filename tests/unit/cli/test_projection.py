"""`posthouse projection`: what there is, how fresh it is, and how it is made anew."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from posthouse.app import app_of
from posthouse.cli.target import load
from posthouse.store import WorkerTable
from posthouse.store.projections import Generation
from posthouse.watch.liveness import attendance, is_running
from posthouse.watch.status import drained, status
from tests.kit.waiting import eventually
from tests.unit.cli.conftest import Project

ROOMS = """
from posthouse import Event, Payload, Service
from posthouse.processes import Model

rooms = Service("rooms")


@rooms.event("room.listed.v1", key="room_id")
class RoomListed(Payload):
    room_id: str


book = rooms.aggregate("room", initial=int, evolve=lambda count, _: count + 1, events=(RoomListed,))
listings = rooms.projection("listings", lag_budget=5.0)


@listings.setup
async def tables(model: Model) -> None:
    await model.execute(f"CREATE TABLE {model.table('listing')} (room TEXT PRIMARY KEY)")


@listings.on(RoomListed)
async def listed(event: Event[RoomListed], model: Model) -> None:
    await model.execute(f"INSERT INTO {model.table('listing')} VALUES (?)", (event.data.room_id,))
"""


@pytest.fixture
def declared(project: Project) -> Project:
    project.write("rooms.py", ROOMS)
    return project


def with_rooms(project: Project, number: int) -> None:
    """Rooms that were listed and applied."""

    async def work() -> None:
        service = load("rooms:rooms")
        module: Any = sys.modules["rooms"]
        async with service.running():
            async with service.transaction("t1") as tx:
                for n in range(number):
                    await module.book.append(tx, f"r{n}", [module.RoomListed(room_id=f"r{n}")], expected=0)
            await drained(service)

    project.forget()
    asyncio.run(work())
    project.forget()


def test_the_list_names_the_generation_that_is_read(declared: Project) -> None:
    with_rooms(declared, 1)
    result = declared.run("projection", "list", "rooms", columns=100)
    assert result.exit_code == 0
    assert "rooms.listings" in result.stdout
    assert "generation 1" in result.stdout
    assert "each its own" in result.stdout


def test_before_the_service_was_opened_there_is_none(declared: Project) -> None:
    declared.run("db", "upgrade", "rooms")
    assert "none yet" in declared.run("projection", "list", "rooms").stdout
    assert "no projection has a generation yet" in declared.run("projection", "status", "rooms").stdout


def test_a_service_without_projections_has_none_to_list(declared: Project) -> None:
    declared.run("db", "upgrade", "shop")
    assert declared.run("projection", "list", "shop").stdout == "no projection is declared\n"


def test_status_says_within_budget_and_fits_a_terminal(declared: Project) -> None:
    with_rooms(declared, 2)
    result = declared.run("projection", "status", "rooms", columns=110)
    assert result.exit_code == 0, result.output
    assert "within budget ✓" in result.stdout
    assert "live" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 110


def test_status_over_budget_ends_with_code_1(declared: Project) -> None:
    with_rooms(declared, 1)

    async def more() -> None:
        service = load("rooms:rooms")
        module: Any = sys.modules["rooms"]
        async with service.running(only=["relay"]):
            async with service.transaction("t1") as tx:
                await module.book.append(tx, "r9", [module.RoomListed(room_id="r9")], expected=0)
            while (await app_of(service).store.counts()).unsent:  # noqa: ASYNC110 - the relay sets no event of ours
                await asyncio.sleep(0.01)
            await app_of(service).store.projections.note("rooms.listings", 1, 1.0, app_of(service).clock.now())
            async with app_of(service).store.begin() as tx:
                await tx.execute("UPDATE posthouse_generation SET event_at = event_at - 60")

    declared.forget()
    asyncio.run(more())
    result = declared.run("projection", "status", "rooms", "--name", "listings")
    assert result.exit_code == 1
    assert "over budget" in result.stdout


def test_the_status_as_json_holds_the_figures(declared: Project) -> None:
    with_rooms(declared, 2)
    found: Any = declared.json("projection", "status", "rooms")
    (one,) = found
    (generation,) = one["generations"]
    assert (one["projection"], one["version"]) == ("rooms.listings", 1)
    assert (generation["state"], generation["group"], generation["within"]) == ("live", "rooms.listings", True)
    assert generation["seconds"] >= 0
    assert generation["tables"] == ["listings_listing_1"]


@pytest.mark.parametrize("source", ["log", "streams"])
def test_a_rebuild_says_what_it_did_and_what_follows(declared: Project, source: str) -> None:
    with_rooms(declared, 3)
    result = declared.run("projection", "rebuild", "rooms", "listings", "--from", source, "--grace", "120")
    assert result.exit_code == 0, result.output
    assert f"generation 2 of listings is live: 3 events from the {source} in" in result.stdout
    assert "generation 1 goes in 2 min" in result.stdout
    assert "of 3 events, " in result.stderr
    listed = declared.run("projection", "list", "rooms").stdout
    assert "generation 2" in listed
    assert "rooms.listings.g2" in listed


def test_a_rebuild_as_json_prints_one_value_and_nothing_else(declared: Project) -> None:
    with_rooms(declared, 3)
    done = declared.json("projection", "rebuild", "rooms", "listings", "--keep")
    assert isinstance(done, dict)
    assert (done["generation"], done["replaced"], done["events"], done["kept"]) == (2, 1, 3, True)
    dropped = declared.json("projection", "drop", "rooms", "listings", "--generation", "1", "--yes", "--by", "ada")
    kept: Any = declared.json("actions", "rooms")
    assert [(action["verb"], action["outcome"], action["changed"]["generation"]) for action in kept] == [
        ("projection drop", "done", [1, None]),
        ("projection rebuild", "done", [1, 2]),
    ]
    assert dropped == {"projection": "rooms.listings", "generation": 1, "tables": ["listings_listing_1"]}


def test_misspelled_names_get_a_suggestion(declared: Project) -> None:
    declared.run("db", "upgrade", "rooms")
    for words in (["rebuild", "rooms", "listing"], ["drop", "rooms", "listing", "--yes"]):
        result = declared.run("projection", *words)
        assert result.exit_code == 2
        assert "rooms has no projection 'listing'. Did you mean 'listings'?" in result.stderr


def test_a_rebuild_that_was_begun_is_shown_with_what_to_do(declared: Project) -> None:
    with_rooms(declared, 1)

    async def begin() -> None:
        service = load("rooms:rooms")
        await app_of(service).open()
        async with app_of(service).store.begin() as tx:
            begun = Generation(projection="rooms.listings", number=2, version=1, source="streams", phase="bulk", read=7)
            assert await app_of(service).store.projections.begin(tx, begun)
        await service.aclose()

    declared.forget()
    asyncio.run(begin())
    result = declared.run("projection", "status", "rooms")
    assert result.exit_code == 0
    assert "bulk, 7 events read" in result.stdout
    assert "generation 2 is half built" in result.stdout
    result = declared.run("projection", "drop", "rooms", "listings", input="n\n")
    assert result.exit_code == 1
    assert "it had no tables" in declared.run("projection", "drop", "rooms", "listings", "--yes").stdout
    result = declared.run("projection", "drop", "rooms", "listings", "--yes")
    assert (result.exit_code, "no rebuild is under way" in result.stderr) == (2, True)


def test_a_newer_version_in_the_code_is_said_with_the_command(declared: Project) -> None:
    with_rooms(declared, 1)
    declared.write("rooms.py", ROOMS.replace("lag_budget=5.0", "lag_budget=5.0, version=2"))
    result = declared.run("projection", "status", "rooms")
    assert result.exit_code == 1
    assert "of version 1, this is 2" in result.stdout
    assert "`posthouse projection rebuild … listings`" in result.stdout


def test_topology_leaves_the_groups_of_generations_alone(declared: Project) -> None:
    with_rooms(declared, 1)
    assert declared.run("projection", "rebuild", "rooms", "listings", "--grace", "0").exit_code == 0
    result = declared.run("topology", "plan", "rooms")
    assert result.exit_code == 0, result.output
    assert "listings" not in result.stdout


def test_a_read_model_is_not_moved_but_made_anew(declared: Project) -> None:
    result = declared.run("seek", "rooms", "--time", "2026-04-22T10:00:00Z", "--consumer", "listings", "--yes")
    assert result.exit_code == 2
    assert "rooms.listings is a read model: make it anew with `posthouse projection rebuild`" in result.stderr


def test_held_events_of_a_generation_can_be_asked_for(declared: Project) -> None:
    with_rooms(declared, 1)
    for group in ("rooms.listings", "rooms.listings.g2"):
        result = declared.run("held", "list", "rooms", "--consumer", group)
        assert result.exit_code == 0, result.output
    result = declared.run("held", "list", "rooms", "--consumer", "rooms.listings.2")
    assert result.exit_code == 2
    assert "rooms has no consumer 'rooms.listings.2'. Did you mean 'rooms.listings'?" in result.stderr


def test_a_read_model_that_is_fed_has_somebody_whichever_generation_is_live(declared: Project) -> None:
    with_rooms(declared, 1)
    declared.forget()

    async def look() -> None:
        service = load("rooms:rooms")
        async with service.running():
            table = app_of(service).store.workers
            await eventually(lambda: _runs(table))
            (found,) = await attendance([service], await status([service]))
            assert (found.idle, found.missing) == ([], [])
            (line,) = (await status([service])).lines
            assert line.consumer != "listings", "a generation has a group of its own"
        await service.aclose()
        (found,) = await attendance([service], await status([service]))
        assert found.idle == [line.consumer]
        await service.aclose()

    asyncio.run(look())


async def _runs(table: WorkerTable) -> bool:
    return any(is_running(worker) for worker in await table.read())
