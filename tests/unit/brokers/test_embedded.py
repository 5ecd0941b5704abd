"""What is special to the embedded log and needs no second process."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from posthouse.broker import Delivery, Frame, Stream, Topology
from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.clock import ManualClock, new_id
from posthouse.errors import BrokerError, BrokerUnavailable, ConfigurationError

DAY = 86_400.0
T = TypeVar("T")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
async def broker(path: Path, clock: ManualClock) -> AsyncIterator[EmbeddedBroker]:
    broker = EmbeddedBroker(path, clock=clock, retention=DAY)
    await broker.ensure(Topology(topics=["t"]))
    yield broker
    await broker.aclose()


async def publish(broker: EmbeddedBroker, count: int, *, key: str | None = "k") -> None:
    frames = [Frame(topic="t", id=new_id(), key=key, body=b"%d" % n) for n in range(count)]
    assert all(verdict.accepted for verdict in await broker.publish(frames))


def wal_size(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


async def take(stream: Stream, limit: int = 100) -> list[Delivery]:
    return list(await stream.receive(limit, 0))


async def test_a_log_of_a_newer_version_is_refused(path: Path, broker: EmbeddedBroker, clock: ManualClock) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ConfigurationError, match=r"newer Posthouse.*upgrade"):
        await EmbeddedBroker(path, clock=clock).publish([Frame(topic="t", id="1", body=b"")])


async def test_a_database_of_something_else_is_refused_and_left_alone(path: Path, clock: ManualClock) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE guests (name)")
    connection.close()
    with pytest.raises(ConfigurationError, match="something else"):
        await EmbeddedBroker(path, clock=clock).ensure(Topology(topics=["t"]))


@pytest.fixture
def letter(path: Path) -> Path:
    path.write_bytes(b"Dear Sir or Madam, " * 300)
    return path


async def test_a_file_that_is_no_database_is_unavailable_and_named(letter: Path, clock: ManualClock) -> None:
    with pytest.raises(BrokerUnavailable, match=r"log\.db.*not a database"):
        await EmbeddedBroker(letter, clock=clock).ensure(Topology(topics=["t"]))


async def test_a_misspelled_topic_gets_a_suggestion(broker: EmbeddedBroker) -> None:
    await broker.ensure(Topology(topics=["shop.orders"]))
    with pytest.raises(BrokerError, match=r"Did you mean 'shop\.orders'\?"):
        await broker.subscribe("g", ["shop.order"])


async def test_the_number_of_partitions_stays_what_it_was(
    path: Path, broker: EmbeddedBroker, clock: ManualClock
) -> None:
    other = EmbeddedBroker(path, clock=clock, partitions=3)
    await other.ensure(Topology(topics=["t"]))
    await other.publish([Frame(topic="t", id=str(n), body=b"") for n in range(100)])
    await other.aclose()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(DISTINCT partition) FROM frames").fetchone() == (8,)
    connection.close()


async def test_retention_deletes_what_is_old_and_acknowledged(broker: EmbeddedBroker, clock: ManualClock) -> None:
    stream = await broker.subscribe("g", ["t"])
    await publish(broker, 10)
    await stream.ack((await take(stream))[:6])
    assert await broker.prune() == 0, "too young"
    clock.advance(DAY + 1)
    assert await broker.prune(limit=4) == 4
    assert await broker.prune(limit=4) == 2
    assert await broker.prune() == 0, "the rest waits for its group"
    progress = (await broker.progress("g", ["t"]))["t"]
    assert (progress.stored, progress.pending, progress.truncated) == (10, 4, False)
    assert (await broker.progress("late", ["t"]))["t"].truncated


async def test_offsets_and_order_go_on_after_everything_was_deleted(broker: EmbeddedBroker, clock: ManualClock) -> None:
    stream = await broker.subscribe("g", ["t"])
    await publish(broker, 3)
    before = await take(stream)
    await stream.ack(before)
    clock.advance(DAY + 1)
    assert await broker.prune() == 3
    await publish(broker, 1)
    (after,) = await take(stream)
    assert isinstance(after.position, int)
    assert after.position > max(int(delivery.position) for delivery in before)
    assert not after.redelivered


async def test_publishing_prunes_now_and_then(broker: EmbeddedBroker, clock: ManualClock, path: Path) -> None:
    await publish(broker, 3)
    clock.advance(DAY + 1)
    await publish(broker, 1)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM frames").fetchone() == (1,)
    connection.close()


async def test_a_declared_group_keeps_its_frames_before_it_ever_reads(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    await broker.ensure(Topology(groups={"g": ["t"]}))
    await publish(broker, 3)
    clock.advance(DAY + 1)
    assert await broker.prune() == 0
    assert len(await take(await broker.subscribe("g", ["t"]))) == 3


async def test_a_declared_group_that_nobody_read_may_still_start_at_the_end(broker: EmbeddedBroker) -> None:
    await broker.ensure(Topology(groups={"g": ["t"]}))
    await publish(broker, 3)
    stream = await broker.subscribe("g", ["t"], start="latest")
    assert await take(stream) == []


async def test_an_heir_flags_exactly_what_the_dead_member_may_have_had(path: Path, broker: EmbeddedBroker) -> None:
    """The window that counts is the one of the member that died, not the heir's."""
    frozen = ManualClock()
    dead = EmbeddedBroker(path, clock=frozen)
    await publish(broker, 10)
    assert len(await take(await dead.subscribe("g", ["t"], window=4))) == 4
    frozen_heir_clock = ManualClock(frozen.now() + 7)
    heir_broker = EmbeddedBroker(path, clock=frozen_heir_clock)
    heir = await heir_broker.subscribe("g", ["t"], window=100)
    assert [delivery.redelivered for delivery in await take(heir)] == [True] * 4 + [False] * 6
    await heir_broker.aclose()
    await dead.aclose()


async def test_after_a_power_cut_everything_stored_counts_as_handed_out(path: Path, broker: EmbeddedBroker) -> None:
    """Acknowledgements may have been undone, so the cursor does not tell how far the dead member was."""
    dead = EmbeddedBroker(path, clock=ManualClock())
    await publish(broker, 10)
    await dead.subscribe("g", ["t"], window=4)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE cursors SET boot = 'the one before'")
    connection.close()
    heir_broker = EmbeddedBroker(path, clock=ManualClock(ManualClock().now() + 7))
    heir = await heir_broker.subscribe("g", ["t"])
    await publish(broker, 1)
    assert [delivery.redelivered for delivery in await take(heir)] == [True] * 10 + [False]
    await heir_broker.aclose()
    await dead.aclose()


async def test_a_member_whose_time_ran_out_looks_again_before_it_hands_out_more(path: Path, clock: ManualClock) -> None:
    sleeper_clock = ManualClock()
    sleeper, heir = EmbeddedBroker(path, clock=sleeper_clock), EmbeddedBroker(path, clock=clock)
    await sleeper.ensure(Topology(topics=["t"]))
    await publish(sleeper, 10)
    late = await sleeper.subscribe("g", ["t"])
    assert len(await take(late, 3)) == 3
    clock.advance(7)
    stream = await heir.subscribe("g", ["t"])
    assert len(await take(stream)) == 10
    sleeper_clock.advance(7)
    assert await take(late) == [], "the partition is the heir's now"
    await sleeper.aclose()
    await heir.aclose()


async def test_a_surplus_partition_is_handed_over_once_nothing_of_it_is_in_hand(
    path: Path, broker: EmbeddedBroker
) -> None:
    await publish(broker, 40, key=None)
    first = await broker.subscribe("g", ["t"])
    in_hand = await take(first, 40)
    await publish(broker, 40, key=None)
    second = await broker.subscribe("g", ["t"])
    assert await take(second) == [], "the first still works on every partition"
    own = await take(first)
    assert len(own) < 40, "it fetches no more of what it must give away"
    await first.ack(in_hand)
    handed_over = await take(second)
    assert len(own) + len(handed_over) == 40
    assert not any(delivery.redelivered for delivery in handed_over)


async def test_frames_handed_back_do_not_hold_up_a_handover(broker: EmbeddedBroker) -> None:
    await publish(broker, 40, key=None)
    first = await broker.subscribe("g", ["t"])
    in_hand = await take(first, 40)
    second = await broker.subscribe("g", ["t"])
    assert await take(first) == [], "it hears of the second"
    await first.nack(in_hand)
    handed_over = await take(second)
    assert handed_over
    assert all(delivery.redelivered for delivery in handed_over)
    assert len(handed_over) + len(await take(first)) == 40


async def test_an_ack_after_the_stream_closed_is_harmless(broker: EmbeddedBroker) -> None:
    stream = await broker.subscribe("g", ["t"])
    await publish(broker, 3)
    deliveries = await take(stream)
    await stream.aclose()
    await stream.ack(deliveries)
    await broker.aclose()
    await stream.ack(deliveries)
    await stream.nack(deliveries)


async def test_acks_of_many_tasks_share_a_commit(broker: EmbeddedBroker, path: Path) -> None:
    stream = await broker.subscribe("g", ["t"])
    await publish(broker, 100)
    deliveries = await take(stream)
    before = wal_size(path)
    await asyncio.gather(*(stream.ack([delivery]) for delivery in deliveries))
    assert wal_size(path) - before < 10 * 4096
    assert (await broker.progress("g", ["t"]))["t"].pending == 0


async def test_a_seek_to_nonsense_is_refused(broker: EmbeddedBroker) -> None:
    with pytest.raises(BrokerError, match="whole numbers"):
        await broker.seek("g", "t", position="first")
    with pytest.raises(BrokerError, match="either"):
        await broker.seek("g", "t")
    with pytest.raises(BrokerError, match="does not exist"):
        await broker.seek("g", "u", position=1)


async def test_a_closed_broker_says_so(broker: EmbeddedBroker) -> None:
    stream = await broker.subscribe("g", ["t"])
    await broker.aclose()
    with pytest.raises(BrokerUnavailable, match="closed"):
        await publish(broker, 1)
    with pytest.raises(BrokerError, match="closed"):
        await stream.receive(1, 0)


async def test_a_row_deleted_by_hand_holds_up_nobody(broker: EmbeddedBroker, path: Path) -> None:
    await publish(broker, 5)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM frames WHERE number = 3")
    connection.close()
    stream = await broker.subscribe("g", ["t"])
    deliveries = await take(stream)
    assert len(deliveries) == 4
    await stream.ack(deliveries)
    assert (await broker.progress("g", ["t"]))["t"].pending == 0


async def test_a_read_that_fails_loses_nothing(broker: EmbeddedBroker, path: Path) -> None:
    await publish(broker, 5)
    stream = await broker.subscribe("g", ["t"])
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE frames RENAME COLUMN body TO hidden")
    connection.close()
    with pytest.raises(BrokerUnavailable, match="receiving"):
        await take(stream)
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE frames RENAME COLUMN hidden TO body")
    connection.close()
    assert [delivery.frame.body for delivery in await take(stream)] == [b"0", b"1", b"2", b"3", b"4"]


# A file that is put back, taken away, or held by somebody


def copied(path: Path, to: Path) -> None:
    """A backup, as SQLite makes one."""
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)


def put_back(backup: Path, path: Path) -> None:
    """As an operator should: the file, and nothing of what lay beside the old one."""
    for name in (f"{path}-wal", f"{path}-shm", str(path)):
        Path(name).unlink(missing_ok=True)
    backup.rename(path)


def moved(path: Path, to: Path) -> None:
    assert not to.exists()
    path.rename(to)


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """As relay and consumer do: again, after an outcome that nobody knows."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await call()
            except BrokerUnavailable:
                await asyncio.sleep(0.01)


async def test_a_log_that_is_put_back_under_running_processes_swallows_nothing(
    path: Path, tmp_path: Path, broker: EmbeddedBroker, clock: ManualClock
) -> None:
    publisher = EmbeddedBroker(path, clock=clock, retention=DAY)
    stream = await broker.subscribe("g", ["t"])
    await publish(publisher, 5)
    await stream.ack(await take(stream, 3))
    copied(path, tmp_path / "backup.db")
    await stream.ack(await take(stream))
    await publish(publisher, 40)
    await stream.ack(await take(stream))
    put_back(tmp_path / "backup.db", path)
    sent = [Frame(topic="t", id=f"new-{n}", key="k", body=b"") for n in range(20)]
    verdicts = await insist(lambda: publisher.publish(sent))
    assert all(verdict.accepted for verdict in verdicts)
    got: list[Delivery] = []
    async with asyncio.timeout(20):
        while len(got) < 22:
            batch = await insist(lambda: stream.receive(100, 0.1))
            await stream.ack(batch)
            got += batch
    assert [delivery.frame.body for delivery in got[:2]] == [b"3", b"4"], "acknowledged since the backup was made"
    assert all(delivery.redelivered for delivery in got[:2])
    assert [delivery.frame.id for delivery in got[2:]] == [frame.id for frame in sent]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM frames WHERE id LIKE 'new-%'").fetchone() == (20,)
    await publisher.aclose()


class SameFile:
    """A log that is taken away and comes back as the very same file, number and all, as a filesystem gives a new file the
    number of one that was deleted."""

    def __init__(self, path: Path, backup: Path) -> None:
        self._path, self._backup, self._kept = path, backup, path.with_suffix(".kept")

    def take_away(self) -> None:
        self._kept.hardlink_to(self._path)
        for name in (f"{self._path}-wal", f"{self._path}-shm", str(self._path)):
            Path(name).unlink(missing_ok=True)

    def put_back(self) -> None:
        before = self._kept.stat().st_ino
        self._kept.write_bytes(self._backup.read_bytes())
        self._kept.rename(self._path)
        assert self._path.stat().st_ino == before


async def notices(broker: EmbeddedBroker) -> None:
    """It has seen that the file is gone, and closed what it had open."""
    with pytest.raises(BrokerUnavailable, match="taken away"):
        await broker.progress("g", ["t"])


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside another process"])
@pytest.mark.parametrize("more", [0, 1, 5, 20], ids=lambda more: f"{more} more")
async def test_a_copy_under_the_number_of_the_old_file_hides_nothing_from_a_member_that_was_ahead(
    path: Path, tmp_path: Path, broker: EmbeddedBroker, clock: ManualClock, alone: bool, more: int
) -> None:
    publisher = broker if alone else EmbeddedBroker(path, clock=clock, retention=DAY)
    stream = await broker.subscribe("g", ["t"])
    await publish(publisher, 5)
    await stream.ack(await take(stream))
    copied(path, tmp_path / "backup.db")
    await publish(publisher, 5)
    await stream.ack(await take(stream))
    file = SameFile(path, tmp_path / "backup.db")
    file.take_away()
    for each in {broker, publisher}:
        await notices(each)
    file.put_back()
    sent = [Frame(topic="t", id=f"new-{n}", key="k", body=b"") for n in range(more)]
    assert all(verdict.accepted for verdict in await insist(lambda: publisher.publish(sent)))
    got: list[Delivery] = []
    async with asyncio.timeout(20):
        while len(got) < more or (await broker.progress("g", ["t"]))["t"].pending:
            batch = await insist(lambda: stream.receive(100, 0.1))
            await stream.ack(batch)
            got += batch
    assert [delivery.frame.id for delivery in got] == [frame.id for frame in sent]
    assert (await broker.progress("g", ["t"]))["t"].stored == 5 + more
    await publisher.aclose()


async def test_a_log_that_comes_back_as_it_was_costs_nothing_but_time(
    path: Path, broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    stream = await broker.subscribe("g", ["t"])
    await publish(broker, 6)
    in_hand = await take(stream, 4)
    away = path.with_suffix(".away")
    moved(path, away)
    await notices(broker)
    moved(away, path)
    rest = await take(stream)
    assert [delivery.frame.body for delivery in rest] == [b"4", b"5"], "what is in hand does not come again"
    assert not any(delivery.redelivered for delivery in rest)
    await stream.ack([*in_hand, *rest])
    assert (await broker.progress("g", ["t"]))["t"].pending == 0
    assert "begins anew" not in caplog.text


async def test_acknowledgements_that_a_copy_does_not_know_are_said_again(
    path: Path, tmp_path: Path, broker: EmbeddedBroker
) -> None:
    stream = await broker.subscribe("g", ["t"])
    await publish(broker, 5)
    got = await take(stream)
    copied(path, tmp_path / "backup.db")
    await stream.ack(got)
    file = SameFile(path, tmp_path / "backup.db")
    file.take_away()
    await notices(broker)
    file.put_back()
    assert (await broker.progress("g", ["t"]))["t"].pending == 5
    async with asyncio.timeout(20):
        while (await broker.progress("g", ["t"]))["t"].pending:
            assert await stream.receive(10, 0.01) == []
            await stream.ack([])


async def test_a_new_wal_under_the_number_of_the_old_one_is_not_taken_for_it(
    path: Path, tmp_path: Path, broker: EmbeddedBroker, clock: ManualClock
) -> None:
    copied(path, tmp_path / "backup.db")
    await publish(broker, 3)
    wal, kept = Path(f"{path}-wal"), tmp_path / "kept"
    kept.hardlink_to(wal)
    moved(path, tmp_path / "old.db")
    await notices(broker)
    put_back(tmp_path / "backup.db", path)
    other = EmbeddedBroker(path, clock=clock, retention=DAY)
    await publish(other, 2)
    await other.aclose()  # and with it goes its WAL
    kept.write_bytes(b"")
    kept.rename(wal)
    other = EmbeddedBroker(path, clock=clock, retention=DAY)
    await publish(other, 1)
    await insist(lambda: publish(broker, 1))
    assert (await broker.progress("g", ["t"]))["t"].stored == 4
    await other.aclose()


async def test_a_log_with_other_topics_that_is_put_back_gets_each_frame_into_its_own(
    path: Path, tmp_path: Path, broker: EmbeddedBroker, clock: ManualClock
) -> None:
    other = EmbeddedBroker(tmp_path / "other.db", clock=clock)
    await other.ensure(Topology(topics=["x", "y", "t"]))
    await other.aclose()
    stream = await broker.subscribe("g", ["t"])
    await publish(broker, 3)
    assert len(await take(stream)) == 3
    put_back(tmp_path / "other.db", path)
    await insist(lambda: broker.publish([Frame(topic="t", id="new", key="k", body=b"")]))
    async with asyncio.timeout(20):
        while not (got := await insist(lambda: stream.receive(10, 0.1))):
            pass
    assert [delivery.frame.id for delivery in got] == ["new"]
    await stream.ack(got)
    assert (await broker.progress("g", ["t"]))["t"].pending == 0


async def test_a_log_that_is_taken_away_is_refused_and_not_made_anew(path: Path, broker: EmbeddedBroker) -> None:
    stream = await broker.subscribe("g", ["t"])
    await publish(broker, 3)
    away = path.with_suffix(".away")
    moved(path, away)
    for _ in range(2):
        with pytest.raises(BrokerUnavailable, match="taken away"):
            await publish(broker, 1)
        with pytest.raises(BrokerUnavailable, match="taken away"):
            await stream.receive(1, 0)
    moved(away, path)  # where nothing has been made meanwhile
    await publish(broker, 1)
    assert [delivery.frame.body for delivery in await take(stream)] == [b"0", b"1", b"2", b"0"]


async def test_a_log_that_is_put_back_beside_the_wal_of_the_old_one_is_refused(
    path: Path, tmp_path: Path, broker: EmbeddedBroker
) -> None:
    """SQLite would take that WAL for the new file's own."""
    copied(path, tmp_path / "backup.db")
    await publish(broker, 3)
    (tmp_path / "backup.db").rename(path)
    for _ in range(2):
        with pytest.raises(BrokerUnavailable, match="WAL of the old one"):
            await publish(broker, 1)
    moved(path, tmp_path / "backup.db")
    put_back(tmp_path / "backup.db", path)
    await insist(lambda: publish(broker, 1))
    assert (await broker.progress("g", ["t"]))["t"].stored == 1


async def test_a_frame_that_was_written_while_the_file_was_replaced_is_not_accepted(
    path: Path, tmp_path: Path, broker: EmbeddedBroker
) -> None:
    copied(path, tmp_path / "backup.db")
    await publish(broker, 1)

    async def publish_too_late() -> None:
        async with broker._file.write("publishing") as connection:
            broker._append(connection, [Frame(topic="t", id="late", key="k", body=b"")])
            put_back(tmp_path / "backup.db", path)

    with pytest.raises(BrokerUnavailable, match="replaced"):
        await publish_too_late()
    assert (await broker.progress("g", ["t"]))["t"].stored == 0


async def test_stopping_takes_little_time_while_another_process_holds_the_write_lock(
    path: Path, clock: ManualClock, broker: EmbeddedBroker
) -> None:
    stopping = EmbeddedBroker(path, clock=clock)
    streams = [await stopping.subscribe(f"g{n}", ["t"]) for n in range(3)]
    await publish(broker, 3)
    for stream in streams:
        await take(stream)
    publishing = asyncio.create_task(stopping.publish([Frame(topic="t", id="1", key="k", body=b"")]))
    loop = asyncio.get_running_loop()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        await asyncio.sleep(0)
        began = loop.time()
        async with asyncio.timeout(20):
            await stopping.aclose()
        assert loop.time() - began < 5.0
        other.execute("ROLLBACK")
    with pytest.raises(BrokerUnavailable):
        await publishing


async def test_a_cursor_behind_the_end_is_noticed_and_hides_nothing(path: Path, broker: EmbeddedBroker) -> None:
    stream = await broker.subscribe("g", ["t"])
    await publish(broker, 5)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE cursors SET acked = 500")
    (noticed,) = [check for check in await broker.checks() if check.name == "cursors"]
    assert noticed.judgement == "warn"
    await stream.aclose()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE cursors SET acked = 500")
    stream = await broker.subscribe("g", ["t"])
    got = await take(stream)
    assert [(delivery.frame.body, delivery.redelivered) for delivery in got] == [(b"%d" % n, True) for n in range(5)]
    await stream.ack(got)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM frames WHERE number > 2")
        connection.execute("UPDATE heads SET stored = 2 WHERE stored = 5")
    assert [delivery.frame.body for delivery in await take(stream)] == [b"0", b"1"], "under a member at work too"
    (noticed,) = [check for check in await broker.checks() if check.name == "cursors"]
    assert noticed.judgement == "ok"


async def test_a_member_that_was_replaced_acknowledges_nothing_though_its_epoch_is_given_again(
    path: Path, broker: EmbeddedBroker
) -> None:
    """As after a restore: another member has the same epoch."""
    stream = await broker.subscribe("g", ["t"])
    await publish(broker, 5)
    handed = await take(stream)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE cursors SET owner = 'another'")
    await stream.ack(handed)
    assert (await broker.progress("g", ["t"]))["t"].pending == 5


async def test_a_subscribe_that_fails_half_way_leaves_nothing(path: Path, broker: EmbeddedBroker) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TRIGGER broken BEFORE UPDATE OF owner ON cursors BEGIN SELECT raise(ABORT, 'no'); END"
        )
    for _ in range(3):
        with pytest.raises(BrokerError):
            await broker.subscribe("g", ["t"])
    assert broker._streams == set()
    assert [task for task in asyncio.all_tasks() if "member of g" in task.get_name()] == []
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("SELECT count(*) FROM members").fetchone() == (0,)
        connection.execute("DROP TRIGGER broken")
    await publish(broker, 1)
    assert len(await take(await broker.subscribe("g", ["t"]))) == 1


async def test_the_end_of_a_members_background_work_is_told(broker: EmbeddedBroker, clock: ManualClock) -> None:
    stream = await broker.subscribe("g", ["t"])

    async def broken() -> None:
        raise RuntimeError("nobody expected this")

    stream._on_beat = broken
    async with asyncio.timeout(20):
        while stream._beating is not None and not stream._beating.done():
            clock.advance(10.0)
            await asyncio.sleep(0.01)
    with pytest.raises(BrokerError, match="subscribe again"):
        await stream.receive(1, 0)
    with pytest.raises(BrokerError, match="subscribe again"):
        await stream.ack([])
