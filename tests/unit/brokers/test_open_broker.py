import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest

from posthouse.broker import Topology
from posthouse.brokers import ADAPTERS, open_broker
from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.brokers.memory import MemoryBroker
from posthouse.brokers.redis import RedisBroker
from posthouse.brokers.redis.client import TlsConnection
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
        ("log.db", "is no URL of a broker: write nats:"),
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


@pytest.mark.parametrize("scheme", sorted(scheme for scheme, adapter in ADAPTERS.items() if adapter.extra))
def test_a_driver_that_is_missing_is_named_with_the_extra_that_brings_it(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = ADAPTERS[scheme]
    monkeypatch.setitem(sys.modules, f"posthouse.brokers.{adapter.module}", None)  # as if its import had failed
    with pytest.raises(ConfigurationError) as caught:
        open_broker(f"{scheme}://host", clock=CLOCK)
    assert f"pip install 'posthouse[{adapter.extra}]'" in str(caught.value)
    assert adapter.needs in str(caught.value)
    assert adapter.extra in (metadata("posthouse").get_all("Provides-Extra") or ())


def test_no_driver_is_imported_before_a_url_asks_for_it() -> None:
    drivers = ["aiobotocore", "aiormq", "asyncpg", "confluent_kafka", "google.cloud", "nats", "redis"]
    code = f"import sys, posthouse.brokers; print([name for name in {drivers} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_kafka_takes_several_servers_options_and_what_has_a_dot_is_the_drivers() -> None:
    broker = open_broker("kafka://a:9092,b:9092?replicas=3&retention=86400&security.protocol=SSL", clock=CLOCK)
    assert broker.sheet.name == "kafka"
    assert broker.sheet.durable_ack
    assert (broker.sheet.retains_unacked, broker.sheet.redelivery_s) == (False, 86400.0)


def test_every_problem_of_a_kafka_url_is_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_broker("kafka://me:word@a:9092?replica=3&timeout=-1", clock=CLOCK)
    named, unfit, nowhere = caught.value.problems
    assert "Did you mean 'replicas'?" in named
    assert "timeout" in unfit
    assert "sasl.username" in nowhere


def test_kafka_refuses_what_would_break_the_promise() -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_broker("kafka://a:9092?acks=1&request.required.acks=1&enable.idempotence=false&group.id=x", clock=CLOCK)
    assert "acks" in str(caught.value)
    with pytest.raises(ConfigurationError) as caught:
        open_broker("kafka://a:9092?enable.idempotence=false&group.id=x", clock=CLOCK)
    idempotence, group = caught.value.problems
    assert "Posthouse sets enable.idempotence=True" in idempotence
    assert "group.id" in group


def test_redis_takes_options_and_those_of_its_driver() -> None:
    broker = open_broker("rediss://shop:word@host:6380/2?retention=60&sync=always&client_name=orders", clock=CLOCK)
    assert isinstance(broker, RedisBroker)
    assert (broker.sheet.name, broker.sheet.durable_ack, broker.sheet.redelivery_s) == ("redis", True, 60)
    given = broker._client._client.connection_pool.connection_kwargs
    assert (given["host"], given["port"], given["db"], given["client_name"]) == ("host", 6380, 2, "orders")
    assert broker._client._client.connection_pool.connection_class is TlsConnection


def test_every_problem_of_a_redis_url_is_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_broker("redis:///0?retentoin=5&sync=often", clock=CLOCK)
    named, unfit, nowhere = caught.value.problems
    assert "Did you mean 'retention'?" in named
    assert "sync" in unfit
    assert "redis://host:6379" in nowhere


def test_redis_says_what_its_driver_does_not_take() -> None:
    with pytest.raises(ConfigurationError, match="redis-py does not take"):
        open_broker("redis://host?max_connections=many", clock=CLOCK)


def test_nats_takes_several_servers_and_options() -> None:
    broker = open_broker("nats://shop:word@a:4222,b:4222?replicas=3&retention=86400&dedup=60", clock=CLOCK)
    assert broker.sheet.name == "nats"
    assert broker.sheet.durable_ack
    assert (broker.sheet.retains_unacked, broker.sheet.redelivery_s, broker.sheet.native_dedup_s) == (False, 86400, 60)


def test_every_problem_of_a_nats_url_is_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_broker("nats://?replica=3&sync=often&tls_ca=/nowhere.pem", clock=CLOCK)
    text = str(caught.value)
    assert "no option 'replica'. Did you mean 'replicas'?" in text
    assert "sync" in text
    assert "names no server" in text
