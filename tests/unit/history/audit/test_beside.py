"""An archive is held against the log: what is another event there, or is missing, is named."""

from __future__ import annotations

from pathlib import Path

from posthouse.broker import Frame
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import ManualClock
from posthouse.history.archive.opening import reader_of
from posthouse.history.archive.places import open_place
from posthouse.history.audit.batches import travelled
from posthouse.history.audit.beside import beside
from posthouse.history.audit.log import AuditLog
from posthouse.history.audit.places.folder import Folder
from posthouse.stores.sqlite import SqliteStore
from tests.kit.archives import member, published, until_archived


async def test_an_archive_holds_what_was_logged_or_the_event_is_named(tmp_path: Path) -> None:
    clock = ManualClock()
    broker, place = MemoryBroker(clock=clock), open_place(f"file://{tmp_path}/archive")
    store = SqliteStore(tmp_path / "store.db", clock=clock)
    await store.upgrade()
    frames = await published(broker, 6)
    await until_archived(broker, clock, member(broker, place, store.archives, clock))
    await store.aclose()
    log, reader = AuditLog(Folder(tmp_path / "log")), reader_of(place)
    log.append([travelled(frame) for frame in frames])
    assert await beside(log.place, reader) == []
    one = frames[2]
    other = Frame(topic=one.topic, id="more", body=b"{}", key=one.key)
    changed = Frame(topic=one.topic, id=one.id, body=b"{}", key=one.key, headers=one.headers)
    log = AuditLog(Folder(tmp_path / "another"))
    log.append([travelled(frame) for frame in (*frames[:2], changed, *frames[3:], other)])
    assert [(finding.kind, finding.id) for finding in await beside(log.place, reader)] == [
        ("changed", one.id),
        ("removed", "more"),
    ]
    log = AuditLog(Folder(tmp_path / "third"))
    headers = {**one.headers, "trace": "a"}
    log.append([travelled(Frame(topic=one.topic, id=one.id, body=one.body, key="", headers=headers)), travelled(one)])
    [finding] = await beside(log.place, reader)
    assert finding.words == (
        f"event {one.id}, logged at position 0, is another one in the archive: its key is {one.key!r} there, and '' was logged; "
        "its header 'trace' is missing there"
    )
