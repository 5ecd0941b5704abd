"""Settings: how an App works, apart from where."""

from __future__ import annotations

import dataclasses
from typing import Self

from posthouse.broker import Start
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.sending import RelaySettings

DAY = 86_400.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How an App works. Durations are seconds."""

    limit: int = 256 * 1024
    """The largest event, in bytes, that is published or read. A broker that takes less has the last word."""
    inbox_retention: float = 30 * DAY
    """For so long unordered events are remembered: a duplicate that comes later is applied again."""
    saga_retention: float = 90 * DAY
    """For so long a saga that ended is kept, with its history."""
    action_retention: float = 365 * DAY
    """For so long it is kept what operators did."""
    start: Start = "earliest"
    """Where a new consumer begins; with `latest`, each key with the first number that is seen of it."""
    in_flight: int = 1000
    """So many deliveries each consumer holds at once, at most."""
    relay: RelaySettings = dataclasses.field(default_factory=RelaySettings)
    """How the relay works."""
    region: str = ""
    """Where the App runs; travels in the envelope."""

    def __new__(cls, **given: object) -> Self:
        """Names that do not exist are answered with those that do."""
        known = [field.name for field in dataclasses.fields(cls)]
        problems = [f"there is no setting {name!r}.{did_you_mean(name, known)}" for name in given if name not in known]
        if problems:
            raise ConfigurationError(*problems)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        checks = (
            (self.limit > 0, f"limit={self.limit}: it is a number of bytes above 0"),
            (self.inbox_retention >= 0, f"inbox_retention={self.inbox_retention:g}: it is a number of seconds"),
            (self.saga_retention >= 0, f"saga_retention={self.saga_retention:g}: it is a number of seconds"),
            (self.action_retention >= 0, f"action_retention={self.action_retention:g}: it is a number of seconds"),
            (self.start in ("earliest", "latest"), f"start={self.start!r}: it is 'earliest' or 'latest'"),
            (self.in_flight > 0, f"in_flight={self.in_flight}: at least one"),
        )
        if problems := [sentence for fine, sentence in checks if not fine]:
            raise ConfigurationError(*problems)
