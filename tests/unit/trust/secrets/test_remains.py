"""The proof of an erasure looks at every place that there is, and what could not be looked at is not proven."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from posthouse import App, Settings
from posthouse.clock import new_id
from posthouse.erasure import erase, prove
from posthouse.history.archive.reading import Range
from posthouse.history.archive.settings import ArchiveSettings
from posthouse.history.audit.place import open_place
from posthouse.history.audit.settings import Audit
from posthouse.history.sweep import Sweep
from posthouse.remains import Found
from posthouse.store import Action, HeldFilter
from posthouse.store.jobs import Job
from posthouse.store.replays import Staged
from tests.kit.guests import Hotel
from tests.kit.signing import Keys
from tests.kit.waiting import eventually


class Kept(Hotel):
    """A hotel that keeps what it said in every place that there is; `secret` or as it was before secrets."""

    def __init__(self, folder: Path, *, secret: bool = True, broker: str = "") -> None:
        super().__init__(folder)
        self.fails = True
        self.app = App(
            self.service,
            store=f"sqlite:///{folder}/hotel.db",
            broker=broker or f"embedded:///{folder}/log.db",
            secrets=self.secrets if secret else None,
            archive=f"file://{folder}/archive",
            audit=Audit(place=f"{folder}/audit", keys=folder / "keys.toml", classes=("hot", "warm", "cold")),
            settings=Settings(archive=ArchiveSettings(every=0.1), archive_rows=f"file://{folder}/rows"),
        )

    async def places(self) -> dict[str, Found]:
        return {one.place: one for one in await prove(self.app, "t1", "g1")}


@pytest.fixture
def kept(tmp_path: Path) -> Callable[..., Kept]:
    keys = Keys(tmp_path)
    keys.make("audit-1", "/hotel", use="audit")
    return lambda **more: Kept(tmp_path, **more)


async def _said_everywhere(hotel: Kept) -> None:
    """One event, in each place."""
    app = hotel.app
    async with app.running():
        await hotel.register("g1", "Ada")
        archive = app.archive
        assert archive is not None
        (held,) = await eventually(lambda: app.store.held.find(HeldFilter(state="dead")))
        await app.held.skip(held.id)
        await eventually(lambda: archive.count(Range(types=["hotel.guest.registered.v1"])))
        await eventually(lambda: any(file.is_file() for file in Path(hotel.folder, "audit", "events").rglob("*")))
        (row, *_) = [one for one in await app.store.outbox.kept(0, 10) if one.topic.endswith("guest")]
        job = Job(id=new_id(), service="hotel", act="replay", parameters=b"{}", by="ada", why="ticket 7")
        async with app.store.begin() as tx:
            await app.store.jobs.add(tx, job)
            event = Staged(
                job=job.id, topic=row.topic, tenant="t1", event_id=row.event_id, key="g1", sequence=1,
                headers=row.headers, body=row.body, again=True,
            )  # fmt: skip
            await app.store.replays.stage(tx, [event])
    sweep = Sweep(app.store, 0.0, 0.0, open_place(f"{hotel.folder}/rows"))
    assert (await sweep.held())[0] == 1


ALSO = ("archive", "archived rows", "audit log", "replays")


async def test_what_was_never_encrypted_is_found_wherever_it_is_kept(kept: Callable[..., Kept]) -> None:
    before = kept(secret=False)
    await _said_everywhere(before)
    await before.app.aclose()
    hotel = kept()
    done = await erase(hotel.service, "t1", "g1", why="asked")
    await hotel.app.aclose()
    found = {one.place: one.plain for one in done.places}
    assert {place: found[place] for place in ALSO} == dict.fromkeys(ALSO, 2)
    assert not done.proven
    assert not done.unseen


async def test_what_was_encrypted_is_found_there_and_opens_no_more(kept: Callable[..., Kept]) -> None:
    hotel = kept()
    await _said_everywhere(hotel)
    before = await hotel.places()
    assert {place: before[place].opened for place in ALSO} == dict.fromkeys(ALSO, 2)
    done = await erase(hotel.service, "t1", "g1", why="asked")
    await hotel.app.aclose()
    found = {one.place: (one.boxes, one.opened, one.plain) for one in done.places}
    assert {place: found[place] for place in ALSO} == dict.fromkeys(ALSO, (2, 0, 0))
    assert done.proven, done.places


async def test_encrypted_values_among_words_are_found(kept: Callable[..., Kept]) -> None:
    hotel = kept()
    await hotel.register("g1", "Ada")
    (row,) = await hotel.app.store.outbox.kept(0, 10)
    box = msgspec.json.decode(row.body)["data"]["name"]
    store = hotel.app.store
    async with store.begin() as tx:
        await store.actions.add(tx, Action(verb="held edit", tenant="t1", changed={"data.name": (None, box)}))
        await store.actions.add(tx, Action(verb="held edit", tenant="t2", changed={"data.name": (None, box)}))
        job = Job(id=new_id(), service="hotel", act="skip", parameters=msgspec.json.encode([box]), by="ada", why="x")
        await store.jobs.add(tx, job)
    found = await hotel.places()
    assert [(found[one].boxes, found[one].opened) for one in ("operators' log", "jobs")] == [(1, 1), (1, 1)]
    done = await erase(hotel.service, "t1", "g1", why="asked")
    assert [(one.boxes, one.opened) for one in done.places if one.place in found and "only" in one.note] == [(1, 0)] * 2
    await hotel.app.aclose()


@pytest.mark.parametrize("place", ["archive", "archived rows", "audit log"])
async def test_a_place_that_cannot_be_read_proves_nothing(kept: Callable[..., Kept], place: str) -> None:
    hotel = kept()
    await _said_everywhere(hotel)
    folder = hotel.folder / {"archive": "archive", "archived rows": "rows", "audit log": "audit/events"}[place]
    for file in [*folder.rglob("*")]:
        if file.is_file():
            file.write_bytes(b"what is this")
    done = await erase(hotel.service, "t1", "g1", why="asked")
    await hotel.app.aclose()
    assert (done.unseen, done.proven) == ([place], False)


async def test_a_log_that_nobody_can_read_proves_nothing(
    kept: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    hotel = kept()
    await hotel.register("g1", "Ada")
    monkeypatch.setattr("posthouse.remains.refusal", lambda broker: "it cannot forget a reader")
    done = await erase(hotel.service, "t1", "g1", why="asked")
    await hotel.app.aclose()
    assert (done.unseen, done.proven) == (["log"], False)


async def test_a_broker_that_keeps_no_log_is_named_and_keeps_nothing_to_prove(
    kept: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    hotel = kept()
    await hotel.register("g1", "Ada")
    queue = msgspec.structs.replace(hotel.app.broker.sheet, history=False)
    monkeypatch.setattr(hotel.app.broker, "sheet", queue)
    done = await erase(hotel.service, "t1", "g1", why="asked")
    await hotel.app.aclose()
    (log,) = [found for found in done.places if found.place == "log"]
    assert "keeps no log" in log.note
    assert done.proven, done.places
