"""A relay that follows the log, and a broker that remembers what it was given."""

from __future__ import annotations

import contextlib
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

from posthouse.broker import ACCEPTED, Frame, Verdict
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import BrokerUnavailable
from posthouse.sending import Relay, RelaySettings
from posthouse.store import WalReader
from posthouse.stores.postgres import PostgresStore
from tests.kit.running import at_work
from tests.kit.waiting import eventually

SEQUENCE = re.compile(rb'"sequence":"(\d+)"')


class Sink(MemoryBroker):
    """`refuses` says which frames; while `away` nothing gets through."""

    def __init__(self) -> None:
        super().__init__(clock=SystemClock())
        self.frames: list[Frame] = []
        self.refuses: Callable[[Frame], bool] = lambda _: False
        self.final = False
        self.away = False
        self.heard: Callable[[Frame], object] = lambda _: None
        self.then: Callable[[], Awaitable[object]] | None = None
        """What happens between the publishing and the answer."""

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        if self.away:
            raise BrokerUnavailable("the broker is away")
        verdicts = [Verdict(False, "no", self.final) if self.refuses(frame) else ACCEPTED for frame in frames]
        accepted = [frame for frame, verdict in zip(frames, verdicts, strict=True) if verdict.accepted]
        self.frames += accepted
        for frame in accepted:
            self.heard(frame)
        if self.then is not None:
            await self.then()
        return verdicts

    @property
    def ids(self) -> list[str]:
        return [frame.id for frame in self.frames]

    @property
    def repeats(self) -> int:
        return len(self.frames) - len(set(self.ids))

    def numbers(self) -> Mapping[str, list[int]]:
        """What a consumer sees of each key: repeats are dropped, the rest must come as 1, 2, 3 …"""
        return numbers_of((str(frame.key), number_of(frame)) for frame in self.frames)


def number_of(frame: Frame) -> int:
    found = SEQUENCE.search(frame.body)
    return int(found[1]) if found else 0


def numbers_of(seen: Iterable[tuple[str, int]]) -> Mapping[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for key, number in seen:
        if not found[key] or number > found[key][-1]:
            found[key].append(number)
    return found


def assert_in_order(found: Mapping[str, list[int]], committed: Mapping[str, int]) -> None:
    """Every key from 1 to the number committed, with no gap and no turn."""
    assert {key: len(numbers) for key, numbers in found.items()} == dict(committed)
    for key, numbers in found.items():
        assert numbers == list(range(1, len(numbers) + 1)), key


@contextlib.asynccontextmanager
async def relaying(store: PostgresStore, sink: Sink, settings: RelaySettings | None = None) -> AsyncIterator[WalReader]:
    """A relay that follows the log runs for the length of the block."""
    tail = await store.wal_reader()
    relay = Relay(store, sink, SystemClock(), settings or RelaySettings(last_delay=0.5), tail)
    async with at_work(relay.run):
        yield tail


async def following(tail: WalReader) -> None:
    """Wait until rows come from the log."""
    await eventually(lambda: tail.mode == "wal")


async def settled(store: PostgresStore, within: float = 20.0) -> Mapping[str, int]:
    """Wait until the cursors have passed everything; what was committed per topic."""

    async def nothing_unsent() -> bool:
        return not (await store.counts()).unsent

    await eventually(nothing_unsent, within=within)
    return (await store.counts()).committed


def committed_by(keys: Iterable[str]) -> Counter[str]:
    return Counter(f"t1:{key}" for key in keys)
