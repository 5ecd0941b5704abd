"""The page of mistakes, written from the suite."""

from __future__ import annotations

from tests.misuse.mistakes import MISTAKES

HEAD = """# Mistakes, and what they are answered with

What hurried people write, and the sentence that they read. None of these loses an event or leaves a file, a table or a row behind:
`tests/misuse` makes each of them, and this page is written from it (`python -m tests.misuse > docs/mistakes.md`).
"""


def page() -> str:
    """The whole page."""
    count = sum(map(len, MISTAKES.values()))
    parts = [HEAD, f"{count} of them, by kind.\n"]
    for kind, mistakes in MISTAKES.items():
        parts.append(f"## {kind}\n")
        for mistake in mistakes:
            code = mistake.code.rstrip("\n")
            parts.append(f"{mistake.name}\n\n```text\n{code}\n```\n\n> {mistake.sentence}\n")
    return "\n".join(parts)
