"""The pages of the rules, made from the rules themselves and their examples: `python -m tests.docs.rule_pages` writes them."""

from __future__ import annotations

from pathlib import Path

from posthouse.governance.policies import FAMILIES, RULES, Rule

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "rules"
EXAMPLES = ROOT / "docs" / "examples" / "rules"


def page(rule: Rule) -> str:
    """What a person reads who was sent here by a finding."""
    return "\n".join(
        [
            f"# {rule.id}",
            "",
            f"{rule.title}. By default {_article(rule.severity.value)}.",
            "",
            f"**Found:** {rule.sees}",
            "",
            f"**Why:** {rule.why}",
            "",
            f"**Fix:** {rule.fix}",
            "",
            "## Before",
            "",
            *_excerpt(rule, "before"),
            "",
            "## After",
            "",
            *_excerpt(rule, "after"),
            "",
            f"Where it comes from: {rule.seeds}. [All rules](README.md).",
            "",
        ]
    )


def index() -> str:
    """The list of all rules, and how to set them."""
    lines = [
        "# Rules of `posthouse check`",
        "",
        "What each finds, by family. [How to run and set them](../check.md). Letters with sections name the five documents that",
        "Posthouse's requirements were taken from: A, C: event-driven architecture; B: API patterns for event-driven services; D: the",
        "hotel platform Melmastoon; E: event-driven patterns.",
        "",
    ]
    for family, rules in FAMILIES.items():
        lines += [f"## {family}", "", "| rule | weight | what is found |", "|---|---|---|"]
        lines += [f"| [{rule.id}]({rule.id}.md) | {rule.severity.value} | {rule.title} |" for rule in rules]
        lines.append("")
    return "\n".join(lines)


def written() -> dict[Path, str]:
    """Every page with its text."""
    pages = {PAGES / f"{rule.id}.md": page(rule) for rule in RULES.values()}
    return {**pages, PAGES / "README.md": index()}


def _excerpt(rule: Rule, name: str) -> list[str]:
    """An example without its imports, as the other pages show theirs."""
    file = EXAMPLES / rule.id / f"{name}.py"
    lines = file.read_text(encoding="utf-8").rstrip("\n").split("\n")
    last = max(number for number, line in enumerate(lines) if line.startswith(("import ", "from ")))
    shown = lines if rule in FAMILIES["Borders"] else lines[last + 2 :]
    return [f"<!-- {file.relative_to(ROOT).as_posix()} -->", "```python", *shown, "```"]


def _article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


if __name__ == "__main__":
    PAGES.mkdir(exist_ok=True)
    for file, text in written().items():
        file.write_text(text, encoding="utf-8")
