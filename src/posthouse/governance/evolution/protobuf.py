"""Protobuf: whether one schema reads what was written with another.

The wire has numbers and no names, so most changes pass; those that do not are worse than elsewhere, because nothing fails:
the reader gets other values than were written. Where Confluent and Karapace let such a change pass, it does not pass here:
`docs/registry.md` lists the differences.

Schemas come compiled, as `posthouse.governance.local.protoc` makes them: Protobuf's own compiler has the last word on what a text says.
"""

from __future__ import annotations

from collections.abc import Callable

from posthouse.governance.evolution.finding import Finding, Mode, Reader, Verdict, judge
from posthouse.governance.evolution.protobuf_rules import Comparison
from posthouse.governance.evolution.protobuf_types import File, read_protobuf


def compare(old: bytes, new: bytes, mode: Mode) -> Verdict:
    """Two serialised FileDescriptorSets; the last file of each is the schema. Raises SchemaError."""
    return compare_files(read_protobuf(old), read_protobuf(new), mode)


def compare_files(old: File, new: File, mode: Mode) -> Verdict:
    """Two schemas that were read."""
    return judge(mode, _one_way(old, new, additive=mode is Mode.ADDITIVE))


def _one_way(old: File, new: File, *, additive: bool) -> Callable[[Reader], Verdict]:
    def judged(who: Reader) -> Verdict:
        findings: list[Finding] = Comparison(old, new, who, additive=additive).findings
        return Verdict.of(findings)

    return judged
