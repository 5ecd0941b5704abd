"""Table: every figure that Posthouse shows, once. Code, documentation, alert rules and dashboards are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal, get_args

import msgspec

from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.seam.timing import Crossing
from posthouse.store import HeldState
from posthouse.store.sagas import NOT_OVER, Rest

Kind = Literal["counter", "gauge", "histogram"]

Source = Literal["process", "store"]
"""process: only a running process knows, and counts it in memory. store: read from the store and the broker when somebody asks, so
it is true while every worker is dead. Several processes may say the same store figure: take the `max` of them, never the sum."""

Unit = Literal["seconds", "events", "sagas", "timers", "workers", "shards", "connections", "times", "1 or 0"]

PREFIX = "posthouse_"


class Also(msgspec.Struct, frozen=True, kw_only=True):
    """The same figure under the name that a platform gave it, without its prefix. Labels that it does not have are summed away."""

    name: str
    labels: Mapping[str, str]
    """Which of our labels it has, and what they are called there."""
    words: Mapping[str, Mapping[str, str]] = {}
    """Of these labels of ours only these words count, and what they are called there."""

    def place(self, labels: Mapping[str, str]) -> tuple[str, ...] | None:
        """The words of its labels, in their order, for a series of ours; None where that does not count."""
        theirs = {label: words.get(labels[label]) for label, words in self.words.items()}
        if None in theirs.values():
            return None
        return tuple(theirs.get(label) or labels[label] for label in self.labels)


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One figure: its name without the prefix, and the labels that it always has."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    unit: Unit
    meaning: str
    """One sentence."""
    source: Source
    words: Mapping[str, tuple[str, ...]] = {}
    """Labels that can be one of these words only; of any other label the words are the names that the code declares."""
    also: Also | None = None

    @property
    def full(self) -> str:
        """The name as it is scraped."""
        return PREFIX + self.name


def metric(name: str) -> Metric:
    """The figure of this name, with or without the prefix. ConfigurationError if there is none."""
    short = name.removeprefix(PREFIX)
    if short not in TABLE:
        raise ConfigurationError(f"there is no metric {name!r}.{did_you_mean(short, TABLE)}")
    return TABLE[short]


_HELD = get_args(HeldState)
_PLACE = ("service", "consumer", "topic")


def _metric(
    source: Source,
    name: str,
    kind: Kind,
    unit: Unit,
    labels: tuple[str, ...],
    meaning: str,
    words: Mapping[str, tuple[str, ...]] | None = None,
    also: Also | None = None,
) -> Metric:
    return Metric(
        name=name, kind=kind, labels=labels, unit=unit, meaning=meaning, source=source, words=words or {}, also=also
    )


_store = partial(_metric, "store")
_process = partial(_metric, "process")

_STORE = (
    _store("store_up", "gauge", "1 or 0", ("service",), "Whether the store answered in time at this look."),
    _store("broker_up", "gauge", "1 or 0", ("service",), "Whether the broker answered in time at this look."),
    _store(
        "outbox_committed_total",
        "counter",
        "events",
        ("service", "topic"),
        "Events that transactions of this service have committed; absent while too many wait to be counted at a look.",
    ),
    _store(
        "outbox_sent_total",
        "counter",
        "events",
        ("service", "topic"),
        "Events of this service that the broker has accepted.",
    ),
    _store(
        "outbox_unsent",
        "gauge",
        "events",
        ("service", "topic"),
        "Committed events that the broker has not accepted yet, those aside that it refused for good; absent for a topic that was not "
        "seen in a backlog too long to be counted.",
        also=Also(name="outbox_unpublished_count", labels={"service": "service"}),
    ),
    _store(
        "outbox_oldest_unsent_seconds",
        "gauge",
        "seconds",
        ("service",),
        "How long the oldest event that is not sent has waited since it was written, or since the broker first refused it; 0 when none waits.",
        also=Also(name="outbox_oldest_unpublished_seconds", labels={"service": "service"}),
    ),
    _store(
        "outbox_stuck",
        "gauge",
        "events",
        ("service",),
        "Events that the broker refused, so that what follows them under their key waits.",
    ),
    _store(
        "outbox_refused",
        "gauge",
        "events",
        ("service",),
        "Events that the broker refused for good: nothing sends them until a person decides.",
    ),
    _store(
        "consumer_applied_total",
        "counter",
        "events",
        _PLACE,
        "Events whose handlers have committed, each counted once.",
    ),
    _store(
        "consumer_given_up",
        "gauge",
        "events",
        (*_PLACE, "reason"),
        "Events that will not be applied: skipped by a person, or lost before they came; fewer when one of them is tried again, or comes.",
        words={"reason": ("skipped", "lost")},
    ),
    _store(
        "consumer_in_flight",
        "gauge",
        "events",
        _PLACE,
        "Events between the producer's commit and the consumer: unsent, or waiting at the broker.",
    ),
    _store(
        "consumer_lag_seconds",
        "gauge",
        "seconds",
        _PLACE,
        "How long the oldest event that has not reached the consumer has waited, at the broker or unsent, since it was written; at "
        "least so long where the process that says it saw it at the broker only, and absent where nobody knows.",
    ),
    _store(
        "archive_waiting",
        "gauge",
        "events",
        ("service",),
        "Events that the broker has and the archive has not.",
    ),
    _store(
        "archive_oldest_seconds",
        "gauge",
        "seconds",
        ("service",),
        "How long the oldest event that is not archived has been at the broker; absent where the broker cannot tell.",
    ),
    _store(
        "consumer_unaccounted",
        "gauge",
        "events",
        _PLACE,
        "Events that are certainly missing (above 0) or too many (below), whatever moves meanwhile; 0 when it adds up.",
    ),
    _store(
        "consumer_unknown",
        "gauge",
        "1 or 0",
        _PLACE,
        "Whether it cannot be told here that it adds up: 1 then, 0 else; the producer must be looked at too, so take the `min`.",
    ),
    _store(
        "held",
        "gauge",
        "events",
        (*_PLACE, "state"),
        "Events that are held, by the state that they are held in.",
        words={"state": _HELD},
    ),
    _store(
        "held_oldest_seconds",
        "gauge",
        "seconds",
        ("service", "consumer", "state"),
        "How long the event that was held first has been held.",
        words={"state": _HELD},
    ),
    _store(
        "held_runnable_seconds",
        "gauge",
        "seconds",
        ("service", "consumer"),
        "How long a retry that is due, or a gap past its deadline, has waited for somebody to run it.",
    ),
    _store(
        "held_due",
        "gauge",
        "events",
        ("service", "consumer"),
        "Held events whose time to be tried again has come; counted up to a bound.",
    ),
    _store("timers", "gauge", "timers", ("service",), "Timers that are set."),
    _store(
        "timers_overdue_seconds",
        "gauge",
        "seconds",
        ("service",),
        "How long the timer that was due first has been due; 0 when none is.",
    ),
    _store(
        "saga_instances",
        "gauge",
        "sagas",
        ("service", "saga", "state"),
        "Sagas that are not over, by their state.",
        words={"state": NOT_OVER},
        also=Also(
            name="saga_inflight_count",
            labels={"service": "service", "saga": "saga_name"},
            words={"state": {state: state for state in ("running", "compensating", "compensation_failed")}},
        ),
    ),
    _store(
        "saga_ended_total",
        "counter",
        "sagas",
        ("service", "saga", "outcome"),
        "Sagas that came to rest, by how; one that was partial counts for each time that it was, and once more when it ends.",
        words={"outcome": get_args(Rest)},
        also=Also(
            name="saga_completed_total",
            labels={"service": "service", "saga": "saga_name", "outcome": "outcome"},
            words={
                "outcome": {
                    "completed": "success",
                    "compensated": "compensated",
                    "cancelled": "compensated",
                    "partial": "partial",
                }
            },
        ),
    ),
    _store(
        "saga_oldest_seconds",
        "gauge",
        "seconds",
        ("service", "saga", "state"),
        "How long ago the oldest saga in this state began.",
        words={"state": NOT_OVER},
    ),
    _store(
        "schedule_overdue_seconds",
        "gauge",
        "seconds",
        ("service", "schedule"),
        "How long ago the moment came for which nobody has begun a run; 0 when none is late.",
    ),
    _store(
        "projection_lag_events",
        "gauge",
        "events",
        ("service", "projection"),
        "Events that the projection has not applied yet.",
    ),
    _store(
        "projection_freshness_seconds",
        "gauge",
        "seconds",
        ("service", "projection"),
        "How long the oldest event has waited that the projection has not applied; 0 when it has all.",
    ),
    _store(
        "projection_budget_seconds",
        "gauge",
        "seconds",
        ("service", "projection"),
        "So many seconds the projection may be behind, as its declaration says.",
    ),
    _store(
        "workers",
        "gauge",
        "workers",
        ("service", "part"),
        "Processes that have given a sign of life lately, by the part that they run.",
    ),
    _store(
        "consumer_workers",
        "gauge",
        "workers",
        ("service", "consumer"),
        "Processes that have given a sign of life lately and run this consumer, those aside that leave it to another release.",
    ),
    _store(
        "unattended",
        "gauge",
        "1 or 0",
        ("service", "part"),
        "Whether work waits for a part that nobody runs: 1 there, 0 elsewhere.",
    ),
    _store(
        "relay_shards",
        "gauge",
        "shards",
        ("service", "state"),
        "Shards of the outbox that a relay has leased, and those that none has.",
        words={"state": ("leased", "free")},
    ),
    _store(
        "relay_leases_total",
        "counter",
        "times",
        ("service",),
        "How often a relay took a shard over: the epochs of all leases.",
    ),
    _store(
        "store_runs_total",
        "counter",
        "times",
        ("service",),
        "How many lives the database has had: a restart, a restored backup or a promoted standby begins a new one.",
    ),
    _store(
        "store_connections",
        "gauge",
        "connections",
        ("service", "state"),
        "Connections of anybody that the database server takes, those in use and those that are free.",
        words={"state": ("used", "free")},
    ),
    _store(
        "store_connections_limit",
        "gauge",
        "connections",
        ("service",),
        "So many connections the database server takes.",
    ),
    _store("scrape_seconds", "gauge", "seconds", ("service",), "How long reading these figures took."),
)

_PROCESS = (
    _process("build_info", "gauge", "1 or 0", ("version",), "Always 1; the version of Posthouse that runs."),
    _process(
        "events_published_total",
        "counter",
        "events",
        ("service", "topic", "tenant_class", "outcome"),
        "Events that the relay handed to the broker, by the broker's answer.",
        words={"outcome": ("accepted", "refused")},
        also=Also(
            name="events_published_total",
            labels={"service": "service", "topic": "topic", "tenant_class": "tenant_id_class"},
            words={"outcome": {"accepted": "accepted"}},
        ),
    ),
    _process(
        "publish_refused_total",
        "counter",
        "events",
        ("service", "reason"),
        "Calls of publish that were refused, by the rule that was broken or the error.",
    ),
    _process(
        "events_consumed_total",
        "counter",
        "events",
        (*_PLACE, "result"),
        "Events that were tried: ok (committed), noop (nothing to do: a duplicate, or nobody handles it), error (failed).",
        words={"result": ("ok", "noop", "error")},
        also=Also(
            name="events_consumed_total",
            labels={"service": "service", "topic": "topic", "consumer": "subscription", "result": "result"},
        ),
    ),
    _process(
        "events_dead_total",
        "counter",
        "events",
        (*_PLACE, "state"),
        "Events that were given up until a person decides; one whose transaction had to be repeated may count twice.",
        words={"state": ("dead", "quarantined")},
        also=Also(
            name="events_dlq_total",
            labels={"service": "service", "topic": "topic", "consumer": "subscription"},
        ),
    ),
    _process(
        "event_processing_seconds",
        "histogram",
        "seconds",
        _PLACE,
        "How long applying one event took, from its claim to its commit or failure.",
        also=Also(
            name="event_processing_duration_seconds",
            labels={"service": "service", "topic": "topic", "consumer": "subscription"},
        ),
    ),
    _process(
        "event_age_seconds",
        "histogram",
        "seconds",
        ("service", "consumer"),
        "How old an event was when it was applied, by the time that it carries.",
    ),
    _process(
        "inbox_duplicates_total",
        "counter",
        "events",
        _PLACE,
        "Deliveries of events that had been applied before, and were not applied again.",
        also=Also(name="inbox_dedup_skips_total", labels={"service": "service", "topic": "topic"}),
    ),
    _process(
        "schema_failures_total",
        "counter",
        "events",
        ("service", "consumer", "reason"),
        "Frames that could not be read as the contract says, by the error.",
    ),
    _process(
        "signatures_refused_total",
        "counter",
        "events",
        ("service", "reason", "mode"),
        "Facts whose signature did not hold or was not there, where signatures are required, or only warned of.",
        words={"reason": ("forged", "unsigned"), "mode": ("require", "warn")},
    ),
    _process(
        "archive_events_total",
        "counter",
        "events",
        ("service",),
        "Events that are in the archive because of this process.",
    ),
    _process(
        "audit_overdue_seconds",
        "gauge",
        "seconds",
        ("service", "step"),
        "How long ago a checkpoint of the audit log was due, and for how long events wait that it does not take; 0 when all is well.",
        words={"step": ("checkpoint", "event")},
    ),
    _process(
        "crossing_seconds",
        "histogram",
        "seconds",
        ("crossing", "name", "outcome"),
        "How long each crossing of the seam took, by what crossed and how it ended.",
        words={"crossing": get_args(Crossing)},
    ),
    _process(
        "in_hand",
        "gauge",
        "events",
        ("service", "consumer"),
        "Deliveries that this process has received and not applied yet.",
    ),
    _process(
        "in_hand_limit",
        "gauge",
        "events",
        ("service", "consumer"),
        "So many deliveries this process takes in hand; then it asks for no more until some are applied.",
    ),
    _process(
        "relay_fenced_total",
        "counter",
        "times",
        ("service",),
        "How often a relay found that another one has taken its shard over, and put its work down.",
    ),
    _process(
        "reconnects_total",
        "counter",
        "times",
        ("service", "server"),
        "How often a server that was away answered again.",
        words={"server": ("store", "broker")},
    ),
    _process(
        "loop_restarts_total",
        "counter",
        "times",
        ("service", "loop"),
        "How often a loop of this process failed and was begun again.",
    ),
    _process(
        "loop_silent_seconds",
        "gauge",
        "seconds",
        (),
        "For how long the event loop of this process has not turned; while it is blocked, figures of stores are absent.",
    ),
)

TABLE: Mapping[str, Metric] = {one.name: one for one in (*_STORE, *_PROCESS)}
"""Every figure, by its name without the prefix."""
