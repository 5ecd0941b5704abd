"""theme-config-service at work: presets, brands, texts."""

from melmastoon.facts.theme import theme
from melmastoon.theme import commands, tables

__all__ = ["commands", "tables", "theme"]
