"""reporting-service at work: the report of each day."""

from melmastoon.facts.reporting import reporting
from melmastoon.reporting import handlers, tables

__all__ = ["handlers", "reporting", "tables"]
