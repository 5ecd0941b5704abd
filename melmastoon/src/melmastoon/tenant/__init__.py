"""tenant-service at work: hoteliers, their roles and their settings."""

from melmastoon.facts.tenant import tenant
from melmastoon.tenant import commands, tables

__all__ = ["commands", "tables", "tenant"]
