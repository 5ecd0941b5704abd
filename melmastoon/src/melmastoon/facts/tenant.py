"""tenant-service: whose hotels these are, and under which rules."""

from __future__ import annotations

from typing import Literal

from melmastoon.facts.house import service
from posthouse import Payload

tenant = service("tenant", owner="accounts")

Role = Literal["owner", "manager", "front_desk", "housekeeper", "technician", "finance"]
Setting = Literal["currency", "locales", "tax", "residency"]


@tenant.event("tenant.created.v1", key="tenant_id", retention="cold", idempotency="required")
class TenantCreated(Payload):
    """A hotelier joined the platform."""

    tenant_id: str
    name: str
    plan: Literal["starter", "growth", "chain"]
    country: str


@tenant.event("tenant.suspended.v1", key="tenant_id", retention="cold", idempotency="required")
class TenantSuspended(Payload):
    """A hotelier sells nothing until the reason is gone."""

    tenant_id: str
    reason: Literal["plan_limit", "billing_failure", "compliance"]


@tenant.event("role.granted.v1", key="user_id", retention="cold", idempotency="required")
class RoleGranted(Payload):
    """Somebody may do what this role may."""

    user_id: str
    role: Role
    granted_by: str


@tenant.event("settings.changed.v1", key="tenant_id", retention="cold", idempotency="required")
class SettingsChanged(Payload):
    """One rule of the house is another one. `revision` counts the changes of this tenant."""

    tenant_id: str
    setting: Setting
    before: str
    after: str
    revision: int
