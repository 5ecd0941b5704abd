"""Rights: a service says its own facts alone (seed D, 2.5). Here is who reads what says something about people, money or keys, or is
about several tenants; all else is read by whoever declares a handler. And to whom it is given once more."""

from __future__ import annotations

import os

from melmastoon.production import is_production
from posthouse import Rights

GRANTS = "MELMASTOON_GRANTS"
"""The variable in the environment: with `on` a person replays and edits by somebody else's word alone, as always in production."""

GUESTS = (
    *("ai_orchestrator", "analytics", "audit", "bff_tenant_booking", "billing", "housekeeping", "inventory"),
    *("lock_integration", "notification", "payment", "pricing", "sync"),
)
"""Who hears of bookings; what is personal in them is for fewer: `secrets.py`."""


def rights_of_platform(*, grants: bool) -> Rights:
    """The same for every service. `grants`: whether people need one."""
    return Rights(
        read={
            "melmastoon.reservation.*": GUESTS,
            "melmastoon.iam.device": ["audit", "sync"],
            "melmastoon.iam.subject": ["ai_orchestrator", "audit", "notification", "reservation", "sync"],
            "melmastoon.iam.*": ["audit"],
            "melmastoon.payment.*": ["ai_orchestrator", "analytics", "audit", "billing", "notification", "reservation"],
            "melmastoon.lock_integration.key_credential": ["audit", "reservation"],
            # About several tenants: nobody else without an entry in the list of D, 12.
            "melmastoon.analytics.*": ["audit", "reporting"],
            "melmastoon.search_aggregation.*": ["audit"],
        },
        replay={
            # Sent again by their owner; read again by those who add up. Money moves once, and a door opens once.
            "melmastoon.payment.*": ["payment", "analytics", "audit"],
            "melmastoon.lock_integration.*": ["lock_integration", "audit"],
            "melmastoon.audit.*": ["audit"],
        },
        grants=grants,
    )


RIGHTS = rights_of_platform(grants=is_production() or os.environ.get(GRANTS) == "on")
