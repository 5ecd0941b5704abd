"""The rulebook: every rule there is, by family."""

from __future__ import annotations

from posthouse.governance.policies import (
    borders,
    failing,
    flows,
    intent,
    money,
    naming,
    ordering,
    owning,
    payloads,
    privacy,
    provenance,
    rights,
    tenancy,
)
from posthouse.governance.policies.rule import Rule

FAMILIES: dict[str, tuple[Rule, ...]] = {
    "Names": naming.RULES,
    "Tenants": tenancy.RULES,
    "Order": ordering.RULES,
    "Money and stock": money.RULES,
    "Intent": intent.RULES,
    "Payloads": payloads.RULES,
    "People": privacy.RULES,
    "Models": provenance.RULES,
    "Flows": flows.RULES,
    "Failure": failing.RULES,
    "Owners and versions": owning.RULES,
    "Rights": rights.RULES,
    "Borders": borders.RULES,
}

RULES = {rule.id: rule for rules in FAMILIES.values() for rule in rules}
