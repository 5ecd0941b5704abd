"""What `python -m benchmarks postgres` can measure."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping

from benchmarks import signing
from benchmarks.postgres import (
    browsing,
    committing,
    consuming,
    fencing,
    latency,
    processes,
    rebuilding,
    relaying,
    scraping,
    storage,
)
from benchmarks.postgres.server import BenchServer
from benchmarks.reading import Reading, Scale

Measure = Callable[[BenchServer, Scale], Coroutine[None, None, list[Reading]]]

MEASURES: Mapping[str, Measure] = {
    "relay": relaying.relay,
    "relay-one-key": relaying.one_key,
    "commit": committing.commit,
    "consume": consuming.consume,
    "consume-one-key": consuming.one_key,
    "sagas": processes.sagas,
    "rebuild": rebuilding.rebuild,
    "latency": latency.latency,
    "latency-held": latency.held_open,
    "order": fencing.order,
    "browsing": browsing.browsing,
    "wal": storage.wal,
    "backlog": storage.backlog,
    "scrape": scraping.scrape,
    "signing": signing.on_postgres,
}

BIG: Mapping[str, Measure] = {
    "backlog": storage.backlog_big,
    "rebuild": rebuilding.rebuild_big,
    "scrape": scraping.scrape_big,
}
"""What `--big` measures instead."""
