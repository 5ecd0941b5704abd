"""The gate: what a change of frozen schemas does to others, and whether it may pass. Pure: bundles in, objections out."""

from posthouse.governance.gate.bypass import BYPASSES, Bypass, Bypassed
from posthouse.governance.gate.examining import Compare, examine
from posthouse.governance.gate.objection import Objection, Severity, Touched
from posthouse.governance.gate.report import Report

__all__ = ["BYPASSES", "Bypass", "Bypassed", "Compare", "Objection", "Report", "Severity", "Touched", "examine"]
