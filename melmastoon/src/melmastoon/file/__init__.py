"""file-storage-service at work: uploads, and the scan that comes before anybody opens one."""

from melmastoon.facts.file import file
from melmastoon.file import commands, handlers, tables

__all__ = ["commands", "file", "handlers", "tables"]
