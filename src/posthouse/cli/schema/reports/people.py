"""The report on a terminal: what changed, whom it breaks, who reads it, an example, and the way out."""

from __future__ import annotations

import msgspec
from rich.text import Text

from posthouse.cli.output import counted, one_line, plain, print_facts, say
from posthouse.cli.schema.reports.located import Located
from posthouse.governance.gate import Bypass, Objection, Report, Severity

SIGNS = {
    Severity.ERROR: Text("✗", "bold red"),
    Severity.WARNING: Text("!", "bold yellow"),
    Severity.NOTE: Text("·", "bold cyan"),
}
BYPASSED = Text("~", "bold magenta")


def show_report(report: Report, located: Located) -> None:
    """Each objection as a block of facts, and the verdict under them."""
    for one in report.objections:
        _show(one, report.bypassed.get(one.fingerprint), located)
    style = "bold red" if not report.passes else "bold magenta" if report.bypassed else "bold green"
    say(summary(report), style)


def summary(report: Report) -> str:
    """The verdict in a sentence."""
    parts = [(report.count(severity), severity.value) for severity in Severity]
    tally = [counted(number, word) for number, word in parts if number]
    if report.bypassed:
        tally.append(f"{len(report.bypassed)} bypassed")
    verdict = "this change may pass" if report.passes else "this change must not pass"
    looked = f"{counted(report.schemas, 'schema')}, {report.changed} changed, against {report.against}"
    return f"{verdict} ({report.mode.value}): {', '.join(tally) or 'no findings'}; {looked}"


def told(one: Objection, bypass: Bypass | None = None) -> str:
    """An objection as lines of plain text."""
    lines = [
        f"{one.subject}, {one.place}: {one.sentence}" if one.subject else one.sentence,
        f"It breaks {one.breaks}." if one.breaks and one.severity is Severity.ERROR else "",
        f"Read by: {one.readers}." if one.subject else "",
        f"Example: {_example(one)}" if one.example is not msgspec.UNSET else "",
        f"Way out: {one.way_out}" if one.way_out else "",
        f"Bypassed: {_leave(bypass)}" if bypass is not None else "",
    ]
    return "\n".join(line for line in lines if line)


def _show(one: Objection, bypass: Bypass | None, located: Located) -> None:
    head = f"{one.subject}  {one.path}" if one.path else one.subject
    sign = SIGNS[one.severity] if bypass is None else BYPASSED
    say(Text.assemble(sign, " ", (plain(head) or located.path(one.file), "bold"), f"  {plain(one.rule)}"))
    print_facts(
        [
            ("  what", one.sentence),
            ("  breaks", one.breaks if one.severity is Severity.ERROR else ""),
            ("  read by", one.readers if one.subject else ""),
            ("  example", one_line(_example(one)) if one.example is not msgspec.UNSET else ""),
            ("  way out", one.way_out),
            ("  file", f"{located.path(one.file)}:{located.line(one)}"),
            ("  bypassed", "" if bypass is None else _leave(bypass)),
        ]
    )
    say("")


def _example(one: Objection) -> str:
    return msgspec.json.encode(one.example).decode()


def _leave(bypass: Bypass) -> str:
    return f"{bypass.incident} by {bypass.by} on {bypass.at:%Y-%m-%d}: {bypass.reason}"
