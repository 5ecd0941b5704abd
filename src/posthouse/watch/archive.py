"""The archive, as it is examined: whether it can be read, whether somebody writes it, and what it will never have."""

from __future__ import annotations

from posthouse.app import App
from posthouse.archives import status
from posthouse.checks import Check
from posthouse.errors import PosthouseError
from posthouse.outage import span
from posthouse.redaction import redacted

NAME = "archive"
LATE = 900.0
"""Seconds that an event may rightly wait to be archived."""


async def archive_checks(app: App) -> list[Check]:
    """Nothing where there is no archive. Changes nothing: whether the place keeps its word is found out by who writes."""
    place = app.opened.ports.archive
    if place is None:
        return []
    try:
        found = await status(app)
    except PosthouseError as error:
        fix = (
            "bring the place back, or correct the archive's URL and the rights there; what waits is archived by itself"
        )
        return [Check(name=NAME, found=str(error), judgement="fail", fix=fix)]
    checks = [
        Check(name=NAME, found=words, judgement="fail", fix="docs/archive.md says what can be done")
        for words in found.gaps
    ]
    if late := [one for one in found.topics if one.pending and (one.oldest or 0.0) > LATE]:
        worst = max(late, key=lambda one: one.oldest or 0.0)
        words = f"{worst.pending:,} events of {worst.topic} wait, the oldest for {span(worst.oldest or 0.0)}"
        fix = "`posthouse run TARGET --only archive` writes it; its log says what keeps it"
        checks.append(Check(name=NAME, found=words, judgement="warn", fix=fix))
    events = sum(one.reach.events for one in found.topics if one.reach is not None)
    what = f"{events:,} events in {redacted(place.url)}"
    return checks or [Check(name=NAME, found=what)]
