"""The overview: does it add up, what is stuck, how old is it, how fast does it go."""

from __future__ import annotations

from posthouse.watch.dashboards.grafana import Dashboard, Row
from posthouse.watch.dashboards.panels import SERVICE, Chosen, graph, stat, variable

_of = Chosen(service=SERVICE)
_WAITING = ("compensation_failed", "partial")

ANSWERS = Row(
    "Does it add up, and what needs a person?",
    [
        stat("Unaccounted", _of.farthest("consumer_unaccounted"), "consumer_unaccounted", alarm=1),
        stat("Nobody can tell", _of.least("consumer_unknown"), "consumer_unknown", alarm=1),
        stat("Dead letters", _of.total("held", state=("dead", "quarantined")), "held", alarm=1),
        stat("Refused by the broker", _of.total("outbox_refused"), "outbox_refused", alarm=1),
        stat("Sagas for people", _of.total("saga_instances", state=_WAITING), "saga_instances", alarm=1),
        stat("Parts that nobody runs", _of.total("unattended"), "unattended", alarm=1),
        stat("Stores that answer", _of.least("store_up"), "store_up", good=1),
        stat("Brokers that answer", _of.least("broker_up"), "broker_up", good=1),
        stat("Oldest unsent", _of.worst("outbox_oldest_unsent_seconds"), "outbox_oldest_unsent_seconds", "s", 60),
        stat("Longest lag", _of.worst("consumer_lag_seconds"), "consumer_lag_seconds", "s", 300),
        stat("Due and not run", _of.worst("held_runnable_seconds"), "held_runnable_seconds", "s", 60),
        stat("Timers overdue", _of.worst("timers_overdue_seconds"), "timers_overdue_seconds", "s", 60),
    ],
)

STUCK = Row(
    "What is stuck",
    [
        graph("Held, by state", _of.total("held", "state"), "held"),
        graph("Oldest held, by state", _of.worst("held_oldest_seconds", "state"), "held_oldest_seconds", "s"),
        graph(
            "Unaccounted", _of.farthest("consumer_unaccounted", "consumer", "topic"), "consumer_unaccounted", alarm=1
        ),
        graph("Nobody can tell", _of.least("consumer_unknown", "consumer", "topic"), "consumer_unknown"),
        graph("Given up", _of.total("consumer_given_up", "consumer", "reason"), "consumer_given_up"),
        graph("Due retries", _of.worst("held_due", "consumer"), "held_due"),
    ],
)

AGES = Row(
    "Ages",
    [
        graph(
            "Oldest unsent", _of.worst("outbox_oldest_unsent_seconds", "service"), "outbox_oldest_unsent_seconds", "s"
        ),
        graph("Lag of consumers", _of.worst("consumer_lag_seconds", "consumer"), "consumer_lag_seconds", "s"),
        graph("Due and not run", _of.worst("held_runnable_seconds", "consumer"), "held_runnable_seconds", "s"),
        graph("Timers overdue", _of.worst("timers_overdue_seconds", "service"), "timers_overdue_seconds", "s"),
        graph("Schedules overdue", _of.worst("schedule_overdue_seconds", "schedule"), "schedule_overdue_seconds", "s"),
        graph("Audit log overdue", _of.worst("audit_overdue_seconds", "step"), "audit_overdue_seconds", "s"),
        graph("Not archived yet", _of.total("archive_waiting", "service"), "archive_waiting"),
        graph("Oldest not archived", _of.worst("archive_oldest_seconds", "service"), "archive_oldest_seconds", "s"),
        graph("Timers that are set", _of.total("timers", "service"), "timers"),
    ],
)

RATES = Row(
    "Rates",
    [
        graph("Committed", _of.rate("outbox_committed_total", "topic"), "outbox_committed_total", "ops"),
        graph("Sent", _of.rate("outbox_sent_total", "topic"), "outbox_sent_total", "ops"),
        graph("Published", _of.rate("events_published_total", "outcome"), "events_published_total", "ops"),
        graph(
            "Published, by class of tenant",
            _of.rate("events_published_total", "tenant_class"),
            "events_published_total",
            "ops",
        ),
        graph("Applied", _of.rate("consumer_applied_total", "consumer"), "consumer_applied_total", "ops"),
        graph("Tried, by result", _of.rate("events_consumed_total", "result"), "events_consumed_total", "ops"),
        graph("Waiting for consumers", _of.total("consumer_in_flight", "consumer"), "consumer_in_flight"),
        graph("Archived", _of.rate("archive_events_total", "service"), "archive_events_total", "ops"),
        graph("Dying", _of.rate("events_dead_total", "consumer", "state"), "events_dead_total", "ops"),
        graph("Known already", _of.rate("inbox_duplicates_total", "consumer"), "inbox_duplicates_total", "ops"),
        graph(
            "Refused at publish", _of.rate("publish_refused_total", "service", "reason"), "publish_refused_total", "ops"
        ),
        graph("Unreadable", _of.rate("schema_failures_total", "consumer", "reason"), "schema_failures_total", "ops"),
    ],
)

LATENCY = Row(
    "How long it takes",
    [
        graph("Age when applied", _of.quantiles("event_age_seconds"), "event_age_seconds", "s"),
        graph("One event", _of.quantiles("event_processing_seconds"), "event_processing_seconds", "s"),
        graph("The crossings", _of.quantiles("crossing_seconds", "crossing"), "crossing_seconds", "s"),
    ],
)

SAGAS = Row(
    "Sagas",
    [
        graph("By state", _of.total("saga_instances", "saga", "state"), "saga_instances"),
        graph("Came to rest", _of.rate("saga_ended_total", "saga", "outcome"), "saga_ended_total", "ops"),
        graph("Oldest, by state", _of.worst("saga_oldest_seconds", "saga", "state"), "saga_oldest_seconds", "s"),
    ],
)

MODELS = Row(
    "Read models",
    [
        graph(
            "Freshness, and what is allowed",
            [
                _of.worst("projection_freshness_seconds", "projection"),
                _of.worst("projection_budget_seconds", "projection", legend="{{projection}} may"),
            ],
            "projection_freshness_seconds",
            "s",
        ),
        graph("Behind", _of.total("projection_lag_events", "projection"), "projection_lag_events"),
    ],
)

RELAY = Row(
    "Relay",
    [
        graph("Unsent", _of.total("outbox_unsent", "service", "topic"), "outbox_unsent"),
        graph("Refused and tried again", _of.worst("outbox_stuck", "service"), "outbox_stuck"),
        graph("Refused for good", _of.worst("outbox_refused", "service"), "outbox_refused", alarm=1),
        graph("Shards", _of.worst("relay_shards", "service", "state"), "relay_shards"),
        graph("Shards taken over", _of.rate("relay_leases_total", "service"), "relay_leases_total", "ops"),
        graph("Relays fenced", _of.rate("relay_fenced_total", "service"), "relay_fenced_total", "ops"),
    ],
)

RESOURCES = Row(
    "Processes and servers",
    [
        graph("Who runs", _of.worst("workers", "service", "part"), "workers"),
        graph("Who consumes", _of.worst("consumer_workers", "consumer"), "consumer_workers"),
        graph("Parts that nobody runs", _of.worst("unattended", "service", "part"), "unattended", alarm=1),
        graph(
            "In hand, and what is allowed",
            [_of.total("in_hand", "consumer"), _of.total("in_hand_limit", "consumer", legend="{{consumer}} may")],
            "in_hand",
        ),
        graph(
            "Connections",
            [
                _of.worst("store_connections", "service", "state"),
                _of.worst("store_connections_limit", "service", legend="{{service}} may"),
            ],
            "store_connections",
        ),
        graph("Reconnects", _of.rate("reconnects_total", "service", "server"), "reconnects_total", "ops"),
        graph("Loops begun again", _of.rate("loop_restarts_total", "service", "loop"), "loop_restarts_total", "ops"),
        graph("Loops that do not turn", _of.worst("loop_silent_seconds", legend="longest"), "loop_silent_seconds", "s"),
        graph("Lives of the database", _of.worst("store_runs_total", "service"), "store_runs_total"),
        graph("A look takes", _of.worst("scrape_seconds", "service"), "scrape_seconds", "s"),
        graph("Versions", _of.total("build_info", "version"), "build_info"),
    ],
)

OVERVIEW = Dashboard(
    uid="posthouse-overview",
    title="Posthouse",
    says="Does it add up, what is stuck, how old is it, how fast does it go, and what does it stand on.",
    variables=[variable("service", "workers")],
    rows=[ANSWERS, STUCK, AGES, RATES, LATENCY, SAGAS, MODELS, RELAY, RESOURCES],
)
