"""`python -m benchmarks load`, in seconds instead of minutes: that it works, not how fast anything is."""

from __future__ import annotations

import pytest

from benchmarks.load.plan import Plan
from benchmarks.load.run import drive

SHORT = Plan(
    seconds=2.0, base=30.0, capacity_seconds=1.0, warm_up=0.5, saturated=2.0, slowed=0.2, consumers=1, in_flight=20
)


@pytest.mark.slow
async def test_a_short_load_loses_nothing_and_shows_a_consumer_that_cannot_keep_up_as_a_backlog() -> None:
    """Processes of their own are started and ended, so that it takes several seconds."""
    found = await drive(SHORT, "postgres")
    assert [one.phase for one in found.latencies] == ["warm-up", "base", "peak", "base again"]
    assert [one.events for one in found.latencies] == [15, 30, 180, 30]
    assert all(0 < one.p50 <= one.p99 <= one.p999 <= one.worst for one in found.latencies)
    assert (found.verdict, found.applied) == ("adds up", found.committed)
    assert found.committed >= 15 + 30 + 180 + 30 + 180 + 50
    full = found.saturation
    assert 0 < full.in_hand <= full.in_hand_limit == 20, "more than that is never taken"
    assert full.backlog > 2 * full.in_hand_limit, "the rest waits in the outbox and at the broker"
    assert full.drained > 0
    assert sum(one.applied for one in found.seconds) == 15 + 30 + 180 + 30 + 180
    assert found.seconds[-1].backlog == 0
