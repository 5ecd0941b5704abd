"""38 and 39: bytes that nobody should trust, put straight into the broker."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import logging
import random
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posthouse import App, Event, Payload, Service, Settings, Tx
from posthouse.app import app_of
from posthouse.broker import Delivery, Frame
from posthouse.brokers.memory import Stored
from posthouse.errors import DecodeError
from posthouse.events import decode_any
from posthouse.testing import Harness

from .scene import NOW, calm, crafted, put, rows
from .stores import House, stores, worded

__all__ = ["stores"]

plant = Service("plant")
App(plant, settings=Settings(limit=8 * 1024 * 1024 - 4096))


@plant.event("thing.made.v1", key="key")
class ThingMade(Payload):
    key: str
    number: int = 0


@plant.event("view.seen.v1")
class ViewSeen(Payload):
    text: str = ""
    number: int = 0


INSERT = "INSERT INTO effect (number, text) VALUES (?, ?)"


@plant.setup
async def tables(tx: Tx) -> None:
    await tx.execute(worded("CREATE TABLE IF NOT EXISTS effect ({id}, number BIGINT, text TEXT)"))


@plant.on(ThingMade)
async def make(event: Event[ThingMade], tx: Tx) -> None:
    await tx.execute(worded(INSERT), (event.data.number, event.data.key))


@plant.on(ViewSeen)
async def see(event: Event[ViewSeen], tx: Tx) -> None:
    await tx.execute(worded(INSERT), (event.data.number, event.data.text))


STRUCTURED = {"content-type": "application/cloudevents+json"}


def envelope(data: str, **more: str) -> bytes:
    """A view that says `data`, unchecked; `more` replaces or adds members as raw JSON."""
    members = {
        "specversion": '"1.0"',
        "id": '"hostile"',
        "source": '"/x"',
        "type": '"plant.view.seen.v1"',
        "time": '"2027-01-15T08:00:00Z"',
        "tenantid": '"t1"',
        **more,
        "data": data,
    }
    return ("{" + ",".join(f'"{name}":{value}' for name, value in members.items()) + "}").encode(
        "utf-8", "surrogatepass"
    )


DEEP = 100_000

HOSTILE: dict[str, tuple[dict[str, str], bytes]] = {
    "invalid UTF-8": (STRUCTURED, envelope('{"text":"?"}').replace(b"?", b"\xff\xfe")),
    "overlong UTF-8": (STRUCTURED, envelope('{"text":"?"}').replace(b"?", b"\xc0\xaf")),
    "a NUL byte": (STRUCTURED, envelope('{"text":"?"}').replace(b"?", b"\x00")),
    "an escaped NUL": (STRUCTURED, envelope('{"text":"\\u0000"}')),
    "an escaped NUL in the id": (STRUCTURED, envelope("{}", id='"a\\u0000b"')),
    "a lone surrogate": (STRUCTURED, envelope('{"text":"\\ud800"}')),
    "a lone surrogate in the tenant": (STRUCTURED, envelope("{}", tenantid='"\\udfff"')),
    "a surrogate in bytes": (STRUCTURED, envelope('{"text":"\ud800"}')),
    "a byte order mark": (STRUCTURED, b"\xef\xbb\xbf" + envelope("{}")),
    "UTF-16": (STRUCTURED, envelope("{}").decode().encode("utf-16")),
    "deep lists": (STRUCTURED, envelope('{"text":' + "[" * DEEP + "]" * DEEP + "}")),
    "deep objects": (STRUCTURED, envelope('{"a":' * DEEP + "1" + "}" * DEEP)),
    "deep and never closed": (STRUCTURED, b"[" * DEEP),
    "sixty-five levels": (STRUCTURED, envelope('{"more":' + "[" * 65 + "]" * 65 + "}")),
    "a huge integer": (STRUCTURED, envelope('{"number":' + "9" * 100_000 + "}")),
    "an integer of 65 bits": (STRUCTURED, envelope('{"number":18446744073709551616}')),
    "NaN": (STRUCTURED, envelope('{"number":NaN}')),
    "infinity": (STRUCTURED, envelope('{"number":-Infinity}')),
    "1e400": (STRUCTURED, envelope('{"number":1e400}')),
    "a key twice": (STRUCTURED, envelope('{"number":1,"number":2}')),
    "an id twice": (STRUCTURED, envelope("{}", **{'id":"x","id': '"y"'})),
    "a million small values": (STRUCTURED, envelope("[" + "1," * 1_000_000 + "1]")),
    "an empty body": (STRUCTURED, b""),
    "nothing at all": ({}, b""),
    "no content type": ({}, b"\x00\x01\x02\x03"),
    "text": ({"content-type": "text/plain"}, b"hello"),
    "a list": (STRUCTURED, b"[]"),
    "null": (STRUCTURED, b"null"),
    "half an event": (STRUCTURED, envelope("{}")[:-20]),
    "two events": (STRUCTURED, envelope("{}") * 2),
    "no id": (STRUCTURED, envelope("{}", id="null")),
    "an empty type": (STRUCTURED, envelope("{}", type='""')),
    "a sequence without end": (STRUCTURED, envelope("{}", lineage='"' + "9" * 500 + '"')),
    "a day that never was": (STRUCTURED, envelope("{}", time='"2027-02-30T00:00:00Z"')),
    "a time before time": (STRUCTURED, envelope("{}", time='"-001-01-01T00:00:00Z"')),
    "the first moment, elsewhere": (STRUCTURED, envelope("{}", time='"0001-01-01T00:00:00"')),
    "another version": (STRUCTURED, envelope("{}", specversion='"9.9"')),
    "an object for a name": (STRUCTURED, envelope("{}", source='{"a":1}')),
    "gzip": ({**STRUCTURED, "content-encoding": "gzip"}, gzip.compress(b"0" * 64 * 1024 * 1024)),
    "zlib": (STRUCTURED, zlib.compress(b"[" * 64 * 1024 * 1024)),
    "random bytes": (STRUCTURED, random.Random(38).randbytes(200_000)),
    "ce headers and no JSON": (
        {"ce-specversion": "1.0", "ce-id": "h", "ce-source": "/x", "ce-type": "plant.view.seen.v1"},
        b"\xff\x00",
    ),
    "ce headers that are no UTF-8": (
        {"ce-specversion": "1.0", "ce-id": "%ff", "ce-source": "/x", "ce-type": "plant.view.seen.v1"},
        b"{}",
    ),
}
"""Each must be quarantined as unreadable, with a reason."""


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    """In memory: one for each of many."""
    async with Harness(plant) as harness:
        yield harness


@pytest.fixture
async def house(stores: str) -> AsyncIterator[Harness]:
    """On both stores."""
    async with House(plant) as house:
        yield house


@pytest.fixture
def said() -> Iterator[io.StringIO]:
    """What a plain log file would hold: strict UTF-8, and errors of logging itself are raised."""
    file = io.StringIO()
    handler = logging.StreamHandler(file)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
    log = logging.getLogger("posthouse")
    log.addHandler(handler)
    yield file
    log.removeHandler(handler)
    file.getvalue().encode()


def raw(headers: dict[str, str], body: bytes, id: str = "hostile", key: str | None = None) -> Frame:
    return Frame(topic="plant.view", id=id, key=key, headers=headers, body=body)


async def applied() -> list[tuple[object, ...]]:
    return await rows(plant, "SELECT number, text FROM effect ORDER BY id")


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_bytes_are_quarantined_with_a_reason_and_their_neighbours_applied(
    name: str, harness: Harness, said: io.StringIO
) -> None:
    headers, body = HOSTILE[name]
    before, after = crafted(ViewSeen(text="before")), crafted(ViewSeen(text="after"))
    await put(harness, before, raw(headers, body), after, crafted(ThingMade(key="k", number=1), sequence=1))
    await calm(harness)
    assert sorted(str(text) for _, text in await applied()) == ["after", "before", "k"]
    [held] = await harness.held(plant)
    assert held.state == "quarantined"
    assert held.reason.startswith("unreadable: ")
    assert len(held.reason) < 400
    assert held.body == body
    assert "quarantined" in said.getvalue()
    letters = harness.broker.log.topics["plant.view.dlq"]
    assert [letter.frame.body for letter in letters] == [body]


async def test_all_hostile_bytes_together_are_quarantined_on_both_stores(house: Harness) -> None:
    neighbours = [crafted(ViewSeen(text=f"view {n}")) for n in range(len(HOSTILE))]
    things = [crafted(ThingMade(key="k", number=n), sequence=n) for n in range(1, len(HOSTILE) + 1)]
    for n, (headers, body) in enumerate(HOSTILE.values()):
        await put(house, neighbours[n], raw(headers, body, id=f"hostile {n}"), things[n])
    await calm(house)
    found = await applied()
    assert sorted(str(text) for _, text in found if text != "k") == sorted(f"view {n}" for n in range(len(HOSTILE)))
    assert [number for number, text in found if text == "k"] == list(range(1, len(HOSTILE) + 1))
    held = await house.held(plant)
    assert {one.state for one in held} == {"quarantined"}
    assert sorted(one.body for one in held) == sorted(body for _, body in HOSTILE.values())
    assert all(one.reason.startswith("unreadable: ") for one in held)
    assert len(house.broker.log.topics["plant.view.dlq"]) == len(HOSTILE)


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_bytes_are_read_in_bounded_time_and_memory(name: str, harness: Harness) -> None:
    headers, body = HOSTILE[name]
    executor = harness._runtimes[0].consumers[0]._executor
    delivery = Delivery(frame=raw(headers, body), position=0, stored_at=NOW)
    fastest = min(_seconds(executor.decoder.from_delivery, delivery) for _ in range(3))
    assert fastest < 0.05
    tracemalloc.start()
    try:
        assert executor.decoder.from_delivery(delivery).defect
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024 * 1024
    finally:
        tracemalloc.stop()


def _seconds(read: object, delivery: Delivery) -> float:
    assert callable(read)
    began = time.perf_counter()
    read(delivery)
    return time.perf_counter() - began


async def test_a_body_larger_than_the_service_reads_is_not_looked_at(harness: Harness) -> None:
    executor = harness._runtimes[0].consumers[0]._executor
    body = envelope('{"text":"' + "x" * 9_000_000 + '"}')
    delivery = Delivery(frame=raw(STRUCTURED, body), position=0, stored_at=NOW)
    work = executor.decoder.from_delivery(delivery)
    assert "too_large" in work.defect
    assert min(_seconds(executor.decoder.from_delivery, delivery) for _ in range(3)) < 0.05


async def test_the_services_own_limit_decides_what_it_reads(harness: Harness) -> None:
    executor = harness._runtimes[0].consumers[0]._executor
    body = envelope('{"text":"' + "x" * 2_000 + '"}')
    delivery = Delivery(frame=raw(STRUCTURED, body), position=0, stored_at=NOW)
    assert not dataclasses.replace(executor, limit=len(body)).decoder.from_delivery(delivery).defect
    assert "too_large" in dataclasses.replace(executor, limit=len(body) - 1).decoder.from_delivery(delivery).defect


@pytest.mark.parametrize(
    "data",
    ['{"number":"many"}', "[]", '"text"', '{"text":{"a":[]}}', '{"number":1.5}', "null"],
)
async def test_a_payload_of_another_shape_is_dead_at_once_and_keeps_nobody_else_waiting(
    data: str, house: Harness
) -> None:
    await put(house, raw(STRUCTURED, envelope(data)), crafted(ViewSeen(text="after")))
    await calm(house)
    assert await applied() == [(0, "after")]
    [held] = await house.held(plant)
    assert (held.state, held.reason, held.attempts) == ("dead", "contract", 1)
    assert "not a valid ViewSeen" in held.error


async def test_odd_but_honest_bytes_are_applied(house: Harness) -> None:
    honest = [
        envelope('{"text":"caf\u00e9 \U0001f3e8"}', id='"1"'),
        envelope('{"text":"\\ud83c\\udfe8"}', id='"2"'),
        envelope('{"text":"a\\\\u0000b"}', id='"3"'),
        envelope('{ "number" : 9223372036854775807 , "more": [[[[[[[[[[1]]]]]]]]]] }', id='"4"'),
        envelope("{}", id='"5"', time='"0001-01-01T00:00:00+23:59"'),
        envelope("{}", id='"6"', time='"9999-12-31T23:59:59-23:59"'),
        envelope("{}", id='"a\\nforged: line\\u2028\\u001b[31m"'),
    ]
    await put(house, *[raw(STRUCTURED, body, id=str(n)) for n, body in enumerate(honest)])
    await calm(house)
    assert await house.held(plant) == []
    assert sorted(str(text) for _, text in await applied()) == ["", "", "", "", "a\\u0000b", "café 🏨", "🏨"]


async def test_text_that_no_database_takes_in_headers_and_ids_does_not_stop_the_worker(
    house: Harness, said: io.StringIO
) -> None:
    """A broker of ours never stores these; one that decodes carelessly might hand them out."""
    bad = [
        Frame(topic="plant.view", id="half \ud800", body=b"\xff", headers={}),
        Frame(topic="plant.view", id="fine", body=b"\xfe", headers={"x-half": "\udc80", "x-nul": "a\0b"}),
        Frame(topic="plant.view", id="nul \0", body=b"\xfd", headers={"\ud800": "name"}),
    ]
    house.broker.log.topics["plant.view"] += [Stored(frame, NOW) for frame in bad]
    await put(house, crafted(ViewSeen(text="after")))
    await calm(house)
    assert await applied() == [(0, "after")]
    assert [held.state for held in await house.held(plant)] == ["quarantined"] * 3


async def test_unreadable_frames_under_one_id_are_all_kept(house: Harness) -> None:
    await put(house, *[raw(STRUCTURED, bytes([255, n]), id="same") for n in range(5)])
    await put(house, raw(STRUCTURED, b"\xff\x00", id="same"))
    await calm(house)
    assert sorted(held.body for held in await house.held(plant)) == [bytes([255, n]) for n in range(5)]


async def test_another_event_under_the_id_of_one_that_is_held_is_kept_beside_it(house: Harness) -> None:
    first = raw(STRUCTURED, envelope('{"number":"many"}'))
    others = [raw(STRUCTURED, envelope(f'{{"number":"many {n}"}}')) for n in range(3)]
    await put(house, first)
    await calm(house)
    for other in (*others, *others):
        await put(house, other)
        await calm(house)
    held = await house.held(plant)
    assert sorted(one.body for one in held) == sorted([first.body, *(other.body for other in others)])
    assert sorted(one.state for one in held) == ["dead", "quarantined", "quarantined", "quarantined"]


@pytest.mark.parametrize("seed", range(6))
async def test_a_flood_of_mutated_events_stops_nobody(seed: int, house: Harness) -> None:
    dice = random.Random(seed)
    honest = [crafted(ViewSeen(text=f"honest {n}", number=n)) for n in range(50)]
    flood = []
    for n in range(150):
        victim = dice.choice(honest)
        body = bytearray(victim.body)
        for _ in range(dice.randint(1, 6)):
            match dice.randrange(3):
                case 0:
                    body[dice.randrange(len(body))] = dice.randrange(256)
                case 1:
                    place = dice.randrange(len(body))
                    del body[place : place + dice.randrange(1, 9)]
                case _:
                    place = dice.randrange(len(body))
                    body[place:place] = dice.choice([b'"', b"{", b"[", b"\\u", b"\x00", b"1e999", b",,", b"\xf0\x9f"])
        flood.append(Frame(topic="plant.view", id=f"m{n}", headers=victim.headers, body=bytes(body) or b"{"))
    frames = [*honest, *flood]
    dice.shuffle(frames)
    await put(house, *frames)
    await calm(house)
    counts = await app_of(plant).store.counts()
    assert sum(counts.applied.values()) >= 25
    assert sum(counts.held.values()) + sum(counts.strange.values()) >= 100
    known = {text for _, text in await applied()}
    quarantined = {held.entry.event_id for held in await house.held(plant)}
    for n, frame in enumerate(honest):
        assert f"honest {n}" in known or frame.id in quarantined, "a mutant may come first and win, but never vanish"
    await put(house, crafted(ViewSeen(text="last")))
    await calm(house)
    assert "last" in {text for _, text in await applied()}


_headers = st.dictionaries(
    st.sampled_from(["content-type", "ce-specversion", "ce-id", "ce-type", "ce-source", "ce-time", "x-other"]),
    st.one_of(
        st.sampled_from(["application/cloudevents+json", "application/json", "1.0", "plant.view.seen.v1", "%ff", '"']),
        st.text(max_size=20),
    ),
    max_size=6,
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_members = st.dictionaries(
    st.sampled_from(
        [
            "specversion",
            "id",
            "source",
            "type",
            "time",
            "data",
            "data_base64",
            "subject",
            "tenantid",
            "sequence",
            "lineage",
            "partitionkey",
            "actorkind",
            "retentionclass",
            "offlinereplay",
            "aiprovenance",
            "traceparent",
            "datacontenttype",
        ]
    )
    | st.text(max_size=8),
    st.sampled_from(["1.0", "plant.view.seen.v1", "2027-01-15T08:00:00Z", "t1", 1, "00000000000000000001"]) | _json,
    max_size=14,
).map(lambda members: json.dumps(members, ensure_ascii=False).encode("utf-8", "surrogatepass"))


@given(headers=_headers, body=st.binary(max_size=300) | _members)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reading_any_bytes_gives_an_event_or_a_decode_error_and_nothing_else(
    headers: dict[str, str], body: bytes
) -> None:
    try:
        event = decode_any(headers, body)
    except DecodeError:
        return
    assert event.id
    assert event.occurred_at.tzinfo is not None
