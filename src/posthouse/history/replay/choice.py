"""Choice: which events of one consumer a replay is about."""

from __future__ import annotations

from typing import Literal

import msgspec

from posthouse.errors import ConfigurationError
from posthouse.receiving.inbound import InboundEvent
from posthouse.store import Scope
from posthouse.store.inbox import drawn_at

From = Literal["log", "archive", "outbox", "stream"]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What is not said means any. `since` and `until` are when an event was said, in seconds since 1970: when its id was drawn, or,
    of another kind of id, what its envelope says. `reprocess`: what was applied is applied again; without it only what was not.
    Without `until` a key is applied again up to where it stands when it is closed, and what stands in no order up to when somebody
    said yes (`pressed`): what the mended consumer applied since then is not to be overtaken by what is older. `twice`: it is accepted that handlers say facts again, where it cannot be known what they said before."""

    consumer: str
    type: str | None = None
    tenant: str | None = None
    key: str | None = None
    since: float | None = None
    until: float | None = None
    source: From = "log"
    reprocess: bool = False
    twice: bool = False
    pressed: float | None = None

    @property
    def scope(self) -> Scope:
        """What a grant must cover."""
        return Scope(
            consumer=self.consumer, type=self.type, tenant=self.tenant, key=self.key, since=self.since, until=self.until
        )

    @property
    def is_open(self) -> bool:
        """Whether keys are applied again to their end."""
        return self.reprocess and self.until is None

    def refuse_empty(self) -> None:
        """ConfigurationError for a range in which nothing can be."""
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ConfigurationError("--since is not before --until: nothing was said in between")

    def takes(self, inbound: InboundEvent) -> bool:
        """Whether an event is one of these, as far as it tells itself."""
        event = inbound.event
        if event is None or inbound.handler is None:
            return False
        same = self.type in (None, event.type) and self.tenant in (None, event.tenant) and self.key in (None, event.key)
        said = said_at(inbound)
        late = inbound.entry.sequence is None and self.pressed is not None and said >= self.pressed
        return same and not late and self.is_within(said)

    def is_within(self, moment: float) -> bool:
        """Whether a moment is part of the range."""
        return (self.since is None or moment >= self.since) and (self.until is None or moment < self.until)


def said_at(inbound: InboundEvent) -> float:
    """When an event was said."""
    entry = inbound.entry
    return drawn_at(entry.event_id) / 1000 or entry.said or entry.time
