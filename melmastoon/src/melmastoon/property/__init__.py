"""property-service at work: houses, rooms, room types, amenities."""

from melmastoon.facts.property import property
from melmastoon.property import commands, tables

__all__ = ["commands", "property", "tables"]
