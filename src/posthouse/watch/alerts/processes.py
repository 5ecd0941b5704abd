"""Alerts on what takes its time: sagas, timers, schedules and read models."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.watch.alerts.alert import Alert, Case, Thresholds, given, lasting
from posthouse.watch.promql import Promql

OF = ("service", "saga")


def ended(ask: Promql, over: Thresholds) -> Sequence[Alert]:
    """`ask` may use the names of a platform."""
    partial = ask.grown("saga_ended_total", *OF, window=900, outcome="partial")
    saga = f"{{{{ $labels.{ask.label('saga_ended_total', 'saga')} }}}}"
    return (
        Alert(
            name="saga_partial_rate",
            ask=ask,
            expr=f"{partial} / {ask.grown('saga_ended_total', *OF, window=900)} > {over.saga_partial_share:g}",
            hold=900,
            severity="ticket",
            owner="service, product",
            page="sagas",
            by=OF,
            summary=f"Many sagas {saga} end in part",
            description=f"{{{{ $value | humanizePercentage }}}} of the sagas {saga} that came to rest in a quarter of an hour did so "
            "with a part undone.",
            when=f"more than {over.saga_partial_share:.0%} of the sagas that came to rest did so with a part undone",
            fires=Case(
                [
                    given("saga_ended_total", "0+2x60", outcome="partial"),
                    given("saga_ended_total", "0+98x60", outcome="completed"),
                    given("saga_ended_total", "_x20 9000x60", outcome="completed", instance="deployed since"),
                ],
                after=40,
            ),
            quiet=Case(
                [
                    given("saga_ended_total", "0+1x60", outcome="partial"),
                    given("saga_ended_total", "0+99x60", outcome="completed"),
                    given("saga_ended_total", "_x20 9000x60", outcome="partial", instance="deployed since"),
                    given("saga_ended_total", "_x30 9000x60", outcome="partial", instance="deployed after that"),
                ],
                after=40,
            ),
        ),
    )


def sagas(ask: Promql, over: Thresholds) -> Sequence[Alert]:
    oldest = "saga_oldest_seconds"
    slow = ask.worst(oldest, *OF, "state", state=("running", "awaited"))
    undoing = ask.worst(oldest, *OF, "state", state="compensating")
    return (
        Alert(
            name="saga_dead",
            ask=ask,
            expr=f"{ask.worst('saga_instances', *OF, state='compensation_failed')} > 0",
            hold=60,
            severity="page",
            owner="service, product",
            page="sagas",
            by=OF,
            summary="A saga {{ $labels.saga }} could not undo what it did",
            description="{{ $value }} sagas {{ $labels.saga }} of {{ $labels.service }} failed to compensate: what should be undone, "
            "as a payment, stands until a person decides.",
            when="a saga could not undo what it did",
            fires=Case([given("saga_instances", lasting(1), state="compensation_failed")]),
            quiet=Case([given("saga_instances", lasting(1), state="compensating")]),
        ),
        Alert(
            name="saga_partial",
            ask=ask,
            expr=f"{ask.worst('saga_instances', *OF, state='partial')} > 0",
            hold=900,
            severity="ticket",
            owner="service, product",
            page="sagas",
            by=OF,
            summary="A saga {{ $labels.saga }} rests with a part undone",
            description="{{ $value }} sagas {{ $labels.saga }} of {{ $labels.service }} are partial and wait for an operator.",
            when="a saga rests with a part undone for a quarter of an hour",
            fires=Case([given("saga_instances", lasting(1), state="partial")]),
            quiet=Case([given("saga_instances", "1x14 0x60", state="partial")], after=16),
        ),
        Alert(
            name="saga_stands_still",
            ask=ask,
            expr=f"{slow} > {over.saga_seconds:g} or {undoing} > {over.saga_undo_seconds:g}",
            hold=300,
            severity="ticket",
            page="sagas",
            by=(*OF, "state"),
            summary="A saga {{ $labels.saga }} takes very long",
            description="A saga {{ $labels.saga }} of {{ $labels.service }} has been {{ $labels.state }} for "
            "{{ $value | humanizeDuration }}.",
            when=f"a saga is running or awaited for more than {over.saga_seconds:g} s, or compensating for more than "
            f"{over.saga_undo_seconds:g} s",
            fires=Case(
                [given(oldest, lasting(over.saga_undo_seconds + 1), state="compensating")],
                labels={"state": "compensating"},
            ),
            quiet=Case([given(oldest, lasting(over.saga_undo_seconds + 1), state="running")]),
        ),
    )


def in_time(ask: Promql, over: Thresholds) -> Sequence[Alert]:
    model = ("service", "projection")
    fresh, budget = ask.worst("projection_freshness_seconds", *model), ask.worst("projection_budget_seconds", *model)
    return (
        Alert(
            name="timers_overdue",
            ask=ask,
            expr=f"{ask.worst('timers_overdue_seconds', 'service')} > {over.timers_seconds:g}",
            hold=300,
            severity="page",
            page="time",
            by=("service",),
            summary="Timers and deadlines of {{ $labels.service }} do not fire",
            description="A timer of {{ $labels.service }} has been due for {{ $value | humanizeDuration }}.",
            when=f"a timer or a deadline is due for more than {over.timers_seconds:g} s",
            fires=Case([given("timers_overdue_seconds", lasting(over.timers_seconds + 1))]),
            quiet=Case([given("timers_overdue_seconds", lasting(over.timers_seconds))]),
        ),
        Alert(
            name="schedule_overdue",
            ask=ask,
            expr=f"{ask.worst('schedule_overdue_seconds', 'service', 'schedule')} > {over.schedule_seconds:g}",
            hold=300,
            severity="ticket",
            page="time",
            by=("service", "schedule"),
            summary="{{ $labels.schedule }} of {{ $labels.service }} did not run",
            description="The moment of the schedule {{ $labels.schedule }} came {{ $value | humanizeDuration }} ago, and nobody has "
            "begun its run.",
            when=f"nobody has begun a run whose moment came more than {over.schedule_seconds:g} s ago",
            fires=Case([given("schedule_overdue_seconds", lasting(over.schedule_seconds + 1))]),
            quiet=Case([given("schedule_overdue_seconds", lasting(over.schedule_seconds))]),
        ),
        Alert(
            name="archive_stands_still",
            ask=ask,
            expr=f"{ask.worst('archive_oldest_seconds', 'service')} > {over.archive_seconds:g}",
            hold=300,
            severity="ticket",
            page="archive",
            by=("service",),
            summary="The archive of {{ $labels.service }} stands still",
            description="An event of {{ $labels.service }} has waited {{ $value | humanizeDuration }} to be archived. Nothing is lost as long as "
            "the log keeps it; then it is.",
            when=f"an event has waited more than {over.archive_seconds:g} s to be archived",
            fires=Case([given("archive_oldest_seconds", lasting(over.archive_seconds + 1))]),
            quiet=Case([given("archive_oldest_seconds", lasting(over.archive_seconds))]),
        ),
        Alert(
            name="audit_overdue",
            ask=ask,
            expr=f"{ask.worst('audit_overdue_seconds', 'service', 'step')} > {over.audit_seconds:g}",
            hold=300,
            severity="page",
            page="audit",
            by=("service", "step"),
            summary="The audit log of {{ $labels.service }} waits: its next {{ $labels.step }} is late",
            description="A {{ $labels.step }} of the audit log of {{ $labels.service }} is {{ $value | humanizeDuration }} late: until it is "
            "signed, what happened can be touched unseen.",
            when=f"a checkpoint of the audit log is more than {over.audit_seconds:g} s late, or the log has taken no event for so long",
            fires=Case(
                [given("audit_overdue_seconds", lasting(over.audit_seconds + 1), step="checkpoint")],
                labels={"step": "checkpoint"},
            ),
            quiet=Case([given("audit_overdue_seconds", lasting(over.audit_seconds), step="checkpoint")]),
        ),
        Alert(
            name="projection_stale",
            ask=ask,
            expr=f"{fresh} > {budget} or ({fresh} > {over.projection_seconds:g} unless {budget})",
            hold=300,
            severity="ticket",
            page="read-models",
            by=model,
            summary="The read model {{ $labels.projection }} is old",
            description="What readers of {{ $labels.projection }} see is {{ $value | humanizeDuration }} old, which is more than its "
            "budget.",
            when=f"it is older than its `lag_budget`; {over.projection_seconds:g} s where none is declared",
            fires=Case(
                [given("projection_freshness_seconds", lasting(6)), given("projection_budget_seconds", lasting(5))]
            ),
            quiet=Case(
                [given("projection_freshness_seconds", lasting(5)), given("projection_budget_seconds", lasting(5))]
            ),
        ),
    )
