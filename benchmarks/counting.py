"""What counting and timing cost: the same work with and without them, in turns, in seconds of the processor."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from unittest import mock

from benchmarks import byhand
from benchmarks.reading import Reading, Scale, at_most, compare
from benchmarks.sending import REWIND
from benchmarks.shop import (
    BUSINESS,
    TENANT,
    Done,
    billing_in,
    copied,
    discard,
    fill,
    filled_log,
    orders_in,
    placed,
    relay,
)
from posthouse.app import app_of
from posthouse.receiving.outcomes import Outcomes
from posthouse.seam import Timing
from posthouse.sending import Relay
from posthouse.watch.process import samples
from posthouse.watch.prometheus import render

SHARE = 0.97
"""Counted, it is at least so fast as not counted."""

Work = Callable[[str], Awaitable[float]]
"""Does the work in a place of this name and returns the seconds of the processor that it took."""


async def counting(folder: Path, scale: Scale) -> list[Reading]:
    """Publish, relay and consume with everything counted and timed, beside the same with nothing; and one scrape."""
    found = []
    for name in ("publish", "relay", "consume", "consume-list"):
        place = folder / name
        place.mkdir()
        found.append(await WORKS[name](place, scale))
    return [*found, await _scrape(folder, scale)]


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Nothing is counted or timed inside."""
    with contextlib.ExitStack() as stack:
        for owner, name in ((Timing, "note"), (Outcomes, "committed"), (Relay, "_count")):
            stack.enter_context(mock.patch.object(owner, name, _nothing))
        yield


def _nothing(*_: object) -> None:
    pass


async def _beside(name: str, work: Work, scale: Scale, *, rounds: int, count: int) -> Reading:
    async def counted(number: int) -> float:
        return await work(f"counted-{number}")

    async def not_counted(number: int) -> float:
        with silent():
            return await work(f"silent-{number}")

    rounds = scale.turns(rounds)
    return await compare(f"counting: {name}", counted, not_counted, rounds=rounds, count=count, goal=SHARE)


async def _publish(folder: Path, scale: Scale) -> Reading:
    count, orders = scale.count(500), orders_in(folder)
    await app_of(orders).open()

    async def work(place: str) -> float:
        began = time.process_time()
        for number in range(count):
            async with orders.transaction(TENANT) as tx:
                await tx.execute(BUSINESS, (place, number))
                tx.publish(placed(number))
        return time.process_time() - began

    try:
        return await _beside("publish", work, scale, rounds=15, count=count)
    finally:
        await orders.aclose()


async def _relay(folder: Path, scale: Scale) -> Reading:
    count, source = scale.count(20_000), orders_in(folder)
    await app_of(source).open()
    await fill(source, count)
    await source.aclose()
    store = byhand.opened(folder / "orders.db")

    async def work(name: str) -> float:
        place = folder / name
        place.mkdir()
        orders = orders_in(folder, log=place / "log.db")
        for statement in REWIND:
            store.execute(statement)
        await app_of(orders).opened.prepare()
        began = time.process_time()
        await relay(orders)
        took = time.process_time() - began
        await orders.aclose()
        discard(place)
        return took

    try:
        return await _beside("relay", work, scale, rounds=15, count=count)
    finally:
        store.close()


async def _consume(kind: str, name: str, usual: int, folder: Path, scale: Scale) -> Reading:
    count = scale.count(usual)
    log = await filled_log(folder, count)

    async def work(name: str) -> float:
        place = folder / name
        copied(log, place)
        done = Done(count)
        billing = billing_in(place, kind, done)
        [consumer] = (await app_of(billing).opened.prepare()).consumers
        began = time.process_time()
        await consumer.run(done.stop)
        took = time.process_time() - began
        await billing.aclose()
        discard(place)
        return took

    return await _beside(name, work, scale, rounds=15, count=count)


async def _scrape(folder: Path, scale: Scale) -> Reading:
    """One scrape of the figures of a process that has been at work, rendered: in milliseconds of the processor."""
    place = folder / "scrape"
    place.mkdir()
    orders = orders_in(place)
    await app_of(orders).open()
    await fill(orders, scale.count(1_000))
    await relay(orders)
    times = 100
    began = time.process_time()
    for _ in range(times):
        render(samples([app_of(orders)]))
    took = (time.process_time() - began) / times
    await orders.aclose()
    return at_most("counting: one scrape", took * 1000, 10.0, "ms")


async def _single(folder: Path, scale: Scale) -> Reading:
    return await _consume("single", "consume", 1_000, folder, scale)


async def _list(folder: Path, scale: Scale) -> Reading:
    return await _consume("list", "consume-list", 10_000, folder, scale)


WORKS: dict[str, Callable[[Path, Scale], Awaitable[Reading]]] = {
    "publish": _publish,
    "relay": _relay,
    "consume": _single,
    "consume-list": _list,
}
