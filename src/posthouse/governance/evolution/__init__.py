"""Whether a changed schema breaks anyone: the same question for JSON Schema, Avro and Protobuf, one module each.

Every format has one entry, `compare(old_text, new_text, mode) -> Verdict`.
"""

from posthouse.governance.evolution.finding import Finding, Mode, Outcome, Reader, Verdict, Weight, across, judge

__all__ = ["Finding", "Mode", "Outcome", "Reader", "Verdict", "Weight", "across", "judge"]
