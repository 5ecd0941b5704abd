"""The tables of alerts in the runbooks, made from the alerts themselves: `python -m tests.docs.runbook_pages` writes them."""

from __future__ import annotations

import re
from pathlib import Path

from posthouse.watch.alerts import Alert, alerts
from posthouse.watch.promql import duration_of

PAGES = Path(__file__).parents[2] / "docs" / "runbooks"
BEGIN, END = "<!-- alerts -->", "<!-- /alerts -->"
TABLE = re.compile(f"{BEGIN}\n(?:.*?{END}\n)?", re.DOTALL)


def table(found: list[Alert]) -> str:
    lines = [
        f"| `{one.name}` | {one.when} | {duration_of(one.hold) if one.hold else 'at once'} | {one.severity} | {one.owner} |"
        for one in found
    ]
    return "\n".join(
        [BEGIN, "| alert | fires when | for | severity | on call |", "|---|---|---|---|---|", *lines, END, ""]
    )


def index() -> str:
    """All alerts, and where they lead."""
    lines = [
        "# Runbooks",
        "",
        "What to do when an alert fires, a page for each cause. Each begins with what it means for the business, then what to look at, what to",
        "press, and how to see that it helped. `page` wakes somebody; `ticket` is for the next working day.",
        "",
        "```",
        "posthouse export alerts --out rules/posthouse.yaml --tests rules/posthouse-tests.yaml --runbooks https://wiki.example/runbooks",
        "posthouse export dashboards --out dashboards",
        "posthouse export runbooks --out runbooks",
        "```",
        "",
        "writes the rules for `rule_files` of Prometheus, two cases for each of them for `promtool test rules`, the dashboards for Grafana, and",
        "these pages, to put where people on call find them. Another threshold is `--set consumer_lag_seconds=60`; labels of your scrapes by which",
        "services are told apart are `--by env`. Name the scrape jobs `posthouse…`, and scrape at least one `posthouse watch`, so that alerts fire",
        "while every worker is dead. `--time-scale 0.01` makes three seconds of five minutes: for a drill, to see that an alert reaches you. A drill",
        "needs `scrape_interval` and `evaluation_interval` of Prometheus scaled as well: a stretch of three seconds must hold several scrapes.",
        "",
        'An alert names a service, as `service="billing"`; a command wants its target, `module:service`, as in the unit or deployment that runs it',
        "(`app:billing` here). Type it where that runs, with the same environment: on the host that the label `instance` names, in a pod of the",
        "deployment (`kubectl exec`), as the user of the unit. Write down yours here before you need them.",
        "",
        "`$ posthouse …` in a page is a command with lines of what it prints, of a shop with the services `app:orders` and `app:billing`.",
        "",
        "| alert | page | severity |",
        "|---|---|---|",
        *(f"| `{one.name}` | [{title(one.page)}]({one.page}.md) | {one.severity} |" for one in alerts()),
        "",
    ]
    return "\n".join(lines)


def title(page: str) -> str:
    return (PAGES / f"{page}.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def written() -> dict[Path, str]:
    """Every page as it should be."""
    found = {PAGES / "README.md": index()}
    for page in sorted({one.page for one in alerts()}):
        file = PAGES / f"{page}.md"
        own = table([one for one in alerts() if one.page == page])
        found[file] = TABLE.sub(lambda _, own=own: own, file.read_text(encoding="utf-8"), count=1)  # type: ignore[misc]
    return found


if __name__ == "__main__":
    for file, text in written().items():
        file.write_text(text, encoding="utf-8")
