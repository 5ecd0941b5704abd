"""Production: Google Pub/Sub, and each service by the figures of seed D (2.3, 9 and 11.3).

With `MELMASTOON_PROFILE=production` in the environment the services run so; `python -m melmastoon.terraform` prints what Terraform is
to be told. Seven runs, pauses of 10 to 600 seconds and `<topic>.dlq` are the policy's own defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlencode

import msgspec

from posthouse import Settings

PROFILE = "MELMASTOON_PROFILE"
"""The variable in the environment."""
PROJECT = "MELMASTOON_PROJECT"
"""The Google Cloud project; melmastoon-prod where nothing is said."""
DOMAIN = "MELMASTOON_DOMAIN"
"""Under which services are reached, as in `https://inventory-service.DOMAIN`; internal.melmastoon.example where nothing is said."""

PUSH_DEADLINE, PULL_DEADLINE = 60, 600
"""Seconds until a message comes again that nobody acknowledged."""
PUSH_PATH = "/internal/events"
"""In front of the topic. The endpoint takes any path behind it: the body says which subscription it is of."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a service there is. `order` is what D keeps in order; empty where nothing needs one."""

    mode: Literal["push", "pull"] = "push"
    least: int = 0
    most: int = 10
    """Instances, or workers."""
    at_once: int = 8
    """Events that each of them has in hand."""
    order: str = ""


LOADS: Mapping[str, Load] = {
    "inventory": Load(least=1, most=10, at_once=4, order="roomId"),
    "billing": Load(least=1, most=20, at_once=8, order="folioId"),
    # Vendors may take longer than a push may, so these two pull.
    "lock_integration": Load(mode="pull", least=1, most=10, at_once=2, order="reservationId"),
    "payment": Load(mode="pull", least=1, most=10, at_once=8, order="reservationId"),
    "notification": Load(least=0, most=50, at_once=20),
    "analytics": Load(mode="pull", least=4, most=4, at_once=16),
    "search_aggregation": Load(mode="pull", least=2, most=2, at_once=8, order="propertyId"),
    "audit": Load(mode="pull", least=8, most=8, at_once=32),
}
"""By service; of those that D names no figures for, a push with the usual ones."""
USUAL = Load(order="aggregateId")


def is_production() -> bool:
    """Whether the environment says so."""
    return os.environ.get(PROFILE) == "production"


def load_of(service: str) -> Load:
    """How much of it there is."""
    return LOADS.get(service, USUAL)


def settings_of(service: str, *, region: str) -> Settings:
    """How a service works there: no more in hand than it has places for."""
    at_once = load_of(service).at_once
    return Settings(region=region, residency=region, in_flight=at_once, calls_at_once=at_once)


def broker_of(service: str, *, region: str) -> str:
    """The broker as a URL, for one service: each has its own account, deadline and endpoint."""
    options = {"endpoint": f"{region}-pubsub.googleapis.com", "lease": str(PULL_DEADLINE)}
    if load_of(service).mode == "push":
        options |= {
            "lease": str(PUSH_DEADLINE),
            "push": endpoint_of(service),
            "push_account": account_of(service),
        }
    return f"pubsub://{_project()}?{urlencode(options)}"


def endpoint_of(service: str) -> str:
    """Where a service is pushed to."""
    domain = os.environ.get(DOMAIN, "") or "internal.melmastoon.example"
    return f"https://{_full(service)}.{domain}{PUSH_PATH}"


def account_of(service: str) -> str:
    """In whose name tokens of a push are signed."""
    return f"{_full(service)}-subscriber@{_project()}.iam.gserviceaccount.com"


def terraform_of(groups: Mapping[str, str]) -> dict[str, object]:
    """The variables for what `posthouse catalog export terraform` writes; `groups` says whose each is."""
    pushed = {
        group: {"endpoint": endpoint_of(service), "account": account_of(service)}
        for group, service in sorted(groups.items())
        if load_of(service).mode == "push"
    }
    return {"project": _project(), "lease": PUSH_DEADLINE, "push": pushed}


def _full(service: str) -> str:
    """The name of its folder in D."""
    named = {"payment": "payment_gateway", "theme": "theme_config", "file": "file_storage"}
    return f"{named.get(service, service)}-service".replace("_", "-")


def _project() -> str:
    return os.environ.get(PROJECT, "") or "melmastoon-prod"
