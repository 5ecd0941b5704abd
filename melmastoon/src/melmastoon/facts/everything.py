"""All 22 services and all facts that the platform knows, for whoever hears everything."""

from __future__ import annotations

from collections.abc import Iterable

from melmastoon.facts.ai_orchestrator import ai_orchestrator
from melmastoon.facts.analytics import analytics
from melmastoon.facts.audit import audit
from melmastoon.facts.bff_tenant_booking import bff_tenant_booking
from melmastoon.facts.billing import billing
from melmastoon.facts.file import file
from melmastoon.facts.housekeeping import housekeeping
from melmastoon.facts.iam import iam
from melmastoon.facts.inventory import inventory
from melmastoon.facts.lock_integration import lock_integration
from melmastoon.facts.maintenance import maintenance
from melmastoon.facts.notification import notification
from melmastoon.facts.payment import payment
from melmastoon.facts.pricing import pricing
from melmastoon.facts.property import property
from melmastoon.facts.reporting import reporting
from melmastoon.facts.reservation import reservation
from melmastoon.facts.search_aggregation import search_aggregation
from melmastoon.facts.staff import staff
from melmastoon.facts.sync import sync
from melmastoon.facts.tenant import tenant
from melmastoon.facts.theme import theme
from posthouse import Service
from posthouse.contracts import EventType

SERVICES: tuple[Service, ...] = (
    iam,
    tenant,
    property,
    reservation,
    inventory,
    pricing,
    housekeeping,
    maintenance,
    billing,
    payment,
    notification,
    theme,
    lock_integration,
    search_aggregation,
    ai_orchestrator,
    file,
    reporting,
    analytics,
    audit,
    sync,
    staff,
    bff_tenant_booking,
)


def facts_of(services: Iterable[Service]) -> list[EventType[object]]:
    """What these services own, by subject. What they hear stands in their catalogues too, and is left out."""
    own = [
        known for service in services for known in service.declared.catalogue if known.subject.service == service.name
    ]
    return sorted(own, key=lambda known: known.name)
