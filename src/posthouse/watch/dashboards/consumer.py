"""One consumer: is it behind, what does it hold, how fast and how well does it work."""

from __future__ import annotations

from posthouse.watch.dashboards.grafana import Dashboard, Row
from posthouse.watch.dashboards.panels import Chosen, graph, stat, variable

_of = Chosen(service="$service", consumer="$consumer")

STANDS = Row(
    "How it stands",
    [
        stat("Unaccounted", _of.farthest("consumer_unaccounted"), "consumer_unaccounted", alarm=1),
        stat("Waiting", _of.total("consumer_in_flight"), "consumer_in_flight", alarm=10_000),
        stat("Lag", _of.worst("consumer_lag_seconds"), "consumer_lag_seconds", "s", 300),
        stat("Dead letters", _of.total("held", state=("dead", "quarantined")), "held", alarm=1),
        stat("Processes", _of.worst("consumer_workers"), "consumer_workers", good=1),
        stat("Nobody can tell", _of.least("consumer_unknown"), "consumer_unknown", alarm=1),
    ],
)

LAG = Row(
    "Lag",
    [
        graph("Waiting, by topic", _of.total("consumer_in_flight", "consumer", "topic"), "consumer_in_flight"),
        graph("Oldest, by topic", _of.worst("consumer_lag_seconds", "consumer", "topic"), "consumer_lag_seconds", "s"),
        graph("Applied", _of.rate("consumer_applied_total", "consumer", "topic"), "consumer_applied_total", "ops"),
    ],
)

HELD = Row(
    "Held",
    [
        graph("By state", _of.total("held", "consumer", "state"), "held"),
        graph("Oldest, by state", _of.worst("held_oldest_seconds", "consumer", "state"), "held_oldest_seconds", "s"),
        graph("Due and not run", _of.worst("held_runnable_seconds", "consumer"), "held_runnable_seconds", "s"),
        graph("Due retries", _of.worst("held_due", "consumer"), "held_due"),
        graph("Dying", _of.rate("events_dead_total", "consumer", "state"), "events_dead_total", "ops"),
        graph("Given up", _of.total("consumer_given_up", "consumer", "reason"), "consumer_given_up"),
    ],
)

WORK = Row(
    "Work",
    [
        graph(
            "Tried, by result", _of.rate("events_consumed_total", "consumer", "result"), "events_consumed_total", "ops"
        ),
        graph(
            "Share that failed",
            _of.share(
                _of.rate("events_consumed_total", "consumer", result="error"),
                _of.rate("events_consumed_total", "consumer"),
                "consumer",
            ),
            "events_consumed_total",
            "percentunit",
            0.05,
        ),
        graph("One event", _of.quantiles("event_processing_seconds", "consumer"), "event_processing_seconds", "s"),
        graph("Age when applied", _of.quantiles("event_age_seconds", "consumer"), "event_age_seconds", "s"),
        graph("Known already", _of.rate("inbox_duplicates_total", "consumer"), "inbox_duplicates_total", "ops"),
        graph(
            "Forged or unsigned",
            _of.rate("signatures_refused_total", "service", "reason", "mode"),
            "signatures_refused_total",
            "ops",
        ),
        graph("Unreadable", _of.rate("schema_failures_total", "consumer", "reason"), "schema_failures_total", "ops"),
        graph(
            "In hand, and what is allowed",
            [_of.total("in_hand", "consumer"), _of.total("in_hand_limit", "consumer", legend="{{consumer}} may")],
            "in_hand",
        ),
    ],
)

CONSUMER = Dashboard(
    uid="posthouse-consumer",
    title="Posthouse: consumers",
    says="One consumer, or several: is it behind, what does it hold, how fast and how well does it work.",
    variables=[
        variable("service", "consumer_applied_total"),
        variable("consumer", "consumer_applied_total", service="$service"),
    ],
    rows=[STANDS, LAG, HELD, WORK],
)
