"""maintenance-service at work: tickets, and the rooms that they keep out of order."""

from melmastoon.facts.maintenance import maintenance
from melmastoon.maintenance import commands, tables

__all__ = ["commands", "maintenance", "tables"]
