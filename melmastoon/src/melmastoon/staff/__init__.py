"""staff-service at work: shifts."""

from melmastoon.facts.staff import staff
from melmastoon.staff import commands, tables

__all__ = ["commands", "staff", "tables"]
