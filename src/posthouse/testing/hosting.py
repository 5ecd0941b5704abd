"""Hosting: a service that runs elsewhere for a while."""

from __future__ import annotations

from posthouse.app import App, app_of
from posthouse.broker import Broker
from posthouse.clock import Clock
from posthouse.service import Service
from posthouse.store import Store
from posthouse.trust.secrets import Secrets
from posthouse.trust.signatures import Signing


def rehost(
    service: Service,
    *,
    store: str | Store,
    broker: str | Broker,
    clock: Clock,
    signing: Signing | None = None,
    secrets: Secrets | None = None,
) -> App:
    """Run a service on other parts from now on, with the settings and the seam that it has; returns the App before, which gets it back by
    `service.hosted_by(before)`. Close the one that is left. With `signing` and `secrets` it has other keys."""
    before = app_of(service)
    App(
        service,
        store=store,
        broker=broker,
        clock=clock,
        settings=before.settings,
        seam=before.opened.given_seam,
        rights=before.opened.rights,
        secrets=secrets or before.opened.secrets,
        signing=signing,
    )
    return before
