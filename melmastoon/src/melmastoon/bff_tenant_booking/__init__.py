"""bff-tenant-booking-service at work: the front of a tenant's booking site. One request of a client is one call here; what has
to happen elsewhere is asked of the services that own it."""

from melmastoon.bff_tenant_booking import front, handlers, tables
from melmastoon.facts.bff_tenant_booking import bff_tenant_booking

__all__ = ["bff_tenant_booking", "front", "handlers", "tables"]
