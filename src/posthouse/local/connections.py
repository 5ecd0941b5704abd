"""Connections that say nothing, speak slowly, or take no answer: they have a deadline, and give way to others before anybody is sent away."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import cast

import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection may do before its request is there. Times are seconds."""

    headers: float = 10.0
    """From the connection, or the last answer's end, to the end of a request's headers."""
    taking: float = 30.0
    """For which nothing of an answer is taken."""
    most: int = 300
    """Connections whose request is not there yet; of one more, the oldest of the busiest address is cut off."""
    most_of_one_address: int = 100


class Waiting:
    """The connections whose request is not there yet, oldest first."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._since: dict[_Connection, None] = {}
        self._of_address: Counter[str] = Counter()

    def add(self, connection: _Connection) -> None:
        """One more; one of too many is cut off."""
        if connection in self._since:
            return
        self._since[connection] = None
        self._of_address[connection.address] += 1
        if self._of_address[connection.address] > self._patience.most_of_one_address:
            self._cut_off(connection.address)
        elif len(self._since) > self._patience.most:
            self._cut_off(self._of_address.most_common(1)[0][0])

    def discard(self, connection: _Connection) -> None:
        """Its request is there, or it is gone."""
        if connection in self._since:
            del self._since[connection]
            self._of_address[connection.address] -= 1
            if not self._of_address[connection.address]:
                del self._of_address[connection.address]

    def _cut_off(self, address: str) -> None:
        oldest = next(connection for connection in self._since if connection.address == address)
        self.discard(oldest)
        oldest.transport.abort()


class _Connection(H11Protocol):
    waiting: Waiting
    patience: Patience
    address = ""
    _deadline: asyncio.TimerHandle | None = None
    _taken: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._taken = self.loop.call_later(self.patience.taking, self.transport.abort)

    def resume_writing(self) -> None:
        self._is_taken()
        super().resume_writing()

    def _is_taken(self) -> None:
        if self._taken is not None:
            self._taken.cancel()
            self._taken = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        self._is_taken()
        self.waiting.discard(self)
        super().connection_lost(exc)

    def _watch(self) -> None:
        """It is waited for until all of a request is there; its headers have a deadline, its body has the application's."""
        cycle = cast(
            "RequestResponseCycle | None", self.cycle
        )  # None before the first request, though uvicorn's types deny it
        answering = cycle is not None and not cycle.response_complete
        if answering:
            self._unwatch()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.patience.headers, self._overdue)
        if self.transport.is_closing() or (answering and not self.cycle.more_body):
            self.waiting.discard(self)
        else:
            self.waiting.add(self)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _overdue(self) -> None:
        self._deadline = None
        self.transport.abort()


def patient_protocol(patience: Patience | None = None) -> type[H11Protocol]:
    """A protocol for one server of uvicorn."""
    chosen = patience or Patience()
    return type("PatientProtocol", (_Connection,), {"waiting": Waiting(chosen), "patience": chosen})
