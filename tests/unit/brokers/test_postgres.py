"""The parts of the PostgreSQL broker that need no server."""

import pytest

import posthouse.brokers.postgres.broker as broker_module
from posthouse.broker import Frame, Topology
from posthouse.brokers import open_broker
from posthouse.brokers.postgres.broker import parts, storable, weaknesses
from posthouse.clock import SystemClock
from posthouse.errors import BrokerError

SAFE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "standbys": ""}


def frame(size: int) -> Frame:
    return Frame(topic="t", id="i", body=bytes(size))


@pytest.mark.parametrize(
    ("sizes", "lengths"),
    [([], []), ([1], [1]), ([60, 60], [1, 1]), ([50, 50, 1, 99, 200, 1], [2, 2, 1, 1]), ([0, 0, 0], [3])],
)
def test_a_call_is_cut_into_statements_in_order(
    sizes: list[int], lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "STATEMENT_BYTES", 100)
    frames = [frame(size) for size in sizes]
    cut = list(parts(frames))
    assert [len(part) for part in cut] == lengths
    assert [one for part in cut for one in part] == frames


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, []),
        ({"fsync": "off"}, ["fsync=off"]),
        ({"synchronous_commit": "off", "full_page_writes": "off"}, ["full_page_writes=off", "synchronous_commit=off"]),
        ({"synchronous_commit": "local"}, []),
        ({"synchronous_commit": "local", "standbys": "*"}, ["failover"]),
        ({"synchronous_commit": "remote_apply", "standbys": "*"}, []),
    ],
)
def test_settings_that_weaken_the_promise_are_named(change: dict[str, str], says: list[str]) -> None:
    found = weaknesses(SAFE | change)
    assert len(found) == len(says)
    assert all(word in sentence for word, sentence in zip(says, found, strict=True))


def test_names_that_no_text_column_takes_are_known_before_the_server_says_so() -> None:
    assert storable("ключ ☃")
    assert not storable("a\0b")
    assert not storable("a\ud800")


async def test_a_password_and_several_hosts_stay_out_of_the_messages() -> None:
    broker = open_broker(
        "postgresql://me:secret@127.0.0.1:1,127.0.0.1:2/db?partitions=2&sslmode=disable", clock=SystemClock()
    )
    with pytest.raises(BrokerError) as caught:
        await broker.ensure(Topology(topics=["t"]))
    assert "127.0.0.1:1,127.0.0.1:2/db" in str(caught.value)
    assert "secret" not in str(caught.value)
    await broker.aclose()


async def test_a_seek_needs_exactly_one_target() -> None:
    broker = open_broker("postgresql://127.0.0.1:1/db", clock=SystemClock())
    with pytest.raises(BrokerError, match="either"):
        await broker.seek("g", "t")
    with pytest.raises(BrokerError, match="either"):
        await broker.seek("g", "t", position=1, time=1.0)
    await broker.aclose()
