"""Policies: the anti-patterns of event-driven systems as rules that can be run."""

from posthouse.contracts.policies.code import Code, Source, read
from posthouse.contracts.policies.examining import Allowed, Examination, examine
from posthouse.contracts.policies.facts import Facts, PayloadClass
from posthouse.contracts.policies.finding import Finding, Severity
from posthouse.contracts.policies.rule import Rule
from posthouse.contracts.policies.rulebook import FAMILIES, RULES
from posthouse.contracts.policies.settings import Allowance, Settings, settings_of

__all__ = [
    "FAMILIES",
    "RULES",
    "Allowance",
    "Allowed",
    "Code",
    "Examination",
    "Facts",
    "Finding",
    "PayloadClass",
    "Rule",
    "Settings",
    "Severity",
    "Source",
    "examine",
    "read",
    "settings_of",
]
