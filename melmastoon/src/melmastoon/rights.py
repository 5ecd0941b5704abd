"""Rights: who may read what says something about people or money. All else is read by whoever declares a handler."""

from __future__ import annotations

from posthouse import Rights

RIGHTS = Rights(
    read={
        "melmastoon.iam.device": ["audit", "sync"],
        "melmastoon.iam.subject": ["ai_orchestrator", "audit", "notification", "reservation", "sync"],
        "melmastoon.iam.*": ["audit"],
        "melmastoon.payment.*": ["ai_orchestrator", "analytics", "audit", "billing", "notification", "reservation"],
        "melmastoon.lock_integration.key_credential": ["audit", "reservation"],
    },
)
