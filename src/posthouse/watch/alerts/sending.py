"""Alerts on what leaves: the outbox, the relay, and what may not be published."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.watch.alerts.alert import Alert, Case, Thresholds, given, lasting
from posthouse.watch.alerts.watching import QUARTER
from posthouse.watch.promql import Promql

STALL = 300.0
"""Seconds in which the oldest unsent event does not change."""
STANDS = 0.75
"""By so much of that time its age must have grown: looks and scrapes do not come on the second."""
CROSSING = ("cross-tenant", "platform")
"""The rules of publishing that keep tenants apart."""


def outbox(ask: Promql, over: Thresholds) -> Sequence[Alert]:
    """`ask` may use the names of a platform."""
    return (
        Alert(
            name="outbox_lag_high",
            ask=ask,
            expr=f"{ask.worst('outbox_oldest_unsent_seconds', 'service')} > {over.outbox_lag_seconds:g}",
            hold=300,
            severity="page",
            page="relay",
            by=("service",),
            summary="Events of {{ $labels.service }} leave late",
            description="The oldest event of {{ $labels.service }} that is not sent has waited for {{ $value | humanizeDuration }}.",
            when=f"the oldest unsent event waits for more than {over.outbox_lag_seconds:g} s",
            fires=Case([given("outbox_oldest_unsent_seconds", lasting(over.outbox_lag_seconds + 1))]),
            quiet=Case([given("outbox_oldest_unsent_seconds", lasting(over.outbox_lag_seconds))]),
        ),
    )


def sending(ask: Promql, over: Thresholds) -> Sequence[Alert]:
    oldest = "outbox_oldest_unsent_seconds"
    window = ask.duration(STALL)
    keep = ", ".join(("service", *ask.keep))
    return (
        Alert(
            name="relay_lag_p99",
            ask=ask,
            expr=f"max by ({keep}) (quantile_over_time(0.99, {ask.series(oldest)}[{window}])) > {over.relay_lag_p99_seconds:g}",
            hold=0,
            severity="ticket",
            page="relay",
            by=("service",),
            summary="The relay of {{ $labels.service }} falls behind",
            description="In the last five minutes an event of {{ $labels.service }} waited {{ $value | humanizeDuration }} to be sent "
            "(99th percentile of the oldest).",
            when=f"the 99th percentile of the oldest unsent event's age over five minutes is above {over.relay_lag_p99_seconds:g} s",
            fires=Case([given(oldest, f"1x10 {over.relay_lag_p99_seconds + 5:g}x20")], after=20),
            quiet=Case([given(oldest, lasting(over.relay_lag_p99_seconds))]),
        ),
        Alert(
            name="relay_stalled",
            ask=ask,
            expr=f"{ask.climbed(oldest, 'service', window=STALL)} > {STANDS * STALL * ask.time_scale:g} "
            f"unless on ({keep}) {ask.worst('outbox_stuck', 'service')} > 0",
            hold=60,
            severity="page",
            page="relay",
            by=("service",),
            summary="Nothing leaves the outbox of {{ $labels.service }}",
            description="The oldest unsent event of {{ $labels.service }} has been the same for five minutes, and the broker refused "
            "none: no relay works.",
            when="the oldest unsent event is the same for five minutes, and the broker refused none",
            fires=Case([given(oldest, _growing(ask, 1.0)), given("outbox_stuck", lasting(0))], after=20),
            quiet=Case([given(oldest, _growing(ask, STANDS)), given("outbox_stuck", lasting(0))], after=20),
        ),
        Alert(
            name="outbox_stuck",
            ask=ask,
            expr=f"{ask.worst('outbox_stuck', 'service')} > 0",
            hold=900,
            severity="ticket",
            page="refused",
            by=("service",),
            summary="The broker refuses events of {{ $labels.service }}",
            description="{{ $value }} events of {{ $labels.service }} are refused by the broker and tried again; what follows them "
            "under their keys waits.",
            when="the broker refuses an event for a quarter of an hour",
            fires=Case([given("outbox_stuck", lasting(1))]),
            quiet=Case([given("outbox_stuck", "1x14 0x60")], after=16),
        ),
        Alert(
            name="outbox_refused",
            ask=ask,
            expr=f"{ask.worst('outbox_refused', 'service')} > 0",
            hold=60,
            severity="page",
            page="refused",
            by=("service",),
            summary="Events of {{ $labels.service }} were set aside by the relay",
            description="{{ $value }} events of {{ $labels.service }} were refused for good: nobody will ever hear of them until a "
            "person decides.",
            when="the relay has set an event aside because the broker refused it for good",
            fires=Case([given("outbox_refused", lasting(1))]),
            quiet=Case([given("outbox_refused", "1x0 0x30"), given("outbox_stuck", lasting(3))]),
        ),
        Alert(
            name="relay_leases_flapping",
            ask=ask,
            expr=f"{ask.increase('relay_leases_total', 'service', window=QUARTER)} > {over.leases_taken_over:g}",
            hold=900,
            severity="ticket",
            page="relay",
            by=("service",),
            summary="Relays of {{ $labels.service }} take shards from each other",
            description="Shards of the outbox of {{ $labels.service }} changed hands {{ $value | humanize }} times in a quarter of an "
            "hour.",
            when=f"shards change hands more than {over.leases_taken_over:g} times in a quarter of an hour, for as long again",
            fires=Case([given("relay_leases_total", "0+2x120")], after=60),
            quiet=Case([given("relay_leases_total", f"16x20 {16 + 2 * over.leases_taken_over:g}x120")], after=40),
        ),
        Alert(
            name="relay_fenced",
            ask=ask,
            expr=f"{ask.increase('relay_fenced_total', 'service', window=QUARTER)} > {over.relays_fenced:g}",
            hold=0,
            severity="ticket",
            page="relay",
            by=("service",),
            summary="Relays of {{ $labels.service }} are too slow to keep their shards",
            description="{{ $value | humanize }} times in a quarter of an hour a relay of {{ $labels.service }} came back and found "
            "its shard taken over. Nothing is doubled; something makes processes stand still.",
            when=f"a relay finds its shard taken over more than {over.relays_fenced:g} times in a quarter of an hour",
            fires=Case([given("relay_fenced_total", "0+1x60")], after=30),
            quiet=Case([given("relay_fenced_total", f"0x10 {over.relays_fenced - 1:g}x60")], after=15),
        ),
        Alert(
            name="cross_tenant_publish_blocked",
            ask=ask,
            expr=f"{ask.grown('publish_refused_total', 'service', window=300, reason=CROSSING)} > 0",
            hold=0,
            severity="page",
            owner="platform",
            page="cross-tenant",
            by=("service",),
            summary="{{ $labels.service }} tried to publish across tenants",
            description="{{ $labels.service }} called publish with a fact about several tenants, or for the tenant `platform`, that is "
            "not on the list. It was refused, and the transaction with it.",
            when="a fact about several tenants, or about none, was refused",
            fires=Case([given("publish_refused_total", "_x20 1x60", reason="cross-tenant")], after=23),
            quiet=Case(
                [
                    given("publish_refused_total", lasting(4), reason="cross-tenant"),
                    given("publish_refused_total", "0+1x360", reason="residency"),
                ],
                after=60,
            ),
        ),
    )


def _growing(ask: Promql, share: float) -> str:
    """An age that grows by so much of the time that passes, from the sixth minute on."""
    return f"0x5 0+{60 * share * ask.time_scale:g}x60"
