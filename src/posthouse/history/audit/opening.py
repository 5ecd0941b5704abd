"""Opening: what an App has of an audit log. What signs and what reaches buckets are extras, imported when they are asked for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from posthouse.broker import Broker, Start
from posthouse.clock import Clock
from posthouse.errors import ConfigurationError
from posthouse.history.audit.place import open_place
from posthouse.history.audit.settings import Audit
from posthouse.history.audit.standing import Standing
from posthouse.outage import Outages
from posthouse.pulse import Pulse
from posthouse.trust.signatures.keys import private_in, read_private
from posthouse.trust.signatures.signing import PRIVATE, PRIVATE_FILE

SUFFIX = "event-audit"


class AuditMember(Protocol):
    """Writes the audit log, beside others of its group, and signs it."""

    name: str
    """Of its group."""
    pulse: Pulse
    signing: Pulse
    idle: bool
    """Nothing that it received waits to be logged."""
    standing: Standing | None
    """How the log stood when it was looked at last."""

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
        from posthouse.history.audit.keys import signer_in, verifiers

        private = _private(audit)
        signer = signer_in(Path(audit.keys), private, clock.now()) if private else None
        verifiers(Path(audit.keys))
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"an audit log needs the package {error.name}: pip install 'posthouse[audit]'"
        ) from error
    place, second = open_place(audit.place), None if audit.second is None else open_place(audit.second)
    return Auditor(name, topics, broker, place, second, audit, signer, clock, start=start, outages=outages)


def _private(audit: Audit) -> dict[str, bytes]:
    if audit.private is not None:
        return dict(read_private(Path(audit.private)))
    if file := os.environ.get(PRIVATE_FILE):
        return dict(read_private(Path(file)))
    return dict(private_in(os.environ.get(PRIVATE, ""), PRIVATE))
