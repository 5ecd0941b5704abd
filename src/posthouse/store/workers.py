"""PORT: who runs. A worker is a process that runs services, or a part of what they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

Aside = Literal["waits", "later", "unfit"]
"""Why a worker does not run a saga at the moment. waits: it will, as soon as those that run it stand aside. later: a later release
runs it, or will. unfit: it could not go on with what is stored, and keeps nobody from running it."""


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One worker. `id` is drawn anew at each start; `name` is host and process, as envelopes have it. `version` is that of
    Posthouse, `commit` what the application says of itself in POSTHOUSE_COMMIT. `consumers` are those that its services declare;
    they run where it runs that part. `releases` has the release of each saga that it could run, by consumer, and `aside` those of
    them that it does not run at the moment, each with the reason. `figures` are those of its seam, as JSON.

    As it is read: it runs for `since` seconds, gave its last sign of life `age` seconds ago, both by the store's clock, and
    `stopped` says that it ended in good order.
    """

    id: str
    services: Sequence[str]
    name: str
    host: str
    pid: int
    version: str
    commit: str = ""
    parts: Sequence[str] = ()
    consumers: Sequence[str] = ()
    releases: Mapping[str, str] = {}
    aside: Mapping[str, Aside] = {}
    since: float = 0.0
    age: float = 0.0
    stopped: bool = False
    figures: bytes = b"[]"


class WorkerTable(Protocol):
    """One row for each worker. Written every few seconds, and never in the transaction of an event."""

    async def beat(self, worker: Worker, *, keep: float, figures: bytes | None = None, stopped: bool = False) -> None:
        """A sign of life; the first one adds the row, and each says who stands `aside`. `figures` replaces those of before, None leaves them. Forgets those who
        gave none for `keep` seconds."""
        ...

    async def read(self) -> Sequence[Worker]:
        """Whoever is there, sorted by services, name and start."""
        ...
