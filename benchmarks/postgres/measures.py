"""What `python -m benchmarks postgres` can measure."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping

from benchmarks.postgres import consuming
from benchmarks.postgres.server import BenchServer
from benchmarks.reading import Reading, Scale

Measure = Callable[[BenchServer, Scale], Coroutine[None, None, list[Reading]]]

MEASURES: Mapping[str, Measure] = {
    "consume": consuming.consume,
}
