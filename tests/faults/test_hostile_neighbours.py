"""38: events that lie about themselves in every format, on both stores. Each costs itself; its neighbours never notice."""

from __future__ import annotations

import json
import logging
import random
import string
from collections.abc import Mapping, Sequence

import pytest

from posthouse import Event, Payload, Service, Tx
from posthouse.app import app_of
from posthouse.broker import Delivery, Frame, Start, Stream
from posthouse.brokers.memory import MemoryBroker, Stored
from posthouse.clock import ManualClock, new_id
from posthouse.events import CODECS, timestamp
from posthouse.events import Event as Envelope
from tests.kit.long import LONG

from .scene import NOW, calm, rows
from .stores import House, stores, worded

__all__ = ["stores"]

HOSTILE = 600 if LONG else 120
HONEST = 60
KEYS = 6


class Made(Payload):
    key: str
    number: int


class Seen(Payload):
    number: int


def plant() -> Service:
    service = Service("plant")
    service.event("thing.made.v1", key="key")(Made)
    service.event("view.seen.v1")(Seen)

    @service.setup
    async def tables(tx: Tx) -> None:
        await tx.execute(worded("CREATE TABLE IF NOT EXISTS effect ({id}, key TEXT, number BIGINT)"))

    insert = "INSERT INTO effect (key, number) VALUES (?, ?)"

    @service.on(Made)
    async def make(event: Event[Made], tx: Tx) -> None:
        await tx.execute(worded(insert), (event.data.key, event.data.number))

    @service.on(Seen)
    async def see(event: Event[Seen], tx: Tx) -> None:
        await tx.execute(worded(insert), ("", event.data.number))

    return service


class CountingBroker(MemoryBroker):
    """The broker in memory, which counts how often somebody had to start over and how many frames it handed out."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.subscribed = 0
        self.handed_out = 0

    async def subscribe(
        self, group: str, topics: Sequence[str], *, start: Start = "earliest", window: int = 1000
    ) -> Stream:
        self.subscribed += 1
        stream = await super().subscribe(group, topics, start=start, window=window)
        receive = stream.receive

        async def counting(limit: int, wait: float) -> Sequence[Delivery]:
            found = await receive(limit, wait)
            self.handed_out += len(found)
            return found

        stream.receive = counting  # type: ignore[method-assign]
        return stream


def text(dice: random.Random, size: int) -> str:
    """Random, so that no index can press it together."""
    letters = string.ascii_letters + string.digits if dice.random() < 0.7 else "äß漢🏨" + string.ascii_letters
    return "".join(dice.choices(letters, k=size))


TEXTS = ("id", "type", "source", "tenantid", "subject", "correlationid", "causationid", "actorid", "actorkind",
         "idempotencykey", "partitionkey", "dualof", "dualversion", "dataschema", "producerservice", "outboxid")  # fmt: skip
CAMEL = {"id": "eventId", "type": "eventType", "tenantid": "tenantId", "correlationid": "correlationId",
         "causationid": "causationId", "idempotencykey": "idempotencyKey", "dataschema": "schemaUri", "time": "occurredAt"}  # fmt: skip
NUMBERS: tuple[object, ...] = (0, -1, 1, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 2, 2**63 - 1, 2**63, "9" * 19, "9" * 30,
                               str(2**63 - 1), 1.5, True, None, "1e5", [], {})  # fmt: skip
TIMES = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-23:59", "", "now", "2300-01-01T00:00:00Z")


def lie(dice: random.Random) -> tuple[str, object]:
    """An attribute, and a value that it should not have."""
    match dice.randrange(5):
        case 0 | 1:
            return dice.choice(TEXTS), text(dice, dice.choice([257, 600, 1025, 2_000, 3_000, 6_000, 20_000]))
        case 2:
            return dice.choice(("sequence", "lineage")), dice.choice(NUMBERS)
        case 3:
            return "time", dice.choice(TIMES)
        case _:
            return dice.choice(TEXTS), dice.choice(
                ["a\0b", "\ud800", "\u2028\x1b[31m", "", " ", "'; DROP TABLE effect; --"]
            )


def mutated(dice: random.Random, wire: str, headers: Mapping[str, str], body: bytes) -> tuple[dict[str, str], bytes]:
    """The same frame with one to three lies, or with some of its bytes turned."""
    if dice.random() < 0.3:
        raw = bytearray(body)
        for _ in range(dice.randint(1, 4)):
            raw[dice.randrange(len(raw))] = dice.randrange(256)
        return dict(headers), bytes(raw)
    lies = dict(lie(dice) for _ in range(dice.randint(1, 3)))
    if wire == "binary":
        return {**headers, **{f"ce-{name}": str(value) for name, value in lies.items()}}, body
    members = json.loads(body)
    for name, value in lies.items():
        if wire == "melmastoon" and name not in CAMEL:
            key = {"subject": "orderingKey", "outboxid": "outboxId"}.get(name, name)
            members["metadata"][key] = f"{members['tenantId']}:{value}" if key == "orderingKey" else value
        else:
            members[CAMEL[name] if wire == "melmastoon" else name] = value
    return dict(headers), json.dumps(members).encode()


def honest(wire: str, payload: Made | Seen, sequence: int | None) -> Frame:
    key = payload.key if isinstance(payload, Made) else None
    subject = "plant.thing.made.v1" if isinstance(payload, Made) else "plant.view.seen.v1"
    event = Envelope(
        id=new_id(), type=subject, source="/plant", data=json.dumps({"number": payload.number, **({"key": key} if key else {})}).encode(),
        time=timestamp(NOW), tenant="t1", key=key, sequence=sequence,
    )  # fmt: skip
    encoded = CODECS[wire].encode(event)
    topic = "plant.thing" if key else "plant.view"
    line = f"t1:{key}" if key else None
    return Frame(topic=topic, id=event.id, key=line, headers=encoded.headers, body=encoded.body)


def scene(dice: random.Random, wire: str) -> tuple[list[Frame], list[Frame]]:
    """Neighbours, each key in its order, and what is thrown among them."""
    good = [honest(wire, Made(key=f"k{n % KEYS}", number=n), n // KEYS + 1) for n in range(HONEST)]
    good += [honest(wire, Seen(number=1_000 + n), None) for n in range(HONEST)]
    bad = []
    for n in range(HOSTILE):
        victim = honest(wire, Made(key=f"h{n}", number=-1), 1) if n % 2 else honest(wire, Seen(number=-1), None)
        headers, body = mutated(dice, wire, victim.headers, victim.body)
        name = text(dice, dice.choice([5, 300, 6_000])) if dice.random() < 0.2 else victim.id
        bad.append(Frame(topic=victim.topic, id=name, key=victim.key, headers=headers, body=body))
    return good, bad


def shuffled(dice: random.Random, good: list[Frame], bad: list[Frame]) -> list[Frame]:
    """Bad ones anywhere; the good ones keep their order."""
    frames: list[Frame] = [*good]
    for frame in bad:
        frames.insert(dice.randrange(len(frames) + 1), frame)
    return frames


@pytest.mark.parametrize("seed", range(12 if LONG else 2))
@pytest.mark.parametrize("wire", CODECS)
async def test_events_that_lie_about_themselves_cost_their_neighbours_nothing(
    wire: str, seed: int, stores: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    dice = random.Random(f"{wire} {seed}")
    good, bad = scene(dice, wire)
    service = plant()
    house = House(service)
    house.broker = broker = CountingBroker(house.clock)
    async with house:
        frames = shuffled(dice, good, bad)
        for frame in frames:  # past what a broker of ours would refuse: others may be careless
            broker.log.topics[frame.topic].append(Stored(frame, NOW))
        broker.log.wake()
        await calm(house, 60.0)
        found = await rows(service, "SELECT key, number FROM effect WHERE number >= 0 ORDER BY id")
        held = await house.held(service)
        counts = await app_of(service).store.counts()
    for key in range(KEYS):
        assert [number for k, number in found if k == f"k{key}"] == list(range(key, HONEST, KEYS)), (
            "each key in its order"
        )
    assert sorted(int(str(number)) for k, number in found if not k) == [1_000 + n for n in range(HONEST)]
    assert broker.subscribed == len(app_of(service).opened.topology().groups), "nobody started over"
    assert broker.handed_out == len(frames), "nothing came twice"
    assert not [record for record in caplog.records if record.name == "posthouse.outage"]
    assert "is started again" not in caplog.text
    assert len(held) >= HOSTILE // 3, "most of them were no events that can be applied"
    assert sum(counts.applied.values()) + len(held) >= len(good) + HOSTILE // 2
