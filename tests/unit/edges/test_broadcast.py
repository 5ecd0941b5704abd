"""Broadcast: one reader for all, whatever its feed does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection

from posthouse.edges.broadcast import Broadcast, Client, Item, Limits, Message, Page, frame
from posthouse.errors import StoreUnavailable
from tests.kit.waiting import eventually


class Numbers:
    """A feed of numbers, for everybody; `away`: it cannot be read, `lost`: nobody knows what was before."""

    def __init__(self) -> None:
        self.told = 0
        self.away = self.lost = False
        self.reads = 0

    async def read(self, after: str, audiences: Collection[str], *, upto: str = "") -> Page:
        self.reads += 1
        if self.away:
            raise StoreUnavailable("it is away")
        if self.lost or not after:
            gone, self.lost = self.lost, False
            return Page(str(self.told), gone=gone)
        numbers = range(int(after) + 1, int(upto or self.told) + 1)
        return Page(upto or str(self.told), [Item(str(n), str(n).encode(), one) for n in numbers for one in audiences])

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(0.001)


class Tab:
    """An ASGI connection whose client takes everything."""

    def __init__(self) -> None:
        self.text = ""
        self.over = False
        self.left = asyncio.Event()

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.text += message.get("body", b"").decode()
        self.over = self.over or (message["type"] == "http.response.body" and not message.get("more_body"))


@contextlib.asynccontextmanager
async def tab(broadcast: Broadcast, after: str = "") -> AsyncIterator[Tab]:
    one = Tab()
    serving = asyncio.create_task(broadcast.serve("", after, one.receive, one.send))
    try:
        yield one
    finally:
        one.left.set()
        await serving


async def test_all_are_told_to_fetch_anew_when_nobody_knows_what_was_before() -> None:
    feed = Numbers()
    broadcast = Broadcast(feed, Limits())
    async with tab(broadcast) as one, tab(broadcast) as two:
        await eventually(lambda: "ready" in one.text and "ready" in two.text)
        feed.told, feed.lost = 7, True
        await eventually(lambda: "event: must-refetch\nid: 7\n" in one.text and "must-refetch" in two.text)
        feed.told = 8
        await eventually(lambda: "id: 8\ndata: 8\n" in one.text and "id: 8\ndata: 8\n" in two.text)


async def test_clients_stay_while_the_feed_is_away_and_miss_nothing() -> None:
    feed = Numbers()
    broadcast = Broadcast(feed, Limits(heartbeat=0.01))
    async with tab(broadcast) as one:
        await eventually(lambda: "ready" in one.text)
        feed.away, reads = True, feed.reads
        await eventually(lambda: feed.reads > reads)
        feed.told, feed.away = 3, False
        await eventually(lambda: "data: 3" in one.text)
        assert [f"data: {number}\n" in one.text for number in (1, 2, 3)] == [True] * 3
        assert ": \n\n" in one.text
        assert not one.over


async def test_whoever_comes_while_the_feed_is_away_is_to_come_later() -> None:
    feed = Numbers()
    feed.away = True
    async with tab(Broadcast(feed, Limits(patience=0.05))) as one:
        await eventually(lambda: one.over)
        assert "event: busy" in one.text


async def test_one_that_was_away_gets_what_lies_between_and_then_what_comes() -> None:
    feed = Numbers()
    feed.told = 5
    async with tab(Broadcast(feed, Limits()), after="2") as one:
        await eventually(lambda: "data: 5" in one.text)
        feed.told = 6
        await eventually(lambda: "data: 6" in one.text)
    assert [line for line in one.text.splitlines() if line.startswith("data")] == [
        "data: 3",
        "data: 4",
        "data: 5",
        "data: 6",
    ]


async def test_the_reader_ends_with_the_last_client_and_a_stop_ends_all() -> None:
    feed = Numbers()
    broadcast = Broadcast(feed, Limits())
    async with tab(broadcast) as one:
        await eventually(lambda: "ready" in one.text)
        assert broadcast.listeners == 1
        await broadcast.aclose()
        await eventually(lambda: one.over)
    assert broadcast.listeners == 0


async def test_too_much_that_waits_ends_a_client_and_is_thrown_away() -> None:
    client = Client("", backlog=100)
    client.put([b"x" * 60])
    assert await client.take(1) == b"x" * 60
    client.put([b"x" * 60])
    client.put([b"x" * 60])
    assert client.over
    assert await client.take(1) == b""


def test_an_event_stands_on_the_wire_as_the_specification_has_it() -> None:
    assert frame(b"{}", id="7", event="ready") == b"event: ready\nid: 7\ndata: {}\n\n"
