"""Writing: what the envelopes of a service are made by, and what compares and encrypts what is in them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from posthouse.broker import Capabilities
from posthouse.clock import Clock
from posthouse.contracts import EventType
from posthouse.errors import ConfigurationError
from posthouse.events import CODECS, Producer
from posthouse.frozen import lock_in
from posthouse.opened.process import commit_of, process_name
from posthouse.seam import EnvelopeBuilder, SchemaGuard, Seam
from posthouse.service import Service
from posthouse.settings import Settings
from posthouse.trust.secrets.declaring import Secrets

if TYPE_CHECKING:  # what it needs is an extra, and only who uses it pays for its import
    from posthouse.trust.secrets.vault import Vault


def builder_of(
    service: Service,
    clock: Clock,
    settings: Settings,
    seam: Seam | None = None,
    sheet: Callable[[], Capabilities] | None = None,
) -> EnvelopeBuilder:
    """Writes the envelopes of a service, as they suit the broker of that sheet."""
    producer = Producer(
        service=service.name,
        instance=process_name(),
        commit=commit_of(service),
        region=settings.region or os.environ.get("POSTHOUSE_REGION", ""),
    )
    source = f"/{service.namespace}/{service.name}" if service.namespace else f"/{service.name}"
    codec = CODECS[service.envelope]
    casts, residency = service.declared.downcasts, residency_of(settings)
    return EnvelopeBuilder(producer, source, codec, clock, settings.limit, casts, seam, sheet, residency)


def residency_of(settings: Settings) -> str | None:
    """Where facts belong whose owner does not say."""
    return settings.residency or os.environ.get("POSTHOUSE_RESIDENCY", "").strip() or None


def guard_of(service: Service, clock: Clock) -> SchemaGuard:
    """Compares what a service reads with its frozen schemas."""
    schemas = service.declared.schemas
    return SchemaGuard(None if schemas is None else partial(lock_in, schemas), clock.now)


def vault_of(secrets: Secrets, name: str, find: Callable[[str], EventType[object] | None]) -> Vault:
    """What encrypts personal fields. ConfigurationError where its library is not there."""
    try:
        from posthouse.trust.secrets.vault import Vault  # an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"App(secrets=…) needs the package {error.name}: pip install 'posthouse[secrets]'"
        ) from error
    return Vault(secrets, name, find)
