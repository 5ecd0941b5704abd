"""Alerts on what comes in: consumers, dead letters, and every state in which an event may be held."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.store import HeldState
from posthouse.watch.alerts.alert import Alert, Case, Thresholds, given, lasting
from posthouse.watch.alerts.watching import LINE
from posthouse.watch.promql import Promql

WHO = ("service", "consumer")
FIVE = 300.0


def failing(ask: Promql, over: Thresholds) -> Sequence[Alert]:
    """`ask` may use the names of a platform."""
    consumed, dead = "events_consumed_total", "events_dead_total"
    who = f"{{{{ $labels.{ask.label(consumed, 'consumer')} }}}}"
    errors = ask.rate(consumed, *WHO, window=FIVE, result="error")
    return (
        Alert(
            name="consumer_error_rate",
            ask=ask,
            expr=f"{errors} / {ask.rate(consumed, *WHO, window=FIVE)} > {over.error_share:g}",
            hold=FIVE,
            severity="ticket",
            page="consumer-errors",
            by=WHO,
            summary=f"Handlers of {who} fail",
            description=f"{{{{ $value | humanizePercentage }}}} of the events that {who} tried in the last five minutes failed. They "
            "are tried again, and their keys wait.",
            when=f"more than {over.error_share:.0%} of the events that were tried failed",
            fires=Case([given(consumed, "0+6x60", result="error"), given(consumed, "0+94x60", result="ok")], after=20),
            quiet=Case([given(consumed, "0+5x60", result="error"), given(consumed, "0+95x60", result="ok")], after=20),
        ),
        Alert(
            name="dlq_depth_growing",
            ask=ask,
            expr=f"{ask.rate(dead, *WHO, window=FIVE)} * 60 > {over.dead_letters_a_minute * (1 / ask.time_scale):g}",
            hold=FIVE,
            severity="page",
            page="dead-letters",
            by=WHO,
            summary=f"Dead letters of {who} grow",
            description=f"{{{{ $value | humanize }}}} events a minute of {who} die: their attempts are spent, or nobody could read "
            "them.",
            when=f"more than {over.dead_letters_a_minute:g} events a minute die",
            fires=Case([given(dead, "0+2x60", state="dead")], after=20),
            quiet=Case([given(dead, "0+1x60", state="dead")], after=20),
            states=("dead", "quarantined"),
        ),
    )


def consuming(ask: Promql, over: Thresholds) -> Sequence[Alert]:
    consumed = ask.rate("events_consumed_total", *WHO, window=FIVE)
    keep = ", ".join((*WHO, *ask.keep))
    return (
        Alert(
            name="consumer_lag_events",
            ask=ask,
            expr=f"{ask.worst('consumer_in_flight', *LINE)} > {over.consumer_lag_events:g}",
            hold=FIVE,
            severity="ticket",
            page="consumer-lag",
            by=LINE,
            summary="{{ $labels.consumer }} is far behind",
            description="{{ $value }} events of {{ $labels.topic }} wait for {{ $labels.consumer }}.",
            when=f"more than {over.consumer_lag_events:,g} events wait for a consumer",
            fires=Case([given("consumer_in_flight", lasting(over.consumer_lag_events + 1))]),
            quiet=Case([given("consumer_in_flight", lasting(over.consumer_lag_events))]),
        ),
        Alert(
            name="consumer_lag_seconds",
            ask=ask,
            expr=f"{ask.worst('consumer_lag_seconds', *LINE)} > {over.consumer_lag_seconds:g}",
            hold=FIVE,
            severity="page",
            page="consumer-lag",
            by=LINE,
            summary="{{ $labels.consumer }} is late",
            description="The oldest event of {{ $labels.topic }} that {{ $labels.consumer }} has not dealt with has waited for "
            "{{ $value | humanizeDuration }}.",
            when=f"the oldest event that a consumer has not dealt with waits for more than {over.consumer_lag_seconds:g} s",
            fires=Case([given("consumer_lag_seconds", lasting(over.consumer_lag_seconds + 1))]),
            quiet=Case([given("consumer_lag_seconds", lasting(over.consumer_lag_seconds))]),
        ),
        Alert(
            name="back_pressure",
            ask=ask,
            expr=f"max by ({keep}) ({ask.series('in_hand')} / {ask.series('in_hand_limit')}) >= {over.in_hand_share:g}",
            hold=900,
            severity="ticket",
            page="consumer-lag",
            by=WHO,
            summary="{{ $labels.consumer }} has its hands full",
            description="A process of {{ $labels.consumer }} has had {{ $value | humanizePercentage }} of what it may take in hand for "
            "a quarter of an hour: the rest waits at the broker.",
            when=f"a process has {over.in_hand_share:.0%} or more of what it may take in hand, for a quarter of an hour",
            fires=Case([given("in_hand", lasting(100)), given("in_hand_limit", lasting(100))]),
            quiet=Case([given("in_hand", "100x14 60x60"), given("in_hand_limit", lasting(100))], after=16),
        ),
        Alert(
            name="duplicates_many",
            ask=ask,
            expr=f"{ask.rate('inbox_duplicates_total', *WHO, window=FIVE)} / {consumed} > {over.duplicate_share:g}",
            hold=1_800,
            severity="ticket",
            page="consumer-lag",
            by=WHO,
            summary="{{ $labels.consumer }} gets most events again",
            description="{{ $value | humanizePercentage }} of what {{ $labels.consumer }} was given it had applied before. Nothing is "
            "applied twice; something sends or asks again and again.",
            when=f"more than {over.duplicate_share:.0%} of the deliveries are known already, for half an hour",
            fires=Case(
                [given("inbox_duplicates_total", "0+60x90"), given("events_consumed_total", "0+100x90", result="noop")],
                after=45,
            ),
            quiet=Case(
                [given("inbox_duplicates_total", "0+50x90"), given("events_consumed_total", "0+100x90", result="noop")],
                after=45,
            ),
        ),
        Alert(
            name="schema_drift",
            ask=ask,
            expr=f"{ask.grown('schema_failures_total', *WHO, window=FIVE)} / {ask.increase('events_consumed_total', *WHO, window=FIVE)} "
            f"> {over.schema_failure_share:g} or "
            f"({ask.grown('schema_failures_total', *WHO, window=FIVE)} > 0 unless {consumed} > 0)",
            hold=0,
            severity="page",
            page="schema-drift",
            by=WHO,
            summary="{{ $labels.consumer }} cannot read what it is sent",
            description="Frames that came to {{ $labels.consumer }} do not fit the contract: they are quarantined. Stop the deploy "
            "that brought it.",
            when=f"more than {over.schema_failure_share:.1%} of what came in five minutes did not fit the contract",
            fires=Case(
                [
                    given("schema_failures_total", "_x20 1x60", reason="x"),
                    given("events_consumed_total", "0+100x90", result="ok"),
                ],
                after=23,
            ),
            quiet=Case(
                [
                    given("schema_failures_total", "_x20 1x60", reason="x"),
                    given("events_consumed_total", "0+1000x90", result="ok"),
                ],
                after=23,
            ),
            states=("quarantined",),
        ),
        Alert(
            name="signatures_refused",
            ask=ask,
            expr=f"{ask.grown('signatures_refused_total', 'service', 'reason', 'mode', window=FIVE)} > 0",
            hold=0,
            severity="page",
            page="forged",
            by=("service", "reason", "mode"),
            summary="{{ $labels.service }} was sent facts that are {{ $labels.reason }}",
            description="{{ $value | humanize }} facts that came to {{ $labels.service }} within five minutes were "
            "{{ $labels.reason }}. Where signatures are required they are quarantined, and nothing of them was applied.",
            when="a fact came whose signature does not hold, or is not there",
            fires=Case(
                [given("signatures_refused_total", "_x20 1x60", reason="forged", mode="require")],
                after=23,
                labels={"reason": "forged", "mode": "require"},
            ),
            quiet=Case([given("signatures_refused_total", "3x90", reason="forged", mode="require")], after=23),
            states=("quarantined",),
        ),
    )


def holding(ask: Promql, over: Thresholds) -> Sequence[Alert]:
    oldest = "held_oldest_seconds"
    letters: tuple[HeldState, ...] = ("dead", "quarantined")
    return (
        Alert(
            name="dlq_depth",
            ask=ask,
            expr=f"{ask.total('held', *WHO, state=letters)} > {over.dead_letters:g}",
            hold=FIVE,
            severity="page",
            owner="platform",
            page="dead-letters",
            by=WHO,
            summary="{{ $labels.consumer }} has many dead letters",
            description="{{ $value }} events of {{ $labels.consumer }} are dead or quarantined.",
            when=f"more than {over.dead_letters:g} events are dead or quarantined",
            fires=Case(
                [
                    given("held", lasting(over.dead_letters), state="dead"),
                    given("held", lasting(1), state="quarantined"),
                ]
            ),
            quiet=Case(
                [given("held", lasting(over.dead_letters), state="dead"), given("held", lasting(9), state="skipped")]
            ),
            states=letters,
        ),
        Alert(
            name="held_dead",
            ask=ask,
            expr=f"{ask.worst('held', *LINE, state='dead')} > 0",
            hold=FIVE,
            severity="ticket",
            page="dead-letters",
            by=LINE,
            summary="An event of {{ $labels.consumer }} is dead",
            description="{{ $value }} events of {{ $labels.topic }} at {{ $labels.consumer }} have spent their attempts; what "
            "follows them under their keys waits.",
            when="an event is dead",
            fires=Case([given("held", lasting(1), state="dead")]),
            quiet=Case([given("held", "1x4 0x30", state="dead"), given("held", lasting(1), state="retrying")], after=6),
            states=("dead",),
        ),
        Alert(
            name="held_quarantined",
            ask=ask,
            expr=f"{ask.worst('held', *LINE, state='quarantined')} > 0",
            hold=FIVE,
            severity="ticket",
            page="dead-letters",
            by=LINE,
            summary="An event for {{ $labels.consumer }} is quarantined",
            description="{{ $value }} events of {{ $labels.topic }} could not be read by {{ $labels.consumer }}, were forked or forged, "
            "or were set aside. Their keys go on without them.",
            when="an event is quarantined",
            fires=Case([given("held", lasting(1), state="quarantined")]),
            quiet=Case([given("held", "1x4 0x30", state="quarantined")], after=6),
            states=("quarantined",),
        ),
        Alert(
            name="held_skipped",
            ask=ask,
            expr=f"{ask.climbed('consumer_given_up', *LINE, 'reason', window=3_600)} > 0",
            hold=0,
            severity="ticket",
            page="dead-letters",
            by=(*LINE, "reason"),
            summary="An event for {{ $labels.consumer }} was given up",
            description="About {{ $value | humanize }} events of {{ $labels.topic }} were {{ $labels.reason }} at "
            "{{ $labels.consumer }} within the hour and will never be applied: somebody must set right by hand what they meant.",
            when="an event was given up within the hour",
            fires=Case([given("consumer_given_up", "3x10 4x60")], after=30, labels={"reason": "skipped"}),
            quiet=Case([given("consumer_given_up", "20x10 19x60")], after=30),
            states=("skipped",),
        ),
        Alert(
            name="held_retrying",
            ask=ask,
            expr=f"{ask.worst(oldest, *WHO, state='retrying')} > {over.retrying_seconds:g}",
            hold=FIVE,
            severity="ticket",
            page="waiting",
            by=WHO,
            summary="An event of {{ $labels.consumer }} is tried again and again",
            description="An event of {{ $labels.consumer }} has failed for {{ $value | humanizeDuration }}; its key waits.",
            when=f"an event is tried again for more than {over.retrying_seconds:g} s",
            fires=Case([given(oldest, lasting(over.retrying_seconds + 1), state="retrying")]),
            quiet=Case([given(oldest, lasting(over.retrying_seconds), state="retrying")]),
            states=("retrying",),
        ),
        Alert(
            name="held_gap",
            ask=ask,
            expr=f"{ask.worst(oldest, *WHO, state='gap')} > {over.gap_seconds:g}",
            hold=FIVE,
            severity="page",
            page="waiting",
            by=WHO,
            summary="{{ $labels.consumer }} waits for an event that does not come",
            description="Events of {{ $labels.consumer }} have waited {{ $value | humanizeDuration }} for an earlier number of their "
            "key: it may be lost.",
            when=f"an earlier number does not come for more than {over.gap_seconds:g} s",
            fires=Case([given(oldest, lasting(over.gap_seconds + 1), state="gap")]),
            quiet=Case([given(oldest, lasting(over.gap_seconds), state="gap")]),
            states=("gap",),
        ),
        Alert(
            name="held_blocked",
            ask=ask,
            expr=f"{ask.worst(oldest, *WHO, state='blocked')} > {over.blocked_seconds:g}",
            hold=FIVE,
            severity="ticket",
            page="waiting",
            by=WHO,
            summary="A key of {{ $labels.consumer }} stands still",
            description="Events of {{ $labels.consumer }} have waited {{ $value | humanizeDuration }} behind a held one of their key.",
            when=f"an event waits behind a held one for more than {over.blocked_seconds:g} s",
            fires=Case([given(oldest, lasting(over.blocked_seconds + 1), state="blocked")]),
            quiet=Case([given(oldest, lasting(over.blocked_seconds), state="blocked")]),
            states=("blocked",),
        ),
        Alert(
            name="held_due",
            ask=ask,
            expr=f"{ask.worst('held_runnable_seconds', *WHO)} > {over.due_seconds:g}",
            hold=FIVE,
            severity="page",
            page="waiting",
            by=WHO,
            summary="Nobody runs what is due for {{ $labels.consumer }}",
            description="A retry of {{ $labels.consumer }} is due, or a gap is past its deadline, for {{ $value | humanizeDuration }}.",
            when=f"a retry is due, or a gap is past its deadline, for more than {over.due_seconds:g} s",
            fires=Case([given("held_runnable_seconds", lasting(over.due_seconds + 1))]),
            quiet=Case([given("held_runnable_seconds", lasting(over.due_seconds))]),
            states=("retrying", "gap"),
        ),
    )
