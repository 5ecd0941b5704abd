"""The tally: all reports of a test session, added up."""

from __future__ import annotations

from collections import Counter

from tests.faults.kit.report import Report

LEAST_CRASHES = 500
LEAST_APPLIED = 20_000

total = Report()
by_fault: dict[str, Report] = {}
server_crashes: Counter[str] = Counter()
"""How often a server went down between two statements, by the way in which it did."""
given_twice = 0
"""How many transaction ids such servers gave out twice."""


def enter(fault: str, report: Report, *, at_least: int) -> Report:
    """Take a report into the tally. It must show no violation, and that something happened at all."""
    global total
    assert not report.violations, f"{fault}: {report}\n{report.violations}"
    assert report.applied >= at_least, f"{fault}: only {report.applied} events were applied: {report}"
    total += report
    by_fault[fault] = by_fault.get(fault, Report()) + report
    return report


def missed() -> list[str]:
    """What the session as a whole has fallen short of."""
    short = []
    if total.crashes < LEAST_CRASHES:
        short.append(f"{total.crashes:,} crashes, {LEAST_CRASHES:,} are wanted")
    if total.applied < LEAST_APPLIED:
        short.append(f"{total.applied:,} applied events, {LEAST_APPLIED:,} are wanted")
    return short
