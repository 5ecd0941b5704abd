"""Whom does a change of a schema break?"""

import json

from posthouse.governance.evolution import Mode
from posthouse.governance.evolution.json_schema import Past, compare

old = json.dumps(
    {
        "type": "object",
        "properties": {"order_id": {"type": "string"}, "total_cents": {"type": "integer", "maximum": 1_000_000}},
        "required": ["order_id", "total_cents"],
    }
)
new = json.dumps(
    {
        "type": "object",
        "properties": {
            "order_id": {"type": "string"},
            "total_cents": {"type": "integer", "maximum": 500_000},
            "note": {"type": "string", "default": ""},
        },
        "required": ["order_id", "total_cents"],
    }
)

for mode in (Mode.BACKWARD, Mode.FORWARD, Mode.ADDITIVE):
    verdict = compare(old, new, mode)
    print(mode.value, verdict.outcome.value)
    for finding in verdict.findings:
        print("  ", finding.path, finding.rule, finding.example)

sent = [Past({"order_id": "o1", "total_cents": 1200}, count=40)]
verdict = compare(old, new, Mode.ADDITIVE, past=sent)
print("with the past", verdict.outcome.value)
