"""JSON Schema, drafts 6 to 2020-12, compared by meaning: does every value of the one fit the other?"""

from __future__ import annotations

from collections.abc import Iterable

from posthouse.errors import SchemaError
from posthouse.governance.evolution.finding import Mode, Verdict
from posthouse.governance.evolution.json_schema.additive import compare_additive
from posthouse.governance.evolution.json_schema.audit import Audit, Past, audit
from posthouse.governance.evolution.json_schema.comparing import compare_meaning

__all__ = ["Audit", "Past", "audit", "compare"]


def compare(old_text: str | bytes, new_text: str | bytes, mode: Mode, *, past: Iterable[Past] | None = None) -> Verdict:
    """The verdict on a change of a JSON Schema. Raises SchemaError when one of them cannot be used at all.

    A finding that breaks has an example, checked by a validator; only the rules of ADDITIVE also forbid what nobody refuses. A
    verdict is compatible only where that is proven. `past` are messages that were sent, with which ADDITIVE may let a range be
    tightened.
    """
    try:
        if mode.step is Mode.ADDITIVE:
            return compare_additive(old_text, new_text, past)
        return compare_meaning(old_text, new_text, mode)
    except RecursionError as error:
        raise SchemaError("the schemas lead from reference to reference too long to be compared") from error
