"""analytics-service at work: the figures of each day."""

from melmastoon.analytics import commands, handlers, tables
from melmastoon.facts.analytics import analytics

__all__ = ["analytics", "commands", "handlers", "tables"]
