"""Policies: the anti-patterns of event-driven systems as rules that can be run."""

from posthouse.governance.policies.code import Code, Source, read
from posthouse.governance.policies.examining import Allowed, Examination, examine
from posthouse.governance.policies.facts import Facts, Identifier, PayloadClass
from posthouse.governance.policies.finding import Finding, Severity
from posthouse.governance.policies.rule import Rule
from posthouse.governance.policies.rulebook import FAMILIES, RULES
from posthouse.governance.policies.settings import Allowance, Settings, settings_of

__all__ = [
    "FAMILIES",
    "RULES",
    "Allowance",
    "Allowed",
    "Code",
    "Examination",
    "Facts",
    "Finding",
    "Identifier",
    "PayloadClass",
    "Rule",
    "Settings",
    "Severity",
    "Source",
    "examine",
    "read",
    "settings_of",
]
