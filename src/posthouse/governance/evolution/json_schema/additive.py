"""The house rules for one version of an event (Mode.ADDITIVE).

They speak of declared fields: a producer sends what it declares, and a consumer ignores what it does not know.

| change | |
|---|---|
| add an optional field | yes |
| add a value to an enum | yes, and write it down |
| tighten a range, length, pattern or format | yes, if no past message is outside: see `audit` |
| anything else: remove, rename, require, another type, … | no: a new version, published beside the old one |
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

import msgspec

from posthouse.governance.evolution.finding import Finding, Mode, Reader, Verdict, Weight
from posthouse.governance.evolution.json_schema.audit import Audit, Past, audit
from posthouse.governance.evolution.json_schema.building import Content, build
from posthouse.governance.evolution.json_schema.comparing import Comparison, pointer
from posthouse.governance.evolution.json_schema.document import Document
from posthouse.governance.evolution.json_schema.evaluated import check_progress
from posthouse.governance.evolution.json_schema.fields import Fields, fields_of
from posthouse.governance.evolution.json_schema.nodes import Pool

TIGHTENED = frozenset(
    f"{topic}-narrowed"
    for topic in ("range", "step", "length", "pattern", "format", "count", "unique", "contains", "names")
)
NEW_VERSION = "Publish a new version of the event beside this one."


def compare_additive(old_text: str | bytes, new_text: str | bytes, past: Iterable[Past] | None = None) -> Verdict:
    """The verdict by the house rules. `past` are messages of the last weeks, for changes that only an audit can allow."""
    new = Document(new_text, "the new schema")
    if old_text == new_text:
        check_progress(new)
        return Verdict.of(())
    old = Document(old_text, "the old schema")
    checked = None if past is None else audit(new_text, past)
    pool = Pool()
    findings = {finding.path: finding for finding in _removed(old, new, pool)}
    others: list[Finding] = []
    for reader in Mode.ADDITIVE.readers:
        for finding in Comparison(old, new, reader, pool, declared_only=True).findings():
            if finding.rule == "required-removed" and finding.path in findings:
                gone = findings[finding.path]
                findings[finding.path] = msgspec.structs.replace(gone, example=finding.example)
            else:
                others.append(_weighed(finding, checked))
    return Verdict.of([*findings.values(), *others])


def _weighed(finding: Finding, checked: Audit | None) -> Finding:
    if finding.breaks is Reader.OLD and finding.rule == "values-widened":
        return msgspec.structs.replace(
            finding,
            weight=Weight.NOTE,
            way_out="Allowed where consumers pass over values that they do not know: write it down in CHANGELOG.events.md.",
        )
    if finding.breaks is Reader.NEW and finding.rule in TIGHTENED:
        return _audited(finding, checked)
    return finding


def _audited(finding: Finding, checked: Audit | None) -> Finding:
    if checked is None or checked.seen == 0:
        return msgspec.structs.replace(
            finding,
            weight=Weight.UNJUDGED,
            way_out="Run an audit of the messages of the last 30 days: it may pass when none of them is outside.",
        )
    if checked.passed:
        return msgspec.structs.replace(
            finding,
            weight=Weight.NOTE,
            way_out=f"Allowed: all {checked.seen:,} past messages that were looked at fit.",
        )
    return msgspec.structs.replace(
        finding,
        weight=Weight.BREAKS,
        example=checked.misfits[0],
        way_out=f"{checked.refused:,} of {checked.seen:,} past messages do not fit. {NEW_VERSION}",
    )


def _removed(old: Document, new: Document, pool: Pool) -> Iterator[Finding]:
    """Fields that are no longer declared, the outermost only."""
    before = fields_of(pool, build(old, pool, Content.IGNORED))
    after = fields_of(pool, build(new, pool, Content.IGNORED))
    for path in sorted(before):
        if path not in after and (not path[:-1] or path[:-1] in after):
            yield Finding(
                path=pointer(path),
                rule="field-removed",
                breaks=Reader.OLD,
                sentence=f'"{path[-1]}" is no longer declared.{_renamed(path, before, after)}',
                way_out=f"Keep it and mark it as deprecated. {NEW_VERSION}",
            )


def _renamed(path: tuple[str, ...], before: Fields, after: Fields) -> str:
    """A guess at the new name."""
    added = [other[-1] for other in after if other[:-1] == path[:-1] and other not in before]
    alike = [name for name in added if after[(*path[:-1], name)] == before[path]]
    close = difflib.get_close_matches(path[-1], alike or added, n=1, cutoff=0.5) or (alike if len(alike) == 1 else [])
    return f' Was it renamed to "{close[0]}"? A rename is a removal for everyone who reads it.' if close else ""
