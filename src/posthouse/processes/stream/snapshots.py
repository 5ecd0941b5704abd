"""Snapshots: a cache of what streams come to. Nothing is lost when they are."""

from __future__ import annotations

import logging
from typing import Generic, TypeVar

from posthouse.contracts import PayloadType, payload_of
from posthouse.errors import ConfigurationError, ContractError
from posthouse.store.streams import Snapshot

log = logging.getLogger("posthouse.streams")

S = TypeVar("S")


class Snapshots(Generic[S]):
    """Writes and reads the states of one aggregate. A snapshot is used only by code whose state has the same fields, and
    that has the same `revision`: what the author raises when `evolve` sees the same events in another way."""

    def __init__(self, aggregate: str, state: type[S], every: int, revision: int) -> None:
        self._aggregate = aggregate
        self._every = every
        self._payload = _payload(state)
        self._shape = f"{self._payload.schema.hash} {revision}"
        self._unequal = False

    def due(self, before: int, after: int) -> bool:
        """Whether a stream that grew from one version to another has come far enough for a new one."""
        return after // self._every > before // self._every

    def taken(self, state: S, version: int) -> Snapshot | None:
        """A snapshot; None, and a word in the log, of a state that cannot be written or would read otherwise."""
        try:
            data = self._payload.encode(state)
            equal = self._payload.decode(data) == state
        except ContractError as error:
            self._warn(str(error))
            return None
        if not equal:
            self._warn("it reads back as another one: annotate its fields exactly, and let the class compare by value")
            return None
        return Snapshot(version, self._shape, data)

    def state(self, snapshot: Snapshot) -> S | None:
        """The state of a snapshot; None when it was written by other code, or cannot be read."""
        if snapshot.shape != self._shape:
            return None
        try:
            return self._payload.decode(snapshot.state)
        except ContractError as error:
            log.warning("%s: a snapshot is passed over: %s", self._aggregate, error)
            return None

    def _warn(self, why: str) -> None:
        if not self._unequal:
            self._unequal = True
            log.warning("%s: no snapshot is taken of its state: %s", self._aggregate, why)


def _payload(state: type[S]) -> PayloadType[S]:
    try:
        return payload_of(state)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"no snapshot can be taken of a {state.__name__}: let it be a dataclass, a msgspec Struct or a pydantic model whose "
            f"fields travel as JSON, or leave snapshot_every out ({error})"
        ) from error
