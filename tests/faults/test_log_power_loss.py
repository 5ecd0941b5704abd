"""Fault 22: the power goes while the embedded log is written.

The broker runs on a disk that remembers every write and every sync. Then, for every moment of that history, the files are
built as a disk may have left them: all that was synced, and of the rest nothing, everything, or some of it with the
last write torn. Each of these images must open, hold every acknowledged frame whole, and know of no frame or
acknowledgement that never was.
"""

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

from posthouse.broker import Frame, Topology
from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.brokers.embedded import client as log_file
from posthouse.clock import ManualClock, SystemClock
from posthouse.local.sqlite import Checkpointer, Synchronous

SECTOR = 512


class Write(NamedTuple):
    file: str
    offset: int
    data: bytes


class Truncate(NamedTuple):
    file: str
    size: int


class Sync(NamedTuple):
    file: str


class Delete(NamedTuple):
    file: str


class Promise(NamedTuple):
    """What the broker had said by this moment: ids `stored`, `settled` (about to be acknowledged), `prunable`."""

    what: str
    ids: frozenset[str]


Change = Write | Truncate
Step = Write | Truncate | Sync | Delete | Promise


class RecordedFile(apsw.VFSFile):
    def __init__(self, name: apsw.URIFilename | str | None, flags: list[int], history: list[Step]) -> None:
        super().__init__("", name, flags)
        full = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._name, self._history = Path(full or "").name, history

    def xWrite(self, data: Any, offset: int) -> None:
        self._history.append(Write(self._name, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self._history.append(Truncate(self._name, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._history.append(Sync(self._name))


class RecordingDisk(apsw.VFS):
    """Passes everything on to the real disk."""

    def __init__(self, history: list[Step]) -> None:
        self._history = history
        super().__init__("recording", "")

    def xOpen(self, name: apsw.URIFilename | str | None, flags: list[int]) -> RecordedFile:
        return RecordedFile(name, flags, self._history)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self._history.append(Delete(Path(filename).name))


class RecordedConnection:
    """As much of sqlite3.Connection as the broker uses, on the recording disk."""

    def __init__(self, path: Path, *, synchronous: Synchronous) -> None:
        self._connection = apsw.Connection(str(path), vfs="recording")
        for pragma in ("journal_mode=WAL", f"synchronous={synchronous}", "mmap_size=0", "wal_autocheckpoint=0"):
            self._connection.execute(f"PRAGMA {pragma}")

    def execute(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> apsw.Cursor:
        return self._connection.cursor().execute(sql, parameters if isinstance(parameters, dict) else tuple(parameters))

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]]) -> apsw.Cursor:
        return self._connection.cursor().executemany(sql, [tuple(row) for row in parameters])

    @property
    def total_changes(self) -> int:
        return self._connection.total_changes()

    def close(self) -> None:
        self._connection.close()


def body(id_: str) -> bytes:
    return id_.encode() * (1 + int(id_) % 7 * 60)


async def workload(path: Path, history: list[Step], *, synchronous: Synchronous) -> None:
    """Publishing, receiving, acknowledging and pruning, with checkpoints in between."""
    clock, rng = ManualClock(), random.Random(22)
    broker = EmbeddedBroker(path, clock=clock, partitions=2, retention=5.0, synchronous=synchronous)
    await broker.ensure(Topology(topics=["t"]))
    stream = await broker.subscribe("g", ["t"])
    settled = set[str]()
    for turn in range(30):
        ids = [f"{turn * 10 + n}" for n in range(rng.randint(1, 4))]
        frames = [Frame(topic="t", id=id_, key=f"k{n}", body=body(id_)) for n, id_ in enumerate(ids)]
        verdicts = await broker.publish([*frames, Frame(topic="nowhere", id="999", body=b"refused")])
        assert [verdict.accepted for verdict in verdicts] == [True] * len(ids) + [False]
        history.append(Promise("stored", frozenset(ids)))
        if turn % 2:
            deliveries = list(await stream.receive(rng.randint(1, 6), 0))
            settled |= {delivery.frame.id for delivery in deliveries}
            history.append(Promise("settled", frozenset(settled)))
            await stream.ack(deliveries)
        if turn % 10 == 9:
            history.append(Promise("prunable", frozenset(settled)))
            clock.advance(6)
            await broker.prune()
    await broker.aclose()


@contextlib.contextmanager
def recording(history: list[Step], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    disk = RecordingDisk(history)
    monkeypatch.setattr(log_file, "connect", RecordedConnection)
    monkeypatch.setattr(log_file, "Checkpointer", partial(Checkpointer, pages=100, growth=50_000, most=150_000))
    yield
    monkeypatch.undo()
    disk.unregister()


def record(path: Path, monkeypatch: pytest.MonkeyPatch, *, synchronous: Synchronous = "FULL") -> list[Step]:
    history: list[Step] = []
    with recording(history, monkeypatch):
        asyncio.run(workload(path, history, synchronous=synchronous))
    return history


class Disk:
    """What is certainly on the disk, and what was written since each file's last sync."""

    def __init__(self) -> None:
        self.synced: dict[str, bytearray] = {}
        self.pending: dict[str, list[Change]] = {}
        self.promised: dict[str, frozenset[str]] = dict.fromkeys(("stored", "settled", "prunable"), frozenset())

    def step(self, step: Step) -> None:
        match step:
            case Write() | Truncate():
                self.synced.setdefault(step.file, bytearray())
                self.pending.setdefault(step.file, []).append(step)
            case Sync():
                for change in self.pending.pop(step.file, []):
                    apply(self.synced[step.file], change)
            case Delete():
                self.synced.pop(step.file, None)
                self.pending.pop(step.file, None)
            case Promise():
                self.promised[step.what] |= step.ids

    def image(self, survivors: dict[str, list[Change]]) -> dict[str, bytearray]:
        files = {name: bytearray(content) for name, content in self.synced.items()}
        for name, changes in survivors.items():
            for change in changes:
                apply(files[name], change)
        return files

    def images(self, rng: random.Random) -> Iterator[dict[str, bytearray]]:
        yield self.image({})
        if any(self.pending.values()):
            yield self.image(self.pending)
            yield self.image({name: some_of(changes, rng) for name, changes in self.pending.items()})


def apply(content: bytearray, change: Change) -> None:
    if isinstance(change, Truncate):
        del content[change.size :]
    else:
        content.extend(bytes(max(0, change.offset - len(content))))
        content[change.offset : change.offset + len(change.data)] = change.data


def some_of(changes: list[Change], rng: random.Random) -> list[Change]:
    """A disk may write in any order: each change survives or not, and the last survivor is torn at a sector."""
    kept = [change for change in changes if rng.random() < 0.6]
    if kept and isinstance(last := kept[-1], Write):
        sectors = len(last.data) // SECTOR
        kept[-1] = last._replace(data=last.data[: SECTOR * rng.randint(0, sectors)])
    return kept


def lay_out(files: dict[str, bytearray], folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder / "log.db"


def check(log: Path, promised: dict[str, frozenset[str]]) -> None:
    connection = sqlite3.connect(log)
    try:
        connection.execute("PRAGMA synchronous = OFF")  # the image is thrown away: no need to wait for the real disk
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'frames'").fetchall():
            assert not promised["stored"], "the log is gone"
            return
        rows = connection.execute("SELECT id, body, partition, number FROM frames ORDER BY number").fetchall()
        heads = dict(connection.execute("SELECT partition, stored FROM heads").fetchall())
        acked = dict(connection.execute("SELECT partition, acked FROM cursors").fetchall())
    finally:
        connection.close()
    there = {row[0] for row in rows}
    assert promised["stored"] - promised["prunable"] <= there, "an acknowledged frame is lost"
    assert "999" not in there, "a refused frame is there"
    for id_, content, partition, number in rows:
        assert content == body(id_), "a torn frame would be served"
        assert number <= heads[partition]
        assert number > acked.get(partition, 0) or id_ in promised["settled"], "a cursor passed what nobody settled"


async def carry_on(log: Path, promised: dict[str, frozenset[str]]) -> None:
    """After the lights come back, a broker serves what was promised and takes more."""
    broker = EmbeddedBroker(log, clock=SystemClock())
    stream = await broker.subscribe("g", ["t"])
    got = {delivery.frame.id for delivery in await stream.receive(1000, 0)}
    assert promised["stored"] - promised["settled"] <= got
    assert (await broker.publish([Frame(topic="t", id="1000", key="k1", body=b"more")]))[0].accepted
    assert [delivery.frame.id for delivery in await stream.receive(1, 5)] == ["1000"]
    await broker.aclose()


def test_every_acknowledged_frame_survives_a_power_cut_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = record(tmp_path / "log.db", monkeypatch)
    assert Truncate("log.db-wal", 0) in history, "a truncating checkpoint is part of the history"
    assert sum(step == Sync("log.db") for step in history) >= 4, "and so are some that keep the WAL"
    disk, rng, images = Disk(), random.Random(22), 0
    for moment, step in enumerate(history):
        disk.step(step)
        for files in disk.images(rng):
            images += 1
            log = lay_out(files, tmp_path / "image")
            check(log, disk.promised)
        if moment % 40 == 39 and disk.promised["stored"]:
            asyncio.run(carry_on(lay_out(disk.image({}), tmp_path / "image"), disk.promised))
    assert images > 500
    assert len(disk.promised["stored"]) > 50


def test_the_check_finds_what_a_log_without_full_sync_loses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = record(tmp_path / "log.db", monkeypatch, synchronous="NORMAL")
    with pytest.raises(AssertionError, match=r"an acknowledged frame is lost|the log is gone"):
        cut_without_pending_writes(history, tmp_path / "image")


def cut_without_pending_writes(history: list[Step], folder: Path) -> None:
    disk = Disk()
    for step in history:
        disk.step(step)
        check(lay_out(disk.image({}), folder), disk.promised)
