"""Alert: one rule of Prometheus, with a case in which it fires and one in which it just does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from posthouse.options import Chance, Options, SomeSeconds
from posthouse.store import HeldState
from posthouse.watch.promql import Promql
from posthouse.watch.table import metric

Severity = Literal["page", "ticket"]
"""page: customers wait, something may be lost, or nobody would see it; wake somebody. ticket: it is for the next working day."""

Owner = Literal["service", "service, product", "platform"]
"""Who is on call for it."""

Number = Annotated[float, msgspec.Meta(ge=0)]


class Thresholds(Options):
    """Beyond what an alert fires, all in one place. Ages are seconds; shares are between 0 and 1."""

    outbox_lag_seconds: SomeSeconds = 60.0
    relay_lag_p99_seconds: SomeSeconds = 30.0
    consumer_lag_events: Number = 10_000
    consumer_lag_seconds: SomeSeconds = 300.0
    dead_letters: Number = 10
    dead_letters_a_minute: Number = 1
    error_share: Chance = 0.05
    schema_failure_share: Chance = 0.001
    duplicate_share: Chance = 0.5
    retrying_seconds: SomeSeconds = 3_600.0
    gap_seconds: SomeSeconds = 900.0
    blocked_seconds: SomeSeconds = 1_800.0
    due_seconds: SomeSeconds = 60.0
    in_hand_share: Chance = 0.95
    saga_partial_share: Chance = 0.01
    saga_seconds: SomeSeconds = 86_400.0
    saga_undo_seconds: SomeSeconds = 3_600.0
    timers_seconds: SomeSeconds = 60.0
    schedule_seconds: SomeSeconds = 300.0
    projection_seconds: SomeSeconds = 60.0
    archive_seconds: SomeSeconds = 900.0
    audit_seconds: SomeSeconds = 3_600.0
    connections_share: Chance = 0.8
    leases_taken_over: Number = 20
    relays_fenced: Number = 3
    reconnects: Number = 5
    loop_restarts: Number = 3
    look_seconds: SomeSeconds = 5.0
    loop_seconds: SomeSeconds = 30.0


class Given(msgspec.Struct, frozen=True):
    """What was scraped of one figure in a case: a value a minute, in the notation of promtool. Labels that are not said are
    those of the example; every figure of a store is said by two processes."""

    name: str
    values: str
    labels: Mapping[str, str] = {}


class Case(msgspec.Struct, frozen=True):
    """How it stands after so many minutes (0: three more than the alert holds), and what labels the alert has then, where they are
    others than those of the example."""

    given: Sequence[Given]
    after: int = 0
    labels: Mapping[str, str] = {}


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """`expr` answers with a line for each trouble. `hold`: it must last so many seconds. `by`: labels that the alert has."""

    name: str
    ask: Promql
    """With what its expression was made."""
    expr: str
    hold: float
    severity: Severity
    owner: Owner = "service"
    page: str
    """The runbook, without its ending."""
    by: Sequence[str]
    summary: str
    description: str
    when: str
    """The condition in words, as the runbook says it."""
    fires: Case
    quiet: Case
    states: Sequence[HeldState] = ()
    """The held states that it is about."""


UP = "up"
"""What Prometheus itself says of every process that it scrapes."""

EXAMPLE: Mapping[str, str] = {
    "service": "shop",
    "consumer": "shop.billing",
    "topic": "shop.orders.order",
    "saga": "booking",
    "schedule": "sweep",
    "projection": "listings",
    "part": "relay",
    "loop": "relay",
    "server": "broker",
    "reason": "skipped",
    "instance": "a",
    "job": "posthouse",
}
"""The labels of a case."""


def lasting(value: float) -> str:
    """The same value for an hour and a half."""
    return f"{value:g}x90"


def given(name: str, values: str, **labels: str) -> Given:
    """Every label of the figure, as it is said or as in the example."""
    known = ("job",) if name == UP else metric(name).labels
    return Given(name, values, {label: EXAMPLE.get(label, "x") for label in known} | labels)
