"""Hosting: a service that runs elsewhere for a while."""

from __future__ import annotations

from posthouse.app import App, app_of
from posthouse.broker import Broker
from posthouse.clock import Clock
from posthouse.service import Service
from posthouse.store import Store


def rehost(service: Service, *, store: str | Store, broker: str | Broker, clock: Clock) -> App:
    """Run a service on other parts from now on, with the settings and the seam that it has; returns the App before, which gets it back by
    `service.hosted_by(before)`. Close the one that is left."""
    before = app_of(service)
    App(
        service,
        store=store,
        broker=broker,
        clock=clock,
        settings=before.settings,
        seam=before.opened.given_seam,
        rights=before.opened.rights,
        secrets=before.opened.secrets,
    )
    return before
