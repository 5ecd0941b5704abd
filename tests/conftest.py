"""Servers that tests may ask for by name; none is started before one does, and costly ones end with their last test. At the end of the run: which ones were."""

from collections.abc import Iterator

import pytest

from tests.kit.oracles.tlog import tlog_oracle
from tests.kit.servers.ending import by_server, end_unused, note_last_uses
from tests.kit.servers.kafka import kafka_server
from tests.kit.servers.nats import nats_server
from tests.kit.servers.pgbouncer import pgbouncer
from tests.kit.servers.postgres import postgres_patterns, postgres_server, postgres_url, store_url
from tests.kit.servers.pubsub import plain_pubsub_server, pubsub_server
from tests.kit.servers.rabbitmq import managed_rabbitmq_server, rabbitmq_server
from tests.kit.servers.redis import redis_server
from tests.kit.servers.roles import ground
from tests.kit.servers.s3 import s3_port
from tests.kit.servers.sqs import sqs_server, sqs_url
from tests.kit.servers.table import print_table

__all__ = [
    "ground",
    "kafka_server",
    "managed_rabbitmq_server",
    "nats_server",
    "pgbouncer",
    "plain_pubsub_server",
    "postgres_patterns",
    "postgres_server",
    "postgres_url",
    "pubsub_server",
    "rabbitmq_server",
    "redis_server",
    "s3_port",
    "sqs_server",
    "sqs_url",
    "store_url",
    "tlog_oracle",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    by_server(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    note_last_uses(session.config, session.items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    yield
    end_unused(item)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    print_table(terminalreporter)
