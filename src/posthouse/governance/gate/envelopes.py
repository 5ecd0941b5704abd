"""Envelopes in the gate: what is around every payload, compared as payloads are. A version of it only grows."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from posthouse.contracts.normal import sha256
from posthouse.contracts.schema import Schema, json_schema
from posthouse.errors import ConfigurationError, SchemaError
from posthouse.governance.bundle import Bundle
from posthouse.governance.evolution import Mode
from posthouse.governance.gate.objection import Objection, Severity
from posthouse.governance.gate.schemas import SEVERITIES, Compare

NEXT = "Leave this version as it was, and publish the next one in a file beside it; codecs of both must be known to every reader first."


def envelope_objections(before: Bundle, after: Bundle, mode: Mode, compare: Compare) -> Iterator[Objection]:
    """What speaks against changed envelopes, and against one that is gone."""
    for path, was in before.envelopes.items():
        now = after.envelopes.get(path)
        change = f"{_hash(was)} {'-' if now is None else _hash(now)}"
        if now is None:
            sentence = "Events that lie in brokers and archives travel in it, and nobody can look up how they are read."
            yield _objection("envelope-removed", Severity.ERROR, path, sentence, f"Bring {path} back.", change)
            continue
        if was == now:
            continue
        try:
            verdict = compare(_schema(was), _schema(now), mode)
        except (SchemaError, ConfigurationError, msgspec.MsgspecError) as error:
            sentence = f"The two forms of it cannot be compared: {error}"
            yield _objection("envelope-unusable", Severity.ERROR, path, sentence, NEXT, change)
            continue
        for finding in verdict.findings:
            made = _objection(finding.rule, SEVERITIES[finding.weight], path, finding.sentence, NEXT, change)
            yield msgspec.structs.replace(made, path=finding.path, breaks=finding.breaks.value, example=finding.example)


def _schema(text: bytes) -> Schema:
    return json_schema(msgspec.json.decode(text))


def _hash(text: bytes) -> str:
    return sha256(text.decode(errors="replace"))


def _objection(rule: str, severity: Severity, path: str, sentence: str, way_out: str, change: str) -> Objection:
    subject = path.rpartition("/")[2].removesuffix(".json")
    return Objection(
        rule=rule,
        severity=severity,
        subject=f"the envelope {subject}",
        file=path,
        sentence=sentence,
        way_out=way_out,
        change=change,
    )
