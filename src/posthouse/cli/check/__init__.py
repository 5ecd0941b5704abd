"""`posthouse check`: the anti-patterns of event-driven systems, looked for in services and their code."""

from posthouse.cli.check.command import check

__all__ = ["check"]
