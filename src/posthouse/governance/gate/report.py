"""Report: what the gate says, and whether the change may pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from posthouse.governance.evolution import Mode
from posthouse.governance.gate.bypass import Bypass
from posthouse.governance.gate.objection import Objection, Severity


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """`against` says in words what was compared with; `bypassed` are the recorded leaves that were used, by the objection's
    fingerprint. The worst objections come first."""

    mode: Mode
    schemas: int
    changed: int
    against: str = ""
    objections: tuple[Objection, ...] = ()
    bypassed: Mapping[str, Bypass] = {}

    @property
    def standing(self) -> tuple[Objection, ...]:
        """Errors that nobody gave leave for."""
        return tuple(
            one for one in self.objections if one.severity is Severity.ERROR and one.fingerprint not in self.bypassed
        )

    @property
    def passes(self) -> bool:
        return not self.standing

    def allowing(self, bypasses: Iterable[Bypass]) -> Report:
        """The same, where recorded leave counts; the latest of several."""
        errors = {one.fingerprint for one in self.objections if one.severity is Severity.ERROR}
        used = {
            covered.fingerprint: bypass
            for bypass in bypasses
            for covered in bypass.findings
            if covered.fingerprint in errors
        }
        return msgspec.structs.replace(self, bypassed=used)

    def count(self, severity: Severity) -> int:
        """Objections that stand, of one severity."""
        return sum(one.severity is severity and one.fingerprint not in self.bypassed for one in self.objections)
