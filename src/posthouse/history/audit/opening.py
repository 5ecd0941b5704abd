"""Opening: what an App has of an audit log. What signs and what reaches buckets are extras, imported when they are asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from posthouse.broker import Broker, Start
from posthouse.clock import Clock
from posthouse.errors import ConfigurationError
from posthouse.history.audit.settings import Audit
from posthouse.outage import Outages
from posthouse.pulse import Pulse

SUFFIX = "event-audit"


class AuditMember(Protocol):
    """Writes the audit log, beside others of its group, and signs it."""

    name: str
    """Of its group."""
    pulse: Pulse
    signing: Pulse
    idle: bool
    """Nothing that it received waits to be logged."""

    def overdue(self) -> Mapping[str, float]:
        """For how many seconds a checkpoint is late, and events wait that the log does not take."""
        ...

    async def run(self, stop: asyncio.Event) -> None:
        """Log until `stop`; what is in hand then is logged first."""
        ...

    async def sign(self, stop: asyncio.Event) -> None:
        """Sign when it is time, until `stop`."""
        ...


def audit_group(service: str) -> str:
    """What the consumer group of the audit log of an App is called, by the first of its services. No handler can be called so."""
    return f"{service}.{SUFFIX}"


def auditor_of(
    name: str,
    topics: Sequence[str],
    broker: Broker,
    audit: Audit,
    clock: Clock,
    *,
    start: Start,
    outages: Outages,
) -> AuditMember:
    """A member of the group that writes it. ConfigurationError for keys or places that cannot be used."""
    try:
        from posthouse.history.audit.auditor import Auditor
        from posthouse.history.audit.keys import private_here, signer_in, verifiers
        from posthouse.history.audit.place import open_place
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"an audit log needs the package {error.name}: pip install 'posthouse[audit]'"
        ) from error
    file = Path(audit.keys)
    private = private_here(None if audit.private is None else Path(audit.private))
    keys = verifiers(file)
    signer = signer_in(file, private, clock.now()) if private else None
    place, second = open_place(audit.place), None if audit.second is None else open_place(audit.second)
    return Auditor(name, topics, broker, (place, second), audit, (keys, signer), clock, start=start, outages=outages)
