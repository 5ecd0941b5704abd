"""A stream grows by one writer at a time, without gaps, and all of them can be read from the beginning."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from posthouse.clock import new_id
from posthouse.errors import StreamArchived, StreamClosed, StreamDeleted, VersionConflict
from posthouse.store import Store
from posthouse.store.streams import Snapshot, Stream, StreamEvent, StreamHead
from posthouse.testing.store_contract.fixtures import StoreFixtures
from posthouse.testing.store_contract.steps import failing

ALIKE = {"content-type": "application/cloudevents+json"}
FOLIO = Stream("t1", "folio", "f1")


class StreamContract(StoreFixtures):
    """What `StreamTable` promises inside a transaction."""

    async def test_a_stream_reads_as_it_was_appended(self, store: Store, other: Store) -> None:
        events = [*facts(2), *facts(1, after=2, headers={"content-type": "a/b"}, body=b"\x00\xff")]
        await append(store, *events[:2])
        await append(other, *events[2:])
        async with store.begin() as tx:
            found = await store.streams.read(tx, FOLIO)
        assert [columns(event) for event in found] == [columns(event) for event in events]
        assert len({event.position for event in found}) == 3
        assert sorted(found, key=lambda event: event.position) == found

    async def test_a_stream_is_read_behind_a_version_and_up_to_a_limit(self, store: Store) -> None:
        await append(store, *facts(5))
        async with store.begin() as tx:
            assert [event.version for event in await store.streams.read(tx, FOLIO, after=2)] == [3, 4, 5]
            assert [event.version for event in await store.streams.read(tx, FOLIO, limit=2)] == [1, 2]
            assert await store.streams.read(tx, FOLIO, after=5) == []

    async def test_a_transaction_reads_what_it_has_appended(self, store: Store) -> None:
        async with store.begin() as tx:
            assert await store.streams.version(tx, FOLIO) == 0
            await store.streams.append(tx, facts(2))
            await store.streams.append(tx, facts(1, after=2))
            assert await store.streams.version(tx, FOLIO, hold=True) == 3
            assert len(await store.streams.read(tx, FOLIO)) == 3

    async def test_a_conflict_names_the_stream_and_both_versions_and_leaves_the_transaction_usable(
        self, store: Store
    ) -> None:
        await append(store, *facts(3))
        async with store.begin() as tx:
            for expected in (0, 2, 4):
                with pytest.raises(VersionConflict) as raised:
                    await store.streams.append(tx, facts(2, after=expected))
                assert (raised.value.expected, raised.value.found) == (expected, 3)
                assert "folio 'f1' of tenant 't1'" in str(raised.value)
            await store.streams.append(tx, facts(1, after=3))
        assert await versions(store) == [1, 2, 3, 4]

    async def test_a_stream_that_is_not_there_cannot_be_continued(self, store: Store) -> None:
        async with store.begin() as tx:
            with pytest.raises(VersionConflict) as raised:
                await store.streams.append(tx, facts(1, after=7))
            assert raised.value.found == 0
            assert await store.streams.version(tx, FOLIO) == 0

    async def test_what_is_rolled_back_was_never_in_the_stream(self, store: Store) -> None:
        await append(store, *facts(1))
        async with failing(store) as tx:
            await store.streams.append(tx, facts(2, after=1))
        await append(store, *facts(1, after=1))
        assert await versions(store) == [1, 2]

    async def test_appending_nothing_is_nothing(self, store: Store) -> None:
        await append(store)
        assert await versions(store) == []

    async def test_many_writers_of_one_stream_leave_no_gap(self, store: Store, other: Store) -> None:
        async def write(mine: Store) -> None:
            for _ in range(5):
                while True:
                    async with mine.begin() as tx:
                        version = await mine.streams.version(tx, FOLIO)
                    try:
                        await append(mine, *facts(2, after=version))
                        break
                    except VersionConflict:
                        continue

        await asyncio.gather(*(write((store, other)[number % 2]) for number in range(4)))
        assert await versions(store) == list(range(1, 41))

    async def test_an_archived_stream_reads_as_before_and_takes_nothing_until_it_is_reopened(
        self, store: Store
    ) -> None:
        await append(store, *facts(3))
        await archive(store)
        assert await versions(store) == [1, 2, 3]
        async with store.begin() as tx:
            assert await store.streams.head(tx, FOLIO) == StreamHead(3, 0, "archived")
            for expected in (0, 2, 3):
                with pytest.raises(StreamArchived):
                    await store.streams.append(tx, facts(1, after=expected))
            await store.streams.reopen(tx, FOLIO)
            await store.streams.append(tx, facts(2, after=3))
            assert [event.version for event in await store.streams.read(tx, FOLIO, after=1, limit=3)] == [2, 3, 4]
        await archive(store)
        assert await versions(store) == [1, 2, 3, 4, 5]

    async def test_of_a_deleted_stream_its_last_fact_and_its_version_are_left(self, store: Store) -> None:
        await append(store, *facts(3))
        await archive(store)
        async with store.begin() as tx:
            await store.streams.reopen(tx, FOLIO)
            await store.streams.append(tx, facts(2, after=3))
            await store.streams.keep(tx, FOLIO, Snapshot(5, "a", b"state"))
            await store.streams.delete(tx, FOLIO)
        async with store.begin() as tx:
            assert await store.streams.head(tx, FOLIO) == StreamHead(5, 5, "deleted")
            assert await store.streams.snapshot(tx, FOLIO) is None
            assert [event.version for event in await store.streams.read(tx, FOLIO)] == [5]
            for expected in (0, 4, 5):
                with pytest.raises(StreamDeleted) as raised:
                    await store.streams.append(tx, facts(1, after=expected))
                assert raised.value.version == 5
            await store.streams.reopen(tx, FOLIO)
            await store.streams.append(tx, facts(1, after=5))
            assert await store.streams.head(tx, FOLIO) == StreamHead(6, 5, "open")
        assert await store.projections.extent(["folio"]) == 1

    @pytest.mark.parametrize("verb", ["archive", "delete"])
    async def test_who_appends_beside_the_end_of_a_stream_is_before_it_or_refused(
        self, store: Store, other: Store, verb: str
    ) -> None:
        """Whoever comes first holds the stream; nothing is lost between the two."""
        taken = 0
        for round in range(6):
            stream = Stream("t1", "folio", f"f{round}")
            await append(store, *facts(2, stream=stream))

            async def write(stream: Stream = stream) -> bool:
                try:
                    await append(other, *facts(1, stream=stream, after=2))
                except StreamClosed:
                    return False
                return True

            async def end(stream: Stream = stream) -> None:
                async with store.begin() as tx:
                    await store.streams.head(tx, stream, hold=True)
                    await (store.streams.archive if verb == "archive" else store.streams.delete)(tx, stream)

            wrote, _ = (
                await asyncio.gather(write(), end()) if round % 2 else reversed(await asyncio.gather(end(), write()))
            )
            taken += bool(wrote)
            async with store.begin() as tx:
                head = await store.streams.head(tx, stream)
                found = [event.version for event in await store.streams.read(tx, stream)]
            last = 3 if wrote else 2
            assert head is not None
            assert (head.version, head.state) == (last, f"{verb}d")
            assert found == (list(range(1, last + 1)) if verb == "archive" else [last])

    async def test_a_snapshot_gives_way_to_a_later_one_or_to_one_of_another_shape(self, store: Store) -> None:
        async with store.begin() as tx:
            assert await store.streams.snapshot(tx, FOLIO) is None
            for version, shape, standing in ((5, "a", 5), (3, "a", 5), (5, "b", 5), (4, "a", 4), (6, "a", 6)):
                await store.streams.keep(tx, FOLIO, Snapshot(version, shape, b"\x00state"))
                found = await store.streams.snapshot(tx, FOLIO)
                assert found is not None
                assert found.version == standing
            assert found == Snapshot(6, "a", b"\x00state")

    async def test_snapshots_are_dropped_by_aggregate_or_all(self, store: Store) -> None:
        async with store.begin() as tx:
            for aggregate in ("folio", "folio", "stay", "key"):
                await store.streams.keep(tx, Stream("t1", aggregate, new_id()), Snapshot(1, "a", b"s"))
        assert await store.streams.drop_snapshots("folio") == 2
        assert await store.streams.drop_snapshots() == 2


class HistoryContract(StoreFixtures):
    """What `StreamTable` promises about all streams together."""

    async def test_streams_are_told_apart_by_tenant_aggregate_and_id(self, store: Store) -> None:
        streams = [FOLIO, Stream("t2", "folio", "f1"), Stream("t1", "stay", "f1"), Stream("t1", "folio", "f2")]
        for number, stream in enumerate(streams, 1):
            await append(store, *facts(number, stream=stream))
        async with store.begin() as tx:
            found = [await store.streams.version(tx, stream) for stream in streams]
        assert found == [1, 2, 3, 4]

    async def test_everything_is_read_once_and_each_stream_in_order(self, store: Store, other: Store) -> None:
        streams = [Stream(f"t{number % 2}", "folio", f"f{number}") for number in range(5)]

        async def write(mine: Store, stream: Stream) -> None:
            for version in range(0, 20, 2):
                await append(mine, *facts(2, stream=stream, after=version))

        await asyncio.gather(*(write((store, other)[n % 2], stream) for n, stream in enumerate(streams)))
        found, _ = await everything(store, limit=7)
        assert len(found) == 100
        for stream in streams:
            assert [event.version for event in found if event.name == stream] == list(range(1, 21))

    async def test_everything_is_read_once_while_streams_are_archived_and_only_the_last_fact_of_a_deleted_one(
        self, store: Store
    ) -> None:
        streams = [Stream("t1", "folio", f"f{number}") for number in range(6)]
        for stream in streams:
            await append(store, *facts(4, stream=stream))
        found: list[StreamEvent] = []
        cursor, more, turn = "", True, 0
        while more:
            page = await store.streams.read_all(cursor, 3)
            found += page.events
            cursor, more = page.cursor, page.more
            if turn < len(
                streams
            ):  # those that were read, those that are being read, and those that are still to be read
                await archive(store, streams[(turn * 5) % 6])
                turn += 1
        assert [(event.stream, event.version) for event in found] == [
            (one.id, n) for one in streams for n in range(1, 5)
        ]
        assert len({event.position for event in found}) == 24
        await append(store, *facts(1, stream=Stream("t1", "folio", "new")))
        assert [event.stream for event in (await everything(store, cursor))[0]] == ["new"]
        async with store.begin() as tx:
            await store.streams.head(tx, streams[0], hold=True)
            await store.streams.delete(tx, streams[0])
        left, _ = await everything(store)
        assert [event.version for event in left if event.stream == "f0"] == [4]
        assert len(left) == 22

    async def test_a_page_says_where_the_next_one_begins(self, store: Store, other: Store) -> None:
        await append(store, *facts(3))
        first = await store.streams.read_all(limit=2)
        assert first.more
        second = await other.streams.read_all(first.cursor, limit=2)
        await append(store, *facts(2, after=3))
        rest, cursor = await everything(store, second.cursor)
        assert [event.version for event in (*first.events, *second.events, *rest)] == [1, 2, 3, 4, 5]
        page = await store.streams.read_all(cursor)
        assert (page.events, page.more) == ([], False)

    async def test_some_types_can_be_read_alone(self, store: Store) -> None:
        for version in range(6):
            await append(store, *facts(1, after=version, type=f"a.b.done{version % 3}.v1"))
        found, cursor = await everything(store, limit=1, types=("a.b.done0.v1", "a.b.done2.v1"))
        assert [event.version for event in found] == [1, 3, 4, 6]
        await append(store, *facts(1, after=6, type="a.b.done2.v1"))
        found, _ = await everything(store, cursor, types=["a.b.done2.v1"])
        assert [event.version for event in found] == [7]

    async def test_an_empty_store_has_nothing_to_read_until_it_has(self, store: Store) -> None:
        page = await store.streams.read_all()
        assert (page.events, page.more) == ([], False)
        await append(store, *facts(1))
        assert len((await store.streams.read_all(page.cursor)).events) == 1

    async def test_bodies_come_alone_as_all_the_rest_would(self, store: Store) -> None:
        for version in range(7):
            body = b'{"version":%d}' % version
            await append(store, *facts(1, after=version, type=f"a.b.done{version % 3}.v1", headers=ALIKE, body=body))
        for types in ((), ("a.b.done0.v1", "a.b.done2.v1")):
            cursor, more, bodies = "", True, list[bytes]()
            while more:
                page = await store.streams.read_bodies(ALIKE, cursor, 2, types=types)
                assert page is not None
                assert len(page.bodies) <= 2
                bodies += page.bodies
                cursor, more = page.cursor, page.more
            whole, end = await everything(store, limit=2, types=types)
            assert bodies == [event.body for event in whole]
            assert len(bodies) == (5 if types else 7)
            for place in (cursor, end):
                assert (await everything(store, place, types=types))[0] == []

    async def test_bodies_and_all_the_rest_share_their_cursors(self, store: Store) -> None:
        await append(store, *facts(5, headers=ALIKE, body=b"{}"))
        first = await store.streams.read_all(limit=2)
        second = await store.streams.read_bodies(ALIKE, first.cursor, 2)
        assert second is not None
        assert (len(second.bodies), second.more) == (2, True)
        rest, _ = await everything(store, second.cursor)
        assert [event.version for event in rest] == [5]

    async def test_bodies_do_not_come_alone_where_one_has_other_headers(self, store: Store) -> None:
        await append(store, *facts(2, headers=ALIKE))
        page = await store.streams.read_bodies(ALIKE)
        assert page is not None
        await append(store, *facts(1, after=2, headers={**ALIKE, "other": "one"}), *facts(1, after=3, headers=ALIKE))
        assert await store.streams.read_bodies(ALIKE, page.cursor) is None
        assert await store.streams.read_bodies({}, page.cursor) is None

    async def test_bodies_without_headers_are_alike_too(self, store: Store) -> None:
        await append(store, *facts(2))
        page = await store.streams.read_bodies({})
        assert page is not None
        assert len(page.bodies) == 2
        assert await store.streams.read_bodies(ALIKE) is None

    async def test_an_empty_store_has_no_bodies_until_it_has(self, store: Store) -> None:
        page = await store.streams.read_bodies(ALIKE)
        assert page is not None
        assert (page.bodies, page.more) == ([], False)
        await append(store, *facts(1, headers=ALIKE))
        page = await store.streams.read_bodies(ALIKE, page.cursor)
        assert page is not None
        assert page.bodies == [b"{}"]


def facts(
    many: int,
    *,
    stream: Stream = FOLIO,
    after: int = 0,
    type: str = "a.b.done.v1",
    headers: dict[str, str] | None = None,
    body: bytes = b"{}",
) -> list[StreamEvent]:
    """Events of a stream behind a version."""
    return [
        StreamEvent(stream.tenant, stream.aggregate, stream.id, version, new_id(), type, headers or {}, body)
        for version in range(after + 1, after + many + 1)
    ]


async def archive(store: Store, stream: Stream = FOLIO) -> None:
    async with store.begin() as tx:
        assert await store.streams.head(tx, stream, hold=True) is not None
        await store.streams.archive(tx, stream)


async def append(store: Store, *events: StreamEvent) -> None:
    async with store.begin() as tx:
        await store.streams.append(tx, events)


async def versions(store: Store, stream: Stream = FOLIO) -> list[int]:
    async with store.begin() as tx:
        assert await store.streams.version(tx, stream) == len(await store.streams.read(tx, stream))
        return [event.version for event in await store.streams.read(tx, stream)]


async def everything(
    store: Store, cursor: str = "", *, limit: int = 10_000, types: Collection[str] = ()
) -> tuple[list[StreamEvent], str]:
    """All there is behind a cursor, and where it ends."""
    found: list[StreamEvent] = []
    while True:
        page = await store.streams.read_all(cursor, limit, types=types)
        found += page.events
        cursor = page.cursor
        if not page.more:
            return found, cursor


def columns(event: StreamEvent) -> tuple[object, ...]:
    return event.name, event.version, event.event_id, event.type, event.headers, event.body
