"""Examining: every rule that is asked, on the facts; what is allowed set aside."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.governance.policies.code import Comment
from posthouse.governance.policies.facts import Facts
from posthouse.governance.policies.finding import Finding, Found, Severity
from posthouse.governance.policies.rule import Rule
from posthouse.governance.policies.rulebook import RULES

_WEIGHT = {severity: number for number, severity in enumerate(Severity)}


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """A finding that somebody answers for."""

    finding: Finding
    because: str


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, the worst first, and what would have been."""

    findings: tuple[Finding, ...]
    allowed: tuple[Allowed, ...] = ()

    def fails(self, *, strict: bool = False) -> bool:
        """Whether anything here must not pass: errors, and with `strict` warnings too."""
        failing = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
        return any(finding.severity in failing for finding in self.findings)


def examine(facts: Facts) -> Examination:
    """Ask every rule that is not off. Raises ConfigurationError for allowances in comments that name no rule or no reason."""
    _refuse_bad_comments(facts.code.comments)
    findings: list[Finding] = []
    allowed: list[Allowed] = []
    for rule, found in _all(facts):
        finding = _finding(rule, found, facts)
        because = _because(finding, found, facts)
        if because is None:
            findings.append(finding)
        else:
            allowed.append(Allowed(finding=finding, because=because))
    findings.sort(key=lambda f: (_WEIGHT[f.severity], f.rule, f.where, f.line or 0, f.sentence))
    return Examination(findings=tuple(findings), allowed=tuple(allowed))


def _all(facts: Facts) -> Iterator[tuple[Rule, Found]]:
    for rule in RULES.values():
        if rule.id not in facts.settings.off:
            for found in dict.fromkeys(rule.look(facts)):
                yield rule, found


def _finding(rule: Rule, found: Found, facts: Facts) -> Finding:
    return Finding(
        rule=rule.id,
        severity=facts.settings.severity.get(rule.id, found.severity or rule.severity),
        where=found.where,
        sentence=found.sentence,
        reason=rule.why,
        fix=found.fix or rule.fix,
        file=None if found.place is None else found.place.file,
        line=None if found.place is None else found.place.line,
    )


def _because(finding: Finding, found: Found, facts: Facts) -> str | None:
    """Why it is allowed: in the settings, or by a comment on its lines or the one above them."""
    for allowance in facts.settings.allow:
        if allowance.covers(finding.rule, finding.where):
            return allowance.reason
    place = found.place
    for comment in facts.code.comments if place is not None else ():
        at = comment.place
        if (
            place
            and comment.rule == finding.rule
            and at.file == place.file
            and place.line - 1 <= at.line <= place.until
        ):
            return comment.reason
    return None


def _refuse_bad_comments(comments: tuple[Comment, ...]) -> None:
    problems = []
    for comment in comments:
        where = f"{comment.place.file}, line {comment.place.line}"
        if comment.rule not in RULES:
            problems.append(f"{where}: there is no rule {comment.rule!r} to allow.{did_you_mean(comment.rule, RULES)}")
        elif not comment.reason:
            problems.append(f"{where}: say why, as in `# posthouse: allow {comment.rule}: <the reason>`")
    if problems:
        raise ConfigurationError(*problems)
