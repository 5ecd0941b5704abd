"""Alerts on the sum, on those who look, and on what everything stands on: the store and the broker."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.watch.alerts.alert import UP, Alert, Case, Thresholds, given, lasting
from posthouse.watch.promql import A_DAY, Promql

LINE = ("service", "consumer", "topic")
QUARTER = 900.0
"""Seconds in which a few of something are many."""
LOOKED = 240.0
"""One look of so many seconds that shows a loss is enough; shorter than the alert holds, so that a single one is not."""
JOB = "posthouse.*"
"""The jobs of Prometheus that scrape us, as the documentation calls them."""


def equation(ask: Promql) -> Sequence[Alert]:
    return (
        Alert(
            name="events_unaccounted",
            ask=ask,
            expr=ask.strayed("consumer_unaccounted", *LINE, window=LOOKED),
            hold=300,
            severity="page",
            page="equation",
            by=LINE,
            summary="Events for {{ $labels.consumer }} are missing, or too many",
            description="{{ $value }} of the events of {{ $labels.topic }} that were committed are neither applied nor in flight nor "
            "held by {{ $labels.consumer }}, or were counted too often. Nothing mends this by itself.",
            when="committed ≠ applied + in flight + held + given up, for certain, in a look every few minutes",
            fires=Case([given("consumer_unaccounted", " ".join(["0 -2 _"] * 30))]),
            quiet=Case([given("consumer_unaccounted", "0x4 2 0x30")], after=10),
        ),
        Alert(
            name="equation_unknown",
            ask=ask,
            expr=f"{ask.least('consumer_unknown', *LINE)} > 0",
            hold=3_600,
            severity="ticket",
            page="equation",
            by=LINE,
            summary="Nobody can tell whether it adds up for {{ $labels.consumer }}",
            description="No process that looks knows all of the sum of {{ $labels.topic }} at {{ $labels.consumer }}: a loss would "
            "not be seen.",
            when="nobody could tell for an hour whether it adds up",
            fires=Case([given("consumer_unknown", lasting(1))]),
            quiet=Case(
                [given("consumer_unknown", lasting(1)), given("consumer_unknown", lasting(0), instance="knows more")]
            ),
        ),
    )


def watching(ask: Promql, over: Thresholds) -> Sequence[Alert]:
    day = ask.duration(A_DAY)
    keep = ", ".join(("service", *ask.keep))
    return (
        Alert(
            name="nobody_watches",
            ask=ask,
            expr=f"absent({ask.series('store_up')})",
            hold=300,
            severity="page",
            owner="platform",
            page="watching",
            by=(),
            summary="No figures of any service come in",
            description="Nothing that Prometheus scrapes says how any store stands. All other alerts are blind until it does.",
            when="no process at all says how a store stands",
            fires=Case([given("build_info", lasting(1))]),
            quiet=Case([given("store_up", lasting(0))]),
        ),
        Alert(
            name="service_unwatched",
            ask=ask,
            expr=f"max by ({keep}) (last_over_time({ask.series('store_up')}[{day}])) "
            f"unless {ask.worst('store_up', 'service')}",
            hold=300,
            severity="page",
            owner="platform",
            page="watching",
            by=("service",),
            summary="Nobody looks at {{ $labels.service }} any more",
            description="The store of {{ $labels.service }} was looked at within a day, and nobody does now: its other alerts are "
            "blind. Start `posthouse watch` for it, or silence this for a day if it is gone for good.",
            when="a service was watched within a day, and is not now",
            fires=Case([given("store_up", "1x5 stale"), given("store_up", lasting(1), service="other")], after=16),
            quiet=Case([given("store_up", "1x5 stale"), given("store_up", lasting(0), instance="c")], after=16),
        ),
        Alert(
            name="target_down",
            ask=ask,
            expr=f'{UP}{{job=~"{JOB}"}} == 0',
            hold=300,
            severity="ticket",
            owner="platform",
            page="watching",
            by=("instance", "job"),
            summary="{{ $labels.instance }} does not answer scrapes",
            description="Prometheus cannot scrape {{ $labels.instance }} of {{ $labels.job }}: its process is gone, hangs, or cannot "
            "be reached.",
            when="a process that should be scraped does not answer",
            fires=Case([given(UP, lasting(0))]),
            quiet=Case([given(UP, "0x4 1x30")], after=6),
        ),
        Alert(
            name="loop_hangs",
            ask=ask,
            expr=f"{ask.series('loop_silent_seconds')} > {over.loop_seconds:g}",
            hold=60,
            severity="page",
            page="nobody-runs",
            by=("instance",),
            summary="A process hangs",
            description="The event loop of {{ $labels.instance }} has not turned for {{ $value | humanizeDuration }}: nothing in that "
            "process moves.",
            when=f"the event loop of a process has not turned for more than {over.loop_seconds:g} s",
            fires=Case([given("loop_silent_seconds", lasting(over.loop_seconds + 1))]),
            quiet=Case([given("loop_silent_seconds", lasting(over.loop_seconds))]),
        ),
        Alert(
            name="look_slow",
            ask=ask,
            expr=f"{ask.worst('scrape_seconds', 'service')} > {over.look_seconds:g}",
            hold=900,
            severity="ticket",
            owner="platform",
            page="watching",
            by=("service",),
            summary="Reading the figures of {{ $labels.service }} is slow",
            description="A look at the store and the broker of {{ $labels.service }} takes {{ $value | humanizeDuration }}.",
            when=f"a look at store and broker takes more than {over.look_seconds:g} s",
            fires=Case([given("scrape_seconds", lasting(over.look_seconds + 1))]),
            quiet=Case([given("scrape_seconds", lasting(over.look_seconds))]),
        ),
    )


def ground(ask: Promql, over: Thresholds) -> Sequence[Alert]:
    return (
        Alert(
            name="store_unreachable",
            ask=ask,
            expr=f"{ask.worst('store_up', 'service')} == 0",
            hold=60,
            severity="page",
            page="store",
            by=("service",),
            summary="The store of {{ $labels.service }} does not answer",
            description="No process that looks could read the store of {{ $labels.service }}. Its other figures are absent, and so "
            "are the alerts on them.",
            when="the store answers nobody",
            fires=Case([given("store_up", lasting(0))]),
            quiet=Case([given("store_up", lasting(0)), given("store_up", lasting(1), instance="nearer")]),
        ),
        Alert(
            name="broker_unreachable",
            ask=ask,
            expr=f"{ask.worst('broker_up', 'service')} == 0",
            hold=120,
            severity="page",
            page="broker",
            by=("service",),
            summary="The broker of {{ $labels.service }} does not answer",
            description="No process that looks could ask the broker of {{ $labels.service }}. Events wait in the outbox; none is lost.",
            when="the broker answers nobody",
            fires=Case([given("broker_up", lasting(0))]),
            quiet=Case([given("broker_up", lasting(0)), given("broker_up", lasting(1), instance="nearer")]),
        ),
        Alert(
            name="reconnects_frequent",
            ask=ask,
            expr=f"{ask.increase('reconnects_total', 'service', 'server', window=QUARTER)} > {over.reconnects:g}",
            hold=0,
            severity="ticket",
            page="broker",
            by=("service", "server"),
            summary="{{ $labels.service }} loses its {{ $labels.server }} again and again",
            description="Processes of {{ $labels.service }} had to connect to their {{ $labels.server }} again "
            "{{ $value | humanize }} times in a quarter of an hour.",
            when=f"more than {over.reconnects:g} reconnects in a quarter of an hour",
            fires=Case([given("reconnects_total", "0+1x60")], after=30),
            quiet=Case([given("reconnects_total", f"0x10 {over.reconnects - 1:g}x60")], after=15),
        ),
        Alert(
            name="store_connections_near_limit",
            ask=ask,
            expr=f"{ask.worst('store_connections', 'service', state='used')} / {ask.worst('store_connections_limit', 'service')} "
            f"> {over.connections_share:g}",
            hold=600,
            severity="ticket",
            owner="platform",
            page="store",
            by=("service",),
            summary="The database of {{ $labels.service }} is nearly out of connections",
            description="{{ $value | humanizePercentage }} of the connections of the database server of {{ $labels.service }} are "
            "taken. At all of them new processes cannot start, and transactions fail.",
            when=f"more than {over.connections_share:.0%} of the connections of the database server are taken",
            fires=Case(
                [
                    given("store_connections", lasting(81), state="used"),
                    given("store_connections_limit", lasting(100)),
                ]
            ),
            quiet=Case(
                [
                    given("store_connections", lasting(80), state="used"),
                    given("store_connections", lasting(20), state="free"),
                    given("store_connections_limit", lasting(100)),
                ]
            ),
        ),
        Alert(
            name="store_began_anew",
            ask=ask,
            expr=f"{ask.increase('store_runs_total', 'service', window=3_600)} > 0",
            hold=0,
            severity="ticket",
            page="store",
            by=("service",),
            summary="The database of {{ $labels.service }} began a new life",
            description="The database behind {{ $labels.service }} was restarted, or a backup was restored, or a standby promoted. "
            "After a restart all is as it was; after the others what was committed last may be gone, and numbers be given twice.",
            when="the database was restarted, restored or promoted within the hour",
            fires=Case([given("store_runs_total", "1x10 2x60")], after=30),
            quiet=Case([given("store_runs_total", lasting(7))], after=30),
        ),
        Alert(
            name="loop_restarts",
            ask=ask,
            expr=f"{ask.increase('loop_restarts_total', 'service', 'loop', window=QUARTER)} > {over.loop_restarts:g}",
            hold=0,
            severity="ticket",
            page="nobody-runs",
            by=("service", "loop"),
            summary="{{ $labels.loop }} of {{ $labels.service }} fails and begins again",
            description="The loop {{ $labels.loop }} of {{ $labels.service }} failed and was begun again {{ $value | humanize }} "
            "times in a quarter of an hour.",
            when=f"a loop begins again more than {over.loop_restarts:g} times in a quarter of an hour",
            fires=Case([given("loop_restarts_total", "0+1x60")], after=30),
            quiet=Case([given("loop_restarts_total", f"0x10 {over.loop_restarts - 1:g}x60")], after=15),
        ),
        Alert(
            name="nobody_runs",
            ask=ask,
            expr=f"{ask.worst('unattended', 'service', 'part')} > 0",
            hold=300,
            severity="page",
            page="nobody-runs",
            by=("service", "part"),
            summary="Nobody runs {{ $labels.part }} of {{ $labels.service }}",
            description="Work of {{ $labels.service }} waits for {{ $labels.part }}, and no process that runs it has given a sign of "
            "life.",
            when="work waits for a part that nobody runs",
            fires=Case([given("unattended", lasting(1))]),
            quiet=Case([given("unattended", "1x4 0x30")], after=6),
        ),
    )
