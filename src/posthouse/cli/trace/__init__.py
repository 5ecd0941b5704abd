"""`posthouse trace`: everything that one request caused, across services."""

from posthouse.cli.trace.command import trace

__all__ = ["trace"]
