"""Bypass: leave to make one change in spite of the gate, on record with the incident that asks for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from posthouse.errors import ConfigurationError
from posthouse.events.limits import UNREADABLE
from posthouse.governance.gate.objection import Objection

BYPASSES = "bypasses.json"
"""The file in the bundle's folder. It is reviewed with the change that it lets pass."""

_INCIDENT = re.compile(r"[A-Za-z][A-Za-z0-9_]*-[0-9]+")


class Bypassed(msgspec.Struct, frozen=True, kw_only=True):
    """One objection that is passed over. The fingerprint names it; the rest is for people."""

    fingerprint: str
    file: str
    rule: str
    sentence: str


class Bypass(msgspec.Struct, frozen=True, kw_only=True):
    """Who gave leave, when, why, and for what exactly: another change of the same file needs leave of its own."""

    incident: str
    reason: str
    by: str
    at: datetime
    findings: tuple[Bypassed, ...]


class _BypassList(msgspec.Struct, frozen=True):
    bypasses: tuple[Bypass, ...] = ()


def bypass_of(objections: Iterable[Objection], *, incident: str, reason: str, by: str, at: datetime) -> Bypass:
    """Leave for these objections. Raises ConfigurationError where incident or reason are missing."""
    problems = []
    if not _INCIDENT.fullmatch(incident):
        problems.append(f"--bypass needs the id of an incident, as in INC-1234, not {incident!r}")
    if not reason.strip():
        problems.append("--bypass needs --reason: say why this cannot wait for a new version")
    if not by.strip():
        problems.append("--bypass records who gave leave, and nobody is known: set git's user.email")
    if problems:
        raise ConfigurationError(*problems)
    covered = [
        Bypassed(fingerprint=one.fingerprint, file=one.file, rule=one.rule, sentence=one.sentence) for one in objections
    ]
    return Bypass(incident=incident, reason=reason.strip(), by=by.strip(), at=at, findings=tuple(covered))


def read_bypasses(text: bytes) -> Sequence[Bypass]:
    """What is on record. Raises ConfigurationError, also for a record without an incident."""
    try:
        found = msgspec.json.decode(text, type=_BypassList).bypasses
    except UNREADABLE as error:
        raise ConfigurationError(
            f"{BYPASSES} cannot be read: {error}; mend it or take it from the last commit"
        ) from error
    problems = [
        f"{BYPASSES} holds a bypass by {one.by or 'nobody'} without the id of an incident: {one.incident!r}"
        for one in found
        if not _INCIDENT.fullmatch(one.incident)
    ]
    if problems:
        raise ConfigurationError(*problems)
    return found


def bypasses_file(bypasses: Iterable[Bypass]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(_BypassList(tuple(bypasses))), indent=2) + b"\n"
