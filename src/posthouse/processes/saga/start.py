"""SagaStart: what `start_saga` answers."""

from __future__ import annotations

from typing import Literal

import msgspec

from posthouse.store.sagas import SagaRow, SagaStatus


class SagaStart(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a saga was started, and which one stands under its id now. `started`: this one. `running`: there is one that
    has not ended. `ended`: there was one, and what it ended as is not among those after which it may begin again. It is
    true only when it was started."""

    outcome: Literal["started", "running", "ended"]
    attempt: int
    status: SagaStatus

    def __bool__(self) -> bool:
        return self.outcome == "started"


def started(row: SagaRow) -> SagaStart:
    """This one, now."""
    return SagaStart(outcome="started", attempt=row.attempt, status=row.status)


def not_started(row: SagaRow) -> SagaStart:
    """For there is this one."""
    return SagaStart(outcome="ended" if row.ended else "running", attempt=row.attempt, status=row.status)
