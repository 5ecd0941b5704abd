"""bff-tenant-booking-service: the front of a tenant's booking site. It says nothing of its own: it asks others to act."""

from __future__ import annotations

from melmastoon.facts.house import service

bff_tenant_booking = service("bff_tenant_booking", owner="sites")
