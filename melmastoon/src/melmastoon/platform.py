"""The platform: all 22 services at work, and which of them share a process.

Only what stands above the services may import this: the demonstration, checks, tests. A service knows the facts of others, and
nothing else of them."""

from __future__ import annotations

from collections.abc import Mapping

from melmastoon.ai_orchestrator import ai_orchestrator
from melmastoon.analytics import analytics
from melmastoon.audit import audit
from melmastoon.bff_tenant_booking import bff_tenant_booking
from melmastoon.billing import billing
from melmastoon.file import file
from melmastoon.housekeeping import housekeeping
from melmastoon.iam import iam
from melmastoon.inventory import inventory
from melmastoon.lock_integration import lock_integration
from melmastoon.maintenance import maintenance
from melmastoon.notification import notification
from melmastoon.payment import payment
from melmastoon.pricing import pricing
from melmastoon.property import property
from melmastoon.reporting import reporting
from melmastoon.reservation import reservation
from melmastoon.search_aggregation import search_aggregation
from melmastoon.staff import staff
from melmastoon.sync import sync
from melmastoon.tenant import tenant
from melmastoon.theme import theme
from posthouse import Service

GROUPS: Mapping[str, tuple[Service, ...]] = {
    "desk": (reservation, bff_tenant_booking),
    "rooms": (inventory,),
    "money": (pricing, billing, payment),
    "doors": (lock_integration, housekeeping, maintenance, staff, notification),
    "house": (iam, tenant, property, theme, file),
    "insight": (search_aggregation, ai_orchestrator, reporting, analytics, audit, sync),
}
"""Services that run in one process on a small machine. Each has a store of its own all the same, and any of them may run alone."""

SERVICES: tuple[Service, ...] = tuple(service for group in GROUPS.values() for service in group)

TARGETS: tuple[str, ...] = tuple(f"melmastoon.{service.name}:{service.name}" for service in SERVICES)
"""As the command line wants them."""
