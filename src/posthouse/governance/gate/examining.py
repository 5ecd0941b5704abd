"""Examining: all that speaks against going from one bundle to another."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from msgspec.structs import replace

from posthouse.governance.agreement import Disagreement, disagreements
from posthouse.governance.bundle import Bundle, read_bundle
from posthouse.governance.document import Document
from posthouse.governance.evolution import Mode
from posthouse.governance.freezing import freeze
from posthouse.governance.gate.envelopes import envelope_objections
from posthouse.governance.gate.objection import Objection, Severity
from posthouse.governance.gate.readers import Readers
from posthouse.governance.gate.report import Report
from posthouse.governance.gate.schemas import Compare, SchemaChanges
from posthouse.governance.gate.terms import term_objections

__all__ = ["Compare", "examine"]


def examine(
    before: Bundle,
    after: Bundle,
    mode: Mode,
    compare: Compare,
    *,
    code: Document | None = None,
    retired: Mapping[str, date] | None = None,
) -> Report:
    """The report on a change. Where `code` is at hand it is what counts, and the frozen files must say the same. `retired`
    are the subjects that may be gone, and since when."""
    current = after if code is None else _as_declared(code, after)
    readers = Readers(before, current)
    changes = SchemaChanges(before, current, readers, retired or {})
    found = [*changes.objections(mode, compare), *term_objections(before, current, readers)]
    found += envelope_objections(before, current, mode, compare)
    if code is not None:
        found += map(_unfrozen, disagreements(code, after))
    order = list(Severity)
    return Report(
        mode=mode,
        schemas=len(current.schemas),
        changed=len(changes.changed),
        objections=tuple(
            sorted(found, key=lambda one: (order.index(one.severity), one.file, one.path or "", one.rule))
        ),
    )


def _as_declared(code: Document, after: Bundle) -> Bundle:
    """The bundle as it would be if the code were frozen now. What it no longer declares stays until it is pruned."""
    frozen = read_bundle(freeze(code, after).files)
    envelopes = {**after.envelopes, **frozen.envelopes}
    return replace(frozen, schemas={**after.schemas, **frozen.schemas}, envelopes=envelopes)


def _unfrozen(one: Disagreement) -> Objection:
    return Objection(
        rule=f"code-{one.kind}",
        severity=Severity.ERROR,
        subject="",
        file=one.path,
        sentence=f"{one.sentence}.",
        way_out="",
        change=one.sentence,
    )
