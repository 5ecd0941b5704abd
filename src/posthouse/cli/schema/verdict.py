"""A verdict on a terminal: what breaks, for whom, an example, and the way out."""

from __future__ import annotations

import msgspec
from rich.text import Text

from posthouse.cli.output import counted, one_line, plain, print_facts, say
from posthouse.governance.evolution import Finding, Outcome, Verdict, Weight

EXIT_CODES = {Outcome.COMPATIBLE: 0, Outcome.INCOMPATIBLE: 1, Outcome.UNJUDGED: 2}

SIGNS = {
    Weight.BREAKS: Text("✗", "bold red"),
    Weight.UNJUDGED: Text("?", "bold yellow"),
    Weight.NOTE: Text("·", "bold cyan"),
}
STYLES = {Outcome.COMPATIBLE: "bold green", Outcome.INCOMPATIBLE: "bold red", Outcome.UNJUDGED: "bold yellow"}
WORDS = {
    Outcome.COMPATIBLE: "compatible",
    Outcome.INCOMPATIBLE: "incompatible",
    Outcome.UNJUDGED: "cannot be judged, so it does not pass",
}


def show(verdict: Verdict, mode: str) -> None:
    """The findings, the worst first, and the verdict under them."""
    order = list(SIGNS)
    for finding in sorted(verdict.findings, key=lambda found: order.index(found.weight)):
        show_finding(finding)
    say(Text.assemble((WORDS[verdict.outcome], STYLES[verdict.outcome]), f" ({mode}){_tally(verdict)}"))


def show_finding(finding: Finding) -> None:
    """One finding as a block of facts."""
    place = plain(finding.path) or "the whole message"
    say(Text.assemble(SIGNS[finding.weight], " ", (place, "bold"), f"  {plain(finding.rule)}"))
    example = one_line(msgspec.json.encode(finding.example).decode()) if finding.has_example else ""
    print_facts(
        [
            ("  what", finding.sentence),
            ("  for", _for_whom(finding)),
            ("  against", finding.against),
            ("  example", example),
            ("  way out", finding.way_out),
        ]
    )
    say("")


def _for_whom(finding: Finding) -> str:
    if finding.weight is Weight.BREAKS:
        return f"breaks {finding.breaks.value}"
    if finding.weight is Weight.UNJUDGED:
        return f"may break {finding.breaks.value}; it could not be proven that it does not"
    return finding.breaks.value


def _tally(verdict: Verdict) -> str:
    weights = [finding.weight for finding in verdict.findings]
    if not weights:
        return ""
    parts = [
        (weights.count(Weight.BREAKS), "break"),
        (weights.count(Weight.UNJUDGED), "open question"),
        (weights.count(Weight.NOTE), "note"),
    ]
    return ": " + ", ".join(counted(number, thing) for number, thing in parts if number)
