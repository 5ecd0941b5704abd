"""sync-service at work: the log that desktops catch up from, and what they did meanwhile."""

from melmastoon.facts.sync import sync
from melmastoon.sync import commands, handlers, tables

__all__ = ["commands", "handlers", "sync", "tables"]
