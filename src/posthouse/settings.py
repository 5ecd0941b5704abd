"""Settings: how an App works, apart from where."""

from __future__ import annotations

import dataclasses
from typing import Literal

from posthouse.broker import Start
from posthouse.contracts.retention import RetentionClasses
from posthouse.events.limits import wrong_text
from posthouse.history.archive.settings import ArchiveSettings
from posthouse.options import Count, Options, Seconds
from posthouse.sending import RelaySettings

DAY = 86_400.0


class Settings(Options):
    """How an App works. Durations are seconds."""

    limit: Count = 256 * 1024
    """The largest event, in bytes, that is published or read. A broker that takes less has the last word."""
    inbox_retention: Seconds = 30 * DAY
    """For so long unordered events are remembered: a duplicate that comes later is applied again."""
    outbox_retention: Seconds = DAY
    """For so long an event that was sent is kept, so that `posthouse outbox resend` can send it again; 0: not at all."""
    outbox_retention_bytes: Count = 2**30
    """About so much is kept for that, at most: the oldest go first."""
    retention: RetentionClasses | None = None
    """What the classes `hot`, `warm` and `cold` mean: their topics are kept so long, and what contradicts it is found. None: topics
    keep what the broker's URL says."""
    held_retention: Seconds | None = 365 * DAY
    """For so long after its last change a held event that somebody gave up is kept; None: for ever. All others stay."""
    contracts: str = ""
    """Where releases publish their contracts (`posthouse catalog bundle --to`), as https://contracts.example/shop, s3://bucket/shop or
    file:///srv/contracts: asked when an event names a schema that is not known here. Empty: nobody is asked."""
    archive_rows: str = ""
    """The folder or bucket, as in file:///var/posthouse/rows or s3://bucket/rows, into which rows of the inbox and given-up events are written before they are
    deleted; as long as that fails they stay. Empty: they are only deleted."""
    saga_retention: Seconds = 90 * DAY
    """For so long a saga that ended is kept, with its history. Then its tombstone is left: who it was, and how it ended."""
    saga_tombstone_retention: Seconds | None = None
    """For so long after its end a saga's tombstone is kept, and its id stays taken; None: for ever."""
    saga_misfits: Literal["refuse", "start"] = "refuse"
    """What a start does when stored sagas could not go on with the class as it is now: refuse, or say so in the log and start."""
    action_retention: Seconds = 365 * DAY
    """For so long it is kept what operators did."""
    start: Start = "earliest"
    """Where a new consumer begins; with `latest`, each key with the first number that is seen of it."""
    in_flight: Count = 1000
    """So many deliveries each consumer holds at once, at most."""
    calls_at_once: Count = 16
    """So many calls to the outside each consumer makes at once; the calls of each saga have a consumer of their own."""
    relay: RelaySettings = dataclasses.field(default_factory=RelaySettings)
    """How the relay works."""
    archive: ArchiveSettings = dataclasses.field(default_factory=ArchiveSettings)
    """How the archive is written, where the App has one."""
    region: str = ""
    """Where the App runs; travels in the envelope. Empty: what POSTHOUSE_REGION says."""
    residency: str = ""
    """The region that facts must not leave whose owner names none; travels in the envelope. Empty: what POSTHOUSE_RESIDENCY says,
    and anywhere if that says nothing."""

    def conflicts(self) -> list[str]:
        wrong = wrong_text((("region", self.region), ("region", self.residency)))
        problems = [f"Settings: {wrong}"] if wrong else []
        if self.held_retention is not None and self.held_retention < self.inbox_retention:
            problems.append(
                f"Settings(held_retention={self.held_retention:g}): failures are kept at least as long as what was applied: "
                f"{self.inbox_retention:g} (inbox_retention) or more, or None"
            )
        return problems
