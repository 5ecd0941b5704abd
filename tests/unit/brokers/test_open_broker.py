from pathlib import Path

import pytest

from posthouse.broker import Topology
from posthouse.brokers import open_broker
from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError

CLOCK = SystemClock()


async def test_three_slashes_are_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    broker = open_broker("embedded:///my%20log.db", clock=CLOCK)
    await broker.ensure(Topology(topics=["t"]))
    await broker.aclose()
    assert (tmp_path / "my log.db").exists()


async def test_four_slashes_are_absolute(tmp_path: Path) -> None:
    broker = open_broker(f"embedded:///{tmp_path}/log.db?retention=86400&partitions=4", clock=CLOCK)
    assert isinstance(broker, EmbeddedBroker)
    assert broker.sheet.redelivery_s == 86400
    await broker.ensure(Topology(topics=["t"]))
    await broker.aclose()
    assert (tmp_path / "log.db").exists()


def test_memory_is_a_broker() -> None:
    assert isinstance(open_broker("memory://", clock=CLOCK), MemoryBroker)


def test_giving_up_synchronous_shows_on_the_sheet(tmp_path: Path) -> None:
    assert open_broker(f"embedded:///{tmp_path}/log.db", clock=CLOCK).sheet.durable_ack
    assert not open_broker(f"embedded:///{tmp_path}/log.db?synchronous=NORMAL", clock=CLOCK).sheet.durable_ack


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("embeded:///log.db", "Did you mean 'embedded'?"),
        ("log.db", "Known: embedded, memory, postgresql."),
        ("embedded://log.db", "embedded:///log.db"),
        ("embedded:///log.db?retentoin=5", "Did you mean 'retention'?"),
        ("embedded:///log.db?partitions=none", "does not fit"),
        ("embedded:///log.db?partitions=0", "does not fit"),
        ("postgres://db/x", "Did you mean 'postgresql'?"),
        ("postgresql://db/x?partition=5", "Did you mean 'partitions'?"),
        ("postgresql://db/x?slmode=require", "Did you mean 'sslmode'?"),
        ("postgresql://db/x?pooler=session", "does not fit"),
        ("postgresql://db/x?schema=", "does not fit"),
        ("embedded:///no/such/folder/log.db", "does not exist"),
    ],
)
def test_a_url_that_cannot_work_says_what_would(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match="(?s)" + says.replace("?", r"\?").replace(".", r"\.")):
        open_broker(url, clock=CLOCK)


def test_every_problem_of_a_url_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_broker("embedded://log.db?retentoin=5&partitions=x", clock=CLOCK)
    assert len(caught.value.problems) == 3
