"""Writing: what the envelopes of a service are made by, and what compares and encrypts what is in them."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable
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
from posthouse.seam.seals import Seals
from posthouse.service import Service
from posthouse.settings import Settings
from posthouse.trust.secrets.declaring import Secrets

if TYPE_CHECKING:  # what it needs is an extra, and only who uses it pays for its import
    from posthouse.contracts.release import Pointer
    from posthouse.published import Published
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
    codec = CODECS[service.envelope]
    casts, residency = service.declared.downcasts, residency_of(settings)
    return EnvelopeBuilder(producer, service.source, codec, clock, settings.limit, casts, seam, sheet, residency)


def residency_of(settings: Settings) -> str | None:
    """Where facts belong whose owner does not say."""
    return settings.residency or os.environ.get("POSTHOUSE_RESIDENCY", "").strip() or None


def guard_of(service: Service, clock: Clock, *, fetches: bool = False) -> SchemaGuard:
    """Compares what a service reads with its frozen schemas, and with those that are published where it `fetches` them."""
    schemas = service.declared.schemas
    return SchemaGuard(None if schemas is None else partial(lock_in, schemas), clock.now, fetches=fetches)


def published_of(settings: Settings, clock: Clock, seam: Seam, guards: Iterable[SchemaGuard]) -> Published | None:
    """The contracts of others, where the settings name a place. ConfigurationError where that cannot be one."""
    if not settings.contracts:
        return None
    from posthouse.published import Published, source_at  # only who has a place pays for its import

    prove = None if seam.seals is None else partial(disbelief, seam.seals)
    published = Published(source_at(settings.contracts), clock, prove)
    published.guards.extend(guards)
    return published


def disbelief(seals: Seals, pointer: Pointer) -> str:
    """Why a pointer to contracts is not to be believed; empty when it is."""
    try:
        signature = base64.b64decode(pointer.signature, validate=True)
    except ValueError:
        return "its signature is no base64"
    return seals.refuses_release(pointer.key, pointer.material, signature)


def vault_of(secrets: Secrets, name: str, find: Callable[[str], EventType[object] | None]) -> Vault:
    """What encrypts personal fields. ConfigurationError where its library is not there."""
    try:
        from posthouse.trust.secrets.vault import Vault  # an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"App(secrets=…) needs the package {error.name}: pip install 'posthouse[secrets]'"
        ) from error
    return Vault(secrets, name, find)
