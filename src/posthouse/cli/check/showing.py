"""Showing: findings for people, grouped by rule, and for machines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.text import Text

from posthouse.cli.findings import Level, Report, RuleText, github, sarif
from posthouse.cli.output import counted, plain, print_facts, say
from posthouse.governance.policies import RULES, Examination, Finding, Rule, Severity

SIGNS = {
    Severity.ERROR: Text("✗", "bold red"),
    Severity.WARNING: Text("!", "bold yellow"),
    Severity.INFO: Text("·", "bold cyan"),
}
LEVELS: dict[Severity, Level] = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def show(examination: Examination) -> None:
    """Each rule that found something once, with its places, why it matters and what to do; then the tally."""
    for (_, rule), found in groupby(examination.findings, key=lambda finding: (finding.severity, finding.rule)):
        _show_rule(RULES[rule], list(found))
    say(Text.assemble(_tally(examination)))


def show_rule(rule: Rule) -> None:
    """What `--explain` says."""
    say(Text.assemble((rule.id, "bold"), f"  {rule.severity.value}: {rule.title}"))
    print_facts([("found", rule.sees), ("why", rule.why), ("fix", rule.fix)])


def as_sarif(examination: Examination) -> dict[str, object]:
    """For code scanning."""
    texts = [
        RuleText(id=rule.id, summary=rule.title, help=f"{rule.why} {rule.fix}", level=LEVELS[rule.severity])
        for rule in RULES.values()
    ]
    return sarif(_reports(examination.findings), texts, command="posthouse check")


def as_annotations(examination: Examination) -> str:
    """For the log of a workflow."""
    return "\n".join(github(_reports(examination.findings)))


def _reports(findings: Sequence[Finding]) -> list[Report]:
    return [
        Report(
            rule=finding.rule,
            level=LEVELS[finding.severity],
            text=f"{finding.sentence}. {finding.reason} {finding.fix}",
            file=finding.file,
            line=finding.line,
            name=finding.where,
        )
        for finding in findings
    ]


def _show_rule(rule: Rule, findings: Sequence[Finding]) -> None:
    say(Text.assemble(SIGNS[findings[0].severity], " ", (rule.id, "bold"), f"  {rule.title}"))
    for finding in findings:
        place = f"{finding.file}:{finding.line}  " if finding.file else ""
        say(Text.assemble("  ", (plain(place), "cyan"), plain(finding.sentence)))
    fixes = list(dict.fromkeys(finding.fix for finding in findings))
    print_facts([("  why", rule.why), *(("  fix", fix) for fix in fixes)])
    say("")


def _tally(examination: Examination) -> tuple[str, str]:
    severities = [finding.severity for finding in examination.findings]
    parts = [counted(severities.count(severity), severity.value) for severity in Severity if severities.count(severity)]
    parts += [f"{len(examination.allowed)} allowed"] if examination.allowed else []
    if not severities:
        return ", ".join(["nothing found", *parts]), "bold green"
    return ", ".join(parts), "bold red" if Severity.ERROR in severities else "bold yellow"
