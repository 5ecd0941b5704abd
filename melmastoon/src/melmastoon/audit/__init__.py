"""audit-service at work: everything that is said, in one chain per tenant."""

from melmastoon.audit import chain, commands, handlers, tables
from melmastoon.facts.audit import audit

__all__ = ["audit", "chain", "commands", "handlers", "tables"]
